"""Requests of the addEvents API, made of staged events, and what its answers mean."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from penstock.destinations.sending.compression import compress
from penstock.destinations.sending.request_protocol import Answer, Judgement, Request, Verdict
from penstock.destinations.sending.sending_options import Packing
from penstock.destinations.sending.staged.keyed_rows import KeyedRows
from penstock.sessions.request_size import Limits, cut_request
from penstock.sessions.retry_after import asked_pause
from penstock.sessions.session_keys import session_name

_RETRIED = frozenset((401, 403, 429))
_TOO_LARGE = 413
_LONGEST_TEXT = 300
_THREADS, _LOGS, _END = b'],"threads":[', b'],"logs":[', b"]}"


def head(token: str, session: str, session_info: bytes) -> bytes:
    """How a request begins, up to its first event."""
    texts = orjson.dumps(token), orjson.dumps(session)
    return b'{"token":%b,"session":%b,"sessionInfo":%b,"events":[' % (*texts, session_info)


def bytes_around(token: str) -> int:
    """The bytes of a request beside its events, its definitions and its session's information."""
    longest_session = "0" * (32 + 1 + 32 + 1 + 4)
    return len(head(token, longest_session, b"")) + len(_THREADS) + len(_LOGS) + len(_END)


@dataclass(frozen=True)
class AddEvents:
    """The ``RequestProtocol`` of one batch."""

    staged: KeyedRows
    url: str
    token: str
    client_id: str
    headers: Mapping[str, str]
    limits: Limits
    compression: Packing
    level: int

    def cut(self, key: str, start: int) -> int:
        around = bytes_around(self.token) + len(self.staged.about[key])
        return cut_request(self.staged.sizes(key), start, around, self.limits)

    def bytes_of(self, key: str, start: int, end: int) -> int:
        return self.staged.bytes_of(key, start, end)

    def build(self, key: str, start: int, end: int) -> Request:
        bodies = self.staged.bodies(key, start, end)
        bodies[-1] = bodies[-1][:-1]
        threads, logs = (b",".join(_first_of_each_id(each)) for each in self.staged.definitions(key, start, end))
        first = head(self.token, session_name(self.client_id, key), self.staged.about[key])
        pieces: list[bytes | memoryview] = [first, *bodies, _THREADS, threads, _LOGS, logs, _END]
        body = compress(pieces, self.compression, self.level)
        return Request(self.url, self.headers, body, payload_bytes=sum(map(len, pieces)))

    def place(self, key: str, row: int) -> tuple[int, int, int]:
        return self.staged.place(key, row)

    def judge(self, answer: Answer) -> Judgement:
        found = _object(answer.body) if answer.status == 200 else None
        if found is not None:
            charged = found.get("bytesCharged")
            bytes_charged = charged if isinstance(charged, int) and not isinstance(charged, bool) else 0
            return Judgement(Verdict.ACCEPTED, counted={"requests": 1, "bytes_charged": bytes_charged})
        said = f"it answers {answer.status}{_words(answer.body)}"
        wait = asked_pause(answer.headers, time.time())
        if answer.status == 200:
            return Judgement(Verdict.RETRY, f"{said}, which is no JSON object", 200, wait)
        if answer.status == _TOO_LARGE:
            return Judgement(Verdict.TOO_LARGE, said, _TOO_LARGE)
        if 400 <= answer.status < 500 and answer.status not in _RETRIED:
            return Judgement(Verdict.REFUSED, said, answer.status)
        return Judgement(Verdict.RETRY, said, answer.status, wait)


def _first_of_each_id(definitions: list[bytes]) -> list[bytes]:
    """Two events may define one id in two ways."""
    if len(definitions) < 2:
        return definitions
    found: dict[object, bytes] = {}
    for each in definitions:
        found.setdefault(orjson.loads(each)["id"], each)
    return list(found.values())


def _object(body: bytes) -> dict[str, object] | None:
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _words(body: bytes) -> str:
    text = " ".join(body[: 4 * _LONGEST_TEXT].decode(errors="replace").split())[:_LONGEST_TEXT]
    return f": {text}" if text else ""
