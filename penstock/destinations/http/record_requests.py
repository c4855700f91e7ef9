"""Requests made of staged records, and what answers mean."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from penstock.destinations.http.config import Form
from penstock.destinations.sending.compression import compress
from penstock.destinations.sending.request_protocol import Answer, Judgement, Request, Verdict
from penstock.destinations.sending.sending_options import Packing
from penstock.destinations.sending.staged.keyed_rows import KeyedRows
from penstock.sessions.request_size import Limits, cut_request
from penstock.sessions.retry_after import asked_pause

_NOT_TO_BLAME = frozenset((401, 403, 404, 405, 407, 408, 425, 429))
"""The server, or the config, must change first; the records are not to blame."""
_TOO_LARGE = 413
_LONGEST_TEXT = 300
_LEVEL = 1


def named_in_lower_case(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as they can be laid over others: their names are the same in any case."""
    return {name.lower(): value for name, value in headers.items()}


@dataclass(frozen=True)
class RecordRequests:
    """The ``RequestProtocol`` of one batch."""

    staged: KeyedRows
    method: str
    headers: dict[str, str]
    """Names in lower case."""
    form: Form
    limits: Limits
    compression: Packing

    def cut(self, key: str, start: int) -> int:
        return cut_request(self.staged.sizes(key), start, 2, self.limits)

    def bytes_of(self, key: str, start: int, end: int) -> int:
        return self.staged.bytes_of(key, start, end)

    def build(self, key: str, start: int, end: int) -> Request:
        about = orjson.loads(self.staged.about[key])
        pieces: list[bytes | memoryview] = list(self.staged.bodies(key, start, end))
        if self.form is not Form.NDJSON:
            pieces[-1] = pieces[-1][:-1]
        if self.form is Form.JSON:
            pieces = [b"[", *pieces, b"]"]
        body = compress(pieces, self.compression, _LEVEL)
        headers = self.headers | named_in_lower_case(about["headers"])
        return Request(about["url"], headers, body, self.method, sum(map(len, pieces)))

    def place(self, key: str, row: int) -> tuple[int, int, int]:
        return self.staged.place(key, row)

    def judge(self, answer: Answer) -> Judgement:
        status = answer.status
        if 200 <= status < 300:
            return Judgement(Verdict.ACCEPTED, counted={"requests": 1})
        text = " ".join(answer.body[: 4 * _LONGEST_TEXT].decode(errors="replace").split())[:_LONGEST_TEXT]
        said = f"it answers {status}" + (f": {text}" if text else "")
        if status == _TOO_LARGE:
            return Judgement(Verdict.TOO_LARGE, said, status)
        if 400 <= status < 500 and status not in _NOT_TO_BLAME:
            return Judgement(Verdict.REFUSED, said, status)
        wait = asked_pause(answer.headers, time.time())
        return Judgement(Verdict.RETRY, said, status, wait)
