"""Events between the tasks and the driver: a line each, behind the place of its record, in a file per part.

They are read in the order of the log over all partitions: what was acknowledged before something else was sent comes
before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.destinations.contract import Order, Part, RecordIds
from penstock.destinations.ga4.event_mapping import Event
from penstock.destinations.sending.verbatim_json import dumps, loads

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

    def not_after(self, micros: int) -> Staged:
        """The event, dated at the latest so."""
        return self if self.event.micros <= micros else replace(self, event=replace(self.event, micros=micros))


def staged_line(place: Place, event: Event) -> str:
    return f"{' '.join(map(str, place))} {dumps(vars(event))}\n"


def staged_events(parts: Sequence[Part], order: Order | None) -> Iterator[Staged]:
    """All events of the parts. A line of each file is held in memory, and a number for every event."""
    in_turn = sorted(parts, key=lambda part: (part.partition, part.first_offset))
    if order is None or len({part.partition for part in in_turn}) == 1:
        for part in in_turn:
            yield from map(_read, _lines(part))
        return
    files = [zip(ranks, _lines(part), strict=True) for part, ranks in zip(in_turn, _ranks(in_turn, order), strict=True)]
    for _, line in heapq.merge(*files, key=itemgetter(0)):
        yield _read(line)


def _ranks(parts: Sequence[Part], order: Order) -> list[npt.NDArray[np.int64]]:
    """Per part the place of each of its events in the order of all."""
    places = [np.array([line.split(" ", 2)[:2] for line in _lines(part)], np.int64).reshape(-1, 2) for part in parts]
    partitions, offsets = np.concatenate(places).T
    ranks = order.ranks(np.ascontiguousarray(partitions), np.ascontiguousarray(offsets))
    return np.split(ranks, np.cumsum([len(each) for each in places])[:-1])


def _lines(part: Part) -> Iterator[str]:
    with Path(part.path).open(encoding="utf-8", newline="\n") as lines:
        yield from lines


def _read(line: str) -> Staged:
    *place, event = line.split(" ", 4)
    partition, offset, item, nth = map(int, place)
    return Staged(partition, offset, item, nth, Event(**loads(event)))
