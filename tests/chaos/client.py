"""A client that posts events with ids of its own and remembers which of them got a 200."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx

from tests.chaos.project import SECRET, TABLES
from tests.support import plain_http

KEYS = 24
"""How many keys each thread gives new values to."""


@dataclass
class Poster:
    """Several threads that post, one at a time and in arrays and bulk, each id exactly once, until told to stop.

    A request that got no answer may or may not have been taken: its ids are in ``sent`` and not in ``acknowledged``.
    """

    port: int
    threads: int = 4
    pause: float = 0.05
    """Seconds that each thread rests after an answer: without, they take more of the machine than the pipeline."""
    sent: dict[str, int] = field(default_factory=dict)
    """Every event with the moment before it was sent. Moments are counted: of two the later is the higher."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Every event that got its 200, with the moment after that."""
    deadly: set[str] = field(default_factory=set)
    """Events that got their 200 and end every process that works on them."""
    maybe_deadly: set[str] = field(default_factory=set)
    """All such events that were sent: one without an answer may have been taken."""
    newest: dict[str, int] = field(default_factory=dict)
    """Per key the last value that was acknowledged. A key is posted by one thread, one value after the other."""
    unanswered: dict[str, set[int]] = field(default_factory=dict)
    """Per key the values of requests without a 200: they may have been taken, then or later."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _moments: itertools.count[int] = field(default_factory=itertools.count)
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
        with self._connect() as http:
            numbers = self._take_numbers(1)
            self._post(http, "one", numbers, bulk=False).raise_for_status()
        return event_id(numbers[0])

    def post_deadly(self) -> str:
        """An event that ends every process that works on it: raises unless it gets its 200."""
        (number,) = self._take_numbers(1)
        event = {**self.event("deadly", number), "deadly": True}
        url = f"http://127.0.0.1:{self.port}/api/v1/event"
        with self._lock:
            self.maybe_deadly.add(event_id(number))
        plain_http.post(url, json=event, headers={"X-Auth-Token": SECRET}, timeout=10).raise_for_status()
        with self._lock:
            self.deadly.add(event_id(number))
        return event_id(number)

    def event(self, sender: str, number: int) -> dict[str, object]:
        """The event of that number. Asked for once, before it is sent."""
        key = _key(sender, number)
        return {
            "eventn_ctx": {"event_id": event_id(number)},
            "kind": TABLES[number % KEYS % len(TABLES)],
            "id": key,
            "n": number,
        }

    def _connect(self) -> httpx.Client:
        url = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=url, timeout=10, verify=plain_http.NO_AUTHORITIES)

    def _work(self, kind: int) -> None:
        with self._connect() as http:
            while not self._stop.is_set():
                try:
                    with self._turns[kind]:
                        numbers = self._take_numbers((1, 1, 7, 50)[kind % 4])
                        self._post(http, str(kind), numbers, bulk=kind % 4 == 3)
                except httpx.HTTPError:
                    self._stop.wait(max(0.05, self.pause))
                else:
                    self._stop.wait(self.pause)

    def _post(self, http: httpx.Client, sender: str, numbers: list[int], bulk: bool) -> httpx.Response:
        events = [self.event(sender, number) for number in numbers]
        headers = {"X-Auth-Token": SECRET}
        with self._lock:
            for number in numbers:
                self.unanswered.setdefault(_key(sender, number), set()).add(number)
        if bulk:
            body = "\n".join(json.dumps(event) for event in events)
            response = http.post("/api/v1/events/bulk", content=body, headers=headers)
        else:
            response = http.post("/api/v1/event", json=events if len(events) > 1 else events[0], headers=headers)
        if response.status_code == 200:
            with self._lock:
                moment = next(self._moments)
                for number in numbers:
                    self.acknowledged[event_id(number)] = moment
                    self.newest[_key(sender, number)] = number
                    self.unanswered[_key(sender, number)].remove(number)
        return response

    def _take_numbers(self, count: int) -> list[int]:
        with self._lock:
            numbers = [next(self._numbers) for _ in range(count)]
            self.sent.update(dict.fromkeys(map(event_id, numbers), next(self._moments)))
        return numbers


def event_id(number: int) -> str:
    return f"id-{number}"


def _key(sender: str, number: int) -> str:
    return f"{sender}-{number % KEYS}"
