"""Groups staged events into requests: those of one client and user together, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from penstock.destinations.contract import Part, RecordIds
from penstock.destinations.ga4 import limits
from penstock.destinations.ga4.event_mapping import Event
from penstock.destinations.ga4.verbatim_json import dumps, loads

WINDOW = 5_000
"""How many events are grouped by owner at a time: as many are held in memory."""


Place = tuple[int, int, int, int]


@dataclass(frozen=True)
class Staged:
    partition: int
    offset: int
    item: int
    nth: int
    """Which of the item's rows this is."""
    event: Event

    @property
    def place(self) -> Place:
        return self.partition, self.offset, self.item, self.nth

    def with_id(self, param: str, ids: RecordIds | None) -> Staged:
        """The event with its record's id among its parameters, and behind that which row of the record it is."""
        place = f"{self.partition}-{self.offset}" if ids is None else ids.id_of(self.partition, self.offset)
        own = f"-{self.item}" if self.item else ""
        full = place + own + (f".{self.nth}" if self.nth else "")
        return replace(self, event=replace(self.event, params={**self.event.params, param: full}))


@dataclass(frozen=True)
class Request:
    events: Sequence[Staged]

    @property
    def body(self) -> bytes:
        first = self.events[0].event
        about = {"client_id": first.client_id, "user_id": first.user_id, "user_properties": first.properties or None}
        known = {key: value for key, value in about.items() if value is not None}
        whole = {**known, "events": [staged.event.body() for staged in self.events]}
        return dumps(whole).encode()

    def one_by_one(self) -> list[Request]:
        return [Request([staged]) for staged in self.events]


def staged_events(parts: Iterable[Part]) -> Iterator[Staged]:
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        with Path(part.path).open(encoding="utf-8") as lines:
            for line in lines:
                read = loads(line)
                partition, offset, item, nth = (read.pop(name) for name in ("partition", "offset", "item", "nth"))
                yield Staged(partition, offset, item, nth, Event(**read))


def requests(events: Iterable[Staged], most: int = limits.MAX_EVENTS) -> Iterator[Request]:
    """In the order of their first events; those of one owner keep theirs."""
    waiting = iter(events)
    while window := list(islice(waiting, WINDOW)):
        owners: dict[tuple[str | None, str | None, str], list[Staged]] = {}
        for staged in window:
            owners.setdefault(staged.event.owner, []).append(staged)
        for own in owners.values():
            for start in range(0, len(own), most):
                yield from _small_enough(Request(own[start : start + most]))


def _small_enough(request: Request) -> Iterator[Request]:
    if len(request.events) == 1 or len(request.body) <= limits.MAX_BODY:
        yield request
        return
    middle = len(request.events) // 2
    yield from _small_enough(Request(request.events[:middle]))
    yield from _small_enough(Request(request.events[middle:]))
