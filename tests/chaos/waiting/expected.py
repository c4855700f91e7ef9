"""What the rows of every route must be, worked out slowly from what the log holds, in its order.

An append that was cut off before its answer, and is found whole when its partition is opened again, comes late: others
that are newer by the order may have been read before it. So where the ledger tells, a route's own order is by its
batches, and by the log's order in each. What was acknowledged comes in the log's order all the same: see ``promises``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from penstock.log.record_order import RangeOrder
from tests.chaos.project import ROUTE
from tests.chaos.scene import EVENT_ID, Scene
from tests.chaos.waiting.project import ORDERS, TIMED, UNIQUE
from tests.chaos.waiting.shopper import Event


@dataclass(frozen=True, order=True)
class Logged:
    """An event in the log; sorted, they are in the log's order."""

    stamp: int
    partition: int
    offset: int
    event_id: str


@dataclass(frozen=True)
class Expected:
    in_order: Sequence[Logged]
    rows: Mapping[str, set[str]]
    """Per route the events that it must have, each once."""
    waiting: Sequence[Logged]
    """What orders that are open keep back."""

    @property
    def holds(self) -> Mapping[int, int]:
        """By partition, where the log's order has the oldest event that waits, or what comes next there."""
        found: dict[int, int] = {}
        for each in self.in_order if self.waiting else ():
            if each >= self.waiting[0]:
                found.setdefault(each.partition, each.offset)
        return found


def expect(
    in_order: Sequence[Logged], events: Mapping[str, Event], as_read: Mapping[str, Sequence[Logged]] | None = None
) -> Expected:
    """``as_read``: per route the order in which it has read them, if that is known."""
    everything = {each.event_id for each in in_order}
    orders = as_read or {}
    first: dict[str, str] = {}
    for each in orders.get(UNIQUE, in_order):
        first.setdefault(events[each.event_id].key, each.event_id)
    last_close: dict[str, int] = {}
    gathered = orders.get(ORDERS, in_order)
    for place, each in enumerate(gathered):
        if events[each.event_id].closes:
            last_close[events[each.event_id].order] = place
    waiting = sorted(
        each for place, each in enumerate(gathered) if place > last_close.get(events[each.event_id].order, -1)
    )
    together = everything - {each.event_id for each in waiting}
    rows = {ROUTE: everything, UNIQUE: set(first.values()), ORDERS: together, TIMED: everything}
    return Expected(in_order, rows, waiting)


def read_log(scene: Scene) -> list[Logged]:
    """All events of the source, in the order of the log."""
    found: list[Logged] = []
    with scene.opened() as pipeline:
        log = pipeline.log
        for partition in log.partitions(["web"]):
            order = RangeOrder(log, {partition: (0, log.bounds(partition).end)})
            for batch in log.read(partition, 0):
                offsets = batch.column("offset").to_numpy()
                stamps = order.stamps(np.full(len(offsets), partition), offsets)
                ids = pc.struct_field(pc.extract_regex(batch.column("data").cast("utf8"), EVENT_ID), "id")
                found += map(Logged, stamps.tolist(), [partition] * len(offsets), offsets.tolist(), ids.to_pylist())
    return sorted(found)


def read_as(scene: Scene, route: str, in_order: Sequence[Logged]) -> list[Logged]:
    """In the order in which a route has read them that was never moved back."""
    batch_of: dict[tuple[int, int], int] = {}
    with scene.opened() as pipeline:
        for batch in pipeline.ledger.batches(route, last=10**6):
            for partition, (start, end) in batch.ranges.items():
                batch_of.update(dict.fromkeys(((partition, offset) for offset in range(start, end)), batch.number))
    return sorted(in_order, key=lambda each: (batch_of[each.partition, each.offset], each))
