"""What the rows of every route must be, worked out slowly from what the log holds, in its order."""

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


def expect(in_order: Sequence[Logged], events: Mapping[str, Event]) -> Expected:
    everything = {each.event_id for each in in_order}
    first: dict[str, str] = {}
    last_close: dict[str, int] = {}
    for place, each in enumerate(in_order):
        event = events[each.event_id]
        first.setdefault(event.key, each.event_id)
        if event.closes:
            last_close[event.order] = place
    waiting = [each for place, each in enumerate(in_order) if place > last_close.get(events[each.event_id].order, -1)]
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
