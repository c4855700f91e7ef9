"""A client that posts events with ids of its own and remembers which of them got a 200."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx

from tests.chaos.project import SECRET


@dataclass
class Poster:
    """Several threads that post, one at a time and in arrays and bulk, each id exactly once, until told to stop.

    A request that got no answer may or may not have been taken: its ids are in ``sent`` and not in ``acknowledged``.
    """

    port: int
    threads: int = 4
    sent: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    deadly: set[str] = field(default_factory=set)
    """Events that were taken and end every process that works on them."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _running: list[threading.Thread] = field(default_factory=list)
    _turns: list[threading.Lock] = field(default_factory=list)
    """A thread holds its own while it posts."""

    def start(self) -> None:
        self._turns = [threading.Lock() for _ in range(self.threads)]
        self._running = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(self.threads)]
        for thread in self._running:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._running:
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is posted meanwhile, and what was has its answer."""
        with ExitStack() as turns:
            for turn in self._turns:
                turns.enter_context(turn)
            yield

    def post_one(self) -> str:
        """One more event: raises unless it gets its 200."""
        (event_id,) = self._ids(1)
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10) as http:
            self._post(http, [event_id], bulk=False).raise_for_status()
        return event_id

    def post_deadly(self) -> str:
        """An event that ends every process that works on it: raises unless it gets its 200."""
        (event_id,) = self._ids(1)
        event = {"eventn_ctx": {"event_id": event_id}, "deadly": True}
        url = f"http://127.0.0.1:{self.port}/api/v1/event"
        self.deadly.add(event_id)
        httpx.post(url, json=event, headers={"X-Auth-Token": SECRET}, timeout=10).raise_for_status()
        return event_id

    def _work(self, kind: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10) as http:
            while not self._stop.is_set():
                try:
                    with self._turns[kind]:
                        self._post(http, self._ids((1, 1, 7, 50)[kind % 4]), bulk=kind % 4 == 3)
                except httpx.HTTPError:
                    self._stop.wait(0.05)
                else:
                    self._stop.wait(0.005)

    def _post(self, http: httpx.Client, ids: list[str], bulk: bool) -> httpx.Response:
        events = [{"eventn_ctx": {"event_id": event_id}, "n": number} for number, event_id in enumerate(ids)]
        headers = {"X-Auth-Token": SECRET}
        if bulk:
            body = "\n".join(json.dumps(event) for event in events)
            response = http.post("/api/v1/events/bulk", content=body, headers=headers)
        else:
            response = http.post("/api/v1/event", json=events if len(events) > 1 else events[0], headers=headers)
        if response.status_code == 200:
            with self._lock:
                self.acknowledged.update(ids)
        return response

    def _ids(self, count: int) -> list[str]:
        with self._lock:
            ids = [f"id-{next(self._numbers)}" for _ in range(count)]
            self.sent.update(ids)
        return ids
