"""Finds the records of a batch that end the process which runs them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from penstock.engine import events
from penstock.engine.delivery.batch_pieces import Ranges, halves
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.delivery.refusals import first_record_in
from penstock.engine.lost_workers.deadly_records import DeadlyRecord
from penstock.engine.lost_workers.lost_worker import WorkerLost
from penstock.log.local_log import LocalLog
from penstock.log.record_order import LogOrder


def find_deadly_records(
    route: str, log: LocalLog, ranges: Ranges, attempt: Callable[[Ranges], object], stopping: Event
) -> list[DeadlyRecord]:
    """Runs the ranges, then their halves, where a crash harms nobody. ``attempt`` raises ``WorkerLost``; on a single
    record that says that it is deadly. Raises ``Stopped``."""
    todo: list[Ranges] = [ranges]
    found: list[DeadlyRecord] = []
    while todo:
        if stopping.is_set():
            raise Stopped
        part = todo.pop()
        records = sum(log.reader(partition).measure(*stretch)[0] for partition, stretch in part.items())
        if records == 0:
            continue
        if records == 1:
            # The offsets around it are gone from the log.
            partition, offset = first_record_in(log, part)
            part = {partition: (offset, offset + 1)}
        try:
            attempt(part)
        except WorkerLost as lost:
            if records == 1:
                events.deadly_record_failed(route, part, str(lost))
                found.append(DeadlyRecord(partition, offset, lost.step, lost.code, lost.what))
            else:
                events.lost_range_split(route, part, str(lost))
                todo.extend(reversed(halves(part, records, LogOrder(log))))
    return found
