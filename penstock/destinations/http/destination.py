"""Records to any HTTP API: at least once, in order inside a key.

What was accepted is noted before the key's next request, so a batch that is tried again sends only what was not. Twice
come records whose answer was lost, or that were in flight when Penstock was killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from penstock import __version__
from penstock.destinations.contract import Batch, Stager, TableBook
from penstock.destinations.http.config import Form, HttpConfig
from penstock.destinations.http.record_requests import RecordRequests, named_in_lower_case
from penstock.destinations.http.stager import TABLE, RecordStager
from penstock.destinations.sending.request_protocol import RequestProtocol
from penstock.destinations.sending.route_sender import SenderSettings
from penstock.destinations.sending.sending_destination import SendingDestination
from penstock.destinations.sending.sending_options import OnFailing, Packing
from penstock.destinations.sending.staged.keyed_rows import KeyedRows
from penstock.sessions.adaptive_limit import AdaptiveLimit
from penstock.sessions.request_size import Limits

FIRST_LIMIT = 4
"""Requests in flight before it is known how fast the server answers."""
_TYPES = {Form.JSON: "application/json", Form.NDJSON: "application/x-ndjson", Form.SINGLE: "application/json"}


class HttpDestination(SendingDestination[HttpConfig]):
    table = TABLE

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return RecordStager(directory, self.config)

    def check(self) -> str:
        return f"records go to {urlsplit(self.config.url).netloc}; nobody knows a request to it that changes nothing"

    @property
    def settings(self) -> SenderSettings:
        config = self.config
        limit = AdaptiveLimit(config.max_parallel_outgoing, min(FIRST_LIMIT, config.max_parallel_outgoing))
        return SenderSettings(
            config.retry.schedule, limit, config.timeout, config.patience, error_timeout=None, ca=config.ca
        )

    @property
    def gives_up(self) -> bool:
        return self.config.on_error is OnFailing.DEAD_LETTER

    def protocol(self, batch: Batch, staged: KeyedRows, book: TableBook) -> RequestProtocol:
        config = self.config
        headers = {"Content-Type": _TYPES[config.form], "User-Agent": f"penstock/{__version__}"}
        if config.compression is not Packing.NONE:
            headers["Content-Encoding"] = config.compression.value
        own = {name: value.get_secret_value() for name, value in config.headers.items()}
        headers = named_in_lower_case(headers) | named_in_lower_case(own)
        most = 1 if config.form is Form.SINGLE else config.max_records
        limits = Limits(config.max_bytes, config.max_bytes, most)
        return RecordRequests(staged, config.method.value, headers, config.form, limits, config.compression)
