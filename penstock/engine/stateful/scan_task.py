"""What a task does where the log is read: runs the steps before the holding step, and scans what they let through."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.component import namespace_pattern
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.task import TaskRun, write_task_report
from penstock.engine.delivery.task_report import BatchReport, add_up
from penstock.engine.lost_workers.deadly_records import DeadlyRecord
from penstock.engine.route_plan import RoutePlan
from penstock.engine.route_sources import control_source, replay_source
from penstock.engine.stateful.control_records import control_items
from penstock.engine.stateful.shards import BYPASS, pack
from penstock.holding.item import ITEM, Items
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.log.record_order import RangeOrder
from penstock.outcome import PLACE_COLUMNS
from penstock.record import int64_values
from penstock.steps.chain import matching_namespaces
from penstock.steps.current_step import enter_step


def run_scan(
    plan: RoutePlan, log: LocalLog, batches: Iterable[pa.RecordBatch], stretch: Stretch, source: str
) -> Iterator[pa.RecordBatch]:
    """Yields what the holding step needs to decide, by shard; the report goes into the stage folder. ``source`` is
    whose records the stretch has: replayed ones were released once, so they go on at once."""
    with TaskRun(plan, plan.head_chain(), stretch) as run:
        items = _scan(plan, log, batches, stretch, source, run)
    yield pack(items)
    write_task_report(plan, f"scan-{stretch.partition}-{stretch.start}-{stretch.end}", run.report())


def try_scan(plan: RoutePlan, log: LocalLog, ranges: Ranges) -> BatchReport:
    """Scan ranges and report nothing, to see whether it can be done."""
    owners = log.partitions()
    for partition, (start, end) in ranges.items():
        stretch = Stretch(partition, start, end)
        with TaskRun(plan, plan.head_chain(), stretch) as run:
            _scan(plan, log, log.read(partition, start, end), stretch, owners[partition].source, run)
    return add_up([])


def _scan(
    plan: RoutePlan, log: LocalLog, batches: Iterable[pa.RecordBatch], stretch: Stretch, source: str, run: TaskRun
) -> Items:
    assert plan.holding is not None
    step, label = plan.holding_step(), plan.holding.label
    namespaces = namespace_pattern(plan.holding.config.namespace) if plan.holding.config.namespace else None
    found: list[Items] = [np.empty(0, ITEM)]
    if source == control_source(plan.name):
        found.extend(control_items(batch) for batch in batches)
        return np.concatenate(found)
    replayed = source == replay_source(plan.name)
    order = RangeOrder(log, {stretch.partition: (stretch.start, stretch.end)})
    deadly = {record.offset: record for record in plan.deadly_records if record.partition == stretch.partition}
    for _, kept in run.outcomes(_without(deadly, batches, run), None):
        run.given[label] += kept.num_rows
        if kept.num_rows:
            items = _items(kept, order)
            enter_step(label)
            scan = step.scan(kept, plan.key_secret)
            items["high"], items["low"], items["bits"] = scan.high, scan.low, scan.bits
            goes_on = ~scan.keyed | replayed | ~_is_meant(kept, namespaces)
            items["bits"][goes_on] |= BYPASS
            found.append(items)
    return np.concatenate(found)


def _without(
    deadly: Mapping[int, DeadlyRecord], batches: Iterable[pa.RecordBatch], run: TaskRun
) -> Iterator[pa.RecordBatch]:
    """The batches without the deadly records, which fail."""
    if not deadly:
        yield from batches
        return
    offsets = pa.array(deadly, pa.int64())
    for batch in batches:
        is_deadly = pc.is_in(batch.column("offset"), value_set=offsets)
        for row in np.flatnonzero(is_deadly):
            alone = batch.slice(row, 1)
            run.fail_unprocessed(alone, deadly[alone.column("offset")[0].as_py()].lost)
        yield batch.filter(pc.invert(is_deadly))


def _items(rows: pa.RecordBatch, order: RangeOrder) -> Items:
    items = np.zeros(rows.num_rows, ITEM)
    for name in PLACE_COLUMNS:
        items[name] = rows.column(name).to_numpy()
    items["time"] = int64_values(rows.column("timestamp"))
    items["order"] = order.stamps(items["partition"], items["offset"])
    return items


def _is_meant(rows: pa.RecordBatch, namespaces: re.Pattern[str] | None) -> np.ndarray:
    meant = None if namespaces is None else matching_namespaces(rows, namespaces)
    return np.ones(rows.num_rows, np.bool_) if meant is None else meant.to_numpy(zero_copy_only=False)
