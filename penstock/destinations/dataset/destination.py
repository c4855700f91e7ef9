"""Events to the DataSet ``addEvents`` API: at least once, in order inside each session.

The API has no transactions, and nobody can ask what it has. What was accepted is noted before the session's next
request, so a batch that is tried again sends only what was not. Twice come events whose answer was lost, or that were
in flight when Penstock was killed; they carry the same delivery id.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock import __version__
from penstock.destinations.contract import Batch, Part, Stager, TableBook
from penstock.destinations.dataset.add_events import AddEvents, bytes_around
from penstock.destinations.dataset.config import DatasetConfig
from penstock.destinations.dataset.event_mapping import EventMapper
from penstock.destinations.dataset.stager import TABLE, EventStager
from penstock.destinations.sending.request_protocol import RequestProtocol
from penstock.destinations.sending.route_sender import SenderSettings
from penstock.destinations.sending.sending_destination import SendingDestination
from penstock.destinations.sending.sending_options import OnFailing, Packing
from penstock.destinations.sending.staged.keyed_rows import KeyedRows
from penstock.sessions.adaptive_limit import AdaptiveLimit
from penstock.sessions.request_limits import SEND_ABOVE
from penstock.sessions.request_size import Limits


class DatasetDestination(SendingDestination[DatasetConfig]):
    table = TABLE

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        config = self.config
        room = config.max_size - bytes_around(config.token.get_secret_value())
        mapper = EventMapper(
            config.group_by,
            config.server_host or socket.gethostname(),
            config.max_sessions_per_key,
            config.id_attribute,
            room,
        )
        return EventStager(directory, mapper)

    def check(self) -> str:
        return f"events go to {self.config.url}/api/addEvents; the API has no request that changes nothing"

    @property
    def settings(self) -> SenderSettings:
        config = self.config
        return SenderSettings(
            config.retry.schedule,
            AdaptiveLimit(config.max_parallel_outgoing),
            config.timeout,
            config.patience,
            config.error_state_timeout,
            config.ca,
        )

    @property
    def gives_up(self) -> bool:
        return self.config.on_error is OnFailing.DEAD_LETTER

    def count_staged(self, parts: Sequence[Part]) -> Mapping[str, int]:
        return {"trimmed": sum(int(part.header or 0) for part in parts)}

    def protocol(self, batch: Batch, staged: KeyedRows, book: TableBook) -> RequestProtocol:
        config, client_id = self.config, book.client_id()
        headers = {"Content-Type": "application/json", "User-Agent": f"penstock/{__version__} (client {client_id})"}
        if config.compression is not Packing.NONE:
            headers["Content-Encoding"] = config.compression.value
        return AddEvents(
            staged,
            f"{config.url}/api/addEvents",
            config.token.get_secret_value(),
            client_id,
            headers,
            Limits(config.max_size, min(SEND_ABOVE, config.max_size)),
            config.compression,
            config.compression_level,
        )
