"""The demo's client: posts events in bulk and one by one, and a few bad things on purpose, as a real client would."""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from penstock.demo.project import SECRET

BULK_LINES = 2_000
BAD_LINES = (b'{"event_type": "torn', b"not json at all", b"[1, 2, 3]")
"""Lines that the collector keeps and every route reports as failed."""


@dataclass(frozen=True)
class Sent:
    """The collector's answers to everything that was sent."""

    accepted: int
    malformed: int
    refused: int
    requests: int


class Client:
    """One keep-alive connection to a collector."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def post(self, path: str, body: bytes, token: str = SECRET) -> tuple[int, dict[str, object]]:
        headers = {"X-Auth-Token": token, "Content-Type": "application/json", "User-Agent": "demo/1"}
        # A refused body need not be read to its end: the answer may come before all of it is sent.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")

    def ready(self) -> bool:
        try:
            self._connection.request("GET", "/readyz")
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return False
        return response.status == 200


def send_all(port: int, events: Iterable[bytes], singles: int, advance: Callable[[int], None]) -> Sent:
    """Send the first ``singles`` events one by one, the rest in bulk with the bad lines among them."""
    client = Client(port)
    stream = iter(events)
    accepted = malformed = refused = requests = 0
    for event in itertools.islice(stream, singles):
        status, answer = client.post("/api/v1/event", event)
        accepted += _count(status, answer, "accepted")
        requests += 1
        advance(1)
    for lines in _chunks(stream, BULK_LINES):
        sent = len(lines)
        if malformed == 0:
            lines.extend(BAD_LINES)
        status, answer = client.post("/api/v1/events/bulk", b"\n".join(lines))
        accepted += _count(status, answer, "accepted")
        malformed += _count(status, answer, "malformed")
        requests += 1
        advance(sent)
    for path, body, token in (
        ("/api/v1/event", b'{"event_type": "page_view"}', "wrong"),
        ("/api/v1/event", b'{"big": "' + b"x" * 60_000 + b'"}', SECRET),
        ("/api/v1/event", b"{broken", SECRET),
    ):
        # Each on its own connection: the server may close it after a refusal.
        status, _ = Client(port).post(path, body, token)
        refused += status in (400, 401, 413)
        requests += 1
    return Sent(accepted, malformed, refused, requests)


def _count(status: int, answer: dict[str, object], key: str) -> int:
    if status != 200:
        raise RuntimeError(f"the collector answered {status}: {answer}")
    return int(str(answer.get(key, 0)))


def _chunks(items: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    while chunk := list(itertools.islice(items, size)):
        yield chunk
