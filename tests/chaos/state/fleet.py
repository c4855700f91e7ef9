"""Many hubs that report to the collector, each over one thread, and report again what got no answer."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import httpx

from tests.chaos.client import Poster
from tests.chaos.project import SECRET
from tests.chaos.state.hub import Bundle, Hub

PER_POST = 20
"""Bundles at least."""
MOST_PER_POST = 100


@dataclass
class Fleet(Poster):
    """What a hub has reported stays in the outbox until it got its 200, and the hub reports nothing else meanwhile. So
    the newest state of a hub is known whatever is killed, and many bundles come twice."""

    sources: int = 20
    rate: float = 100.0
    """Bundles per second, of all hubs together."""
    rng: random.Random = field(default_factory=random.Random)
    hubs: list[Hub] = field(default_factory=list)
    posted: int = 0
    """Bundles that got their 200."""
    repeated: int = 0
    """Requests that had to be sent again."""
    _outboxes: dict[int, list[Bundle]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hubs = [Hub(f"hub{number}", random.Random(self.rng.random())) for number in range(self.sources)]

    def finish(self) -> None:
        """Nobody posts any more: send what got no answer, and a last bundle of every kind. Raises unless all of it gets
        its 200; called again it goes on where it was."""
        last = self.threads
        if last not in self._outboxes:
            found = [bundle for hub in self.hubs for bundle in hub.report_all(restarted=not hub.newest)]
            self._outboxes[last] = found
        with self._connect() as http:
            for outbox in sorted(self._outboxes):
                while self._outboxes[outbox]:
                    self._send(http, outbox)

    def _work(self, kind: int) -> None:
        own, posted, due = self.hubs[kind :: self.threads], 0, time.monotonic()
        outbox = self._outboxes.setdefault(kind, [])
        with self._connect() as http:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                while len(outbox) < PER_POST:
                    outbox += own[posted % len(own)].report()
                    posted += 1
                try:
                    with self._turns[kind]:
                        due += self._send(http, kind) / (self.rate / self.threads)
                except httpx.HTTPError:
                    self.repeated += 1
                    due = time.monotonic() + 0.1

    def _send(self, http: httpx.Client, outbox: int) -> int:
        bundles = self._outboxes[outbox][:MOST_PER_POST]
        http.post("/api/v1/bundles", json=bundles, headers={"X-Auth-Token": SECRET}).raise_for_status()
        del self._outboxes[outbox][: len(bundles)]
        with self._lock:
            self.posted += len(bundles)
        return len(bundles)
