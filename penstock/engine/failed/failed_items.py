"""From failures to what is kept of them: each item with its record, as it is in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.items import outer_item
from penstock.log.local_log import LocalLog
from penstock.outcome import check_count
from penstock.record import EPOCH, Op, Record, records

LOST = "lost"
"""The code of an item that should be there and is not any more."""

_Failure = dict[str, Any]
_Place = tuple[int, int]


@dataclass(frozen=True)
class FailedItem:
    record: Record
    """As it was in the log, or cut down to what the item needs of it."""
    item: int
    """What of it has failed; 0 for all of it."""
    step: str
    code: str
    message: str


def failed_items(
    log: LocalLog, failures: Iterable[pa.RecordBatch], cut_out: Callable[[Record, int], Record] | None = None
) -> Iterator[FailedItem]:
    """What failed, each batch of failures in the order of the log, so that the items of a record follow each other. The
    log has what is not settled; only an item that fails because it is ``LOST`` may have no record there. ``cut_out``
    leaves out what an item does not need of its record."""
    for some in failures:
        order = np.lexsort([some.column(name).to_numpy() for name in ("item", "offset", "partition")])
        named = _Ahead(some.take(pa.array(order)).to_pylist())
        for record in (each for batch in log.fetch(some) for each in records(batch)):
            place = record.partition, record.offset
            yield from (_lost_item(each) for each in named.before(place))
            for each in named.at(place):
                item = _item(record, each)
                if cut_out is not None and item.item:
                    item = replace(item, record=cut_out(record, outer_item(item.item)))
                yield item
        yield from (_lost_item(each) for each in named.rest())


class _Ahead:
    """Failures in order, each taken once."""

    def __init__(self, failures: list[_Failure]) -> None:
        self._failures = failures
        self._next = 0

    def before(self, place: _Place) -> Iterator[_Failure]:
        while self._next < len(self._failures) and _place(self._failures[self._next]) < place:
            yield self._take()

    def at(self, place: _Place) -> Iterator[_Failure]:
        while self._next < len(self._failures) and _place(self._failures[self._next]) == place:
            yield self._take()

    def rest(self) -> Iterator[_Failure]:
        while self._next < len(self._failures):
            yield self._take()

    def _take(self) -> _Failure:
        self._next += 1
        return self._failures[self._next - 1]


def _place(failure: _Failure) -> _Place:
    return failure["partition"], failure["offset"]


def _item(record: Record, failure: _Failure) -> FailedItem:
    return FailedItem(record, *(failure[name] for name in ("item", "step", "code", "message")))


def _lost_item(failure: _Failure) -> FailedItem:
    """An item of which only the pointer is left. It refuses one that failed for another reason: its record must be
    there, and must not vanish."""
    check_count(failure["step"], 1, int(failure["code"] == LOST))
    partition, offset = _place(failure)
    return _item(Record(None, op=Op.NOOP, timestamp=EPOCH, partition=partition, offset=offset), failure)
