"""What a task does where the log is read: runs the steps before the holding step, and scans what they let through."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.component import namespace_pattern
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.task import TaskRun, write_task_report
from penstock.engine.delivery.task_report import BatchReport, add_up
from penstock.engine.failed.failed_items import LOST
from penstock.engine.lost_workers.deadly_records import DeadlyRecord
from penstock.engine.route_plan import RoutePlan
from penstock.engine.route_sources import control_source, replay_source
from penstock.engine.stateful.control_records import control_items
from penstock.engine.stateful.shards import BYPASS, pack
from penstock.holding.item_columns import Column, ItemColumns
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.log.record_order import RangeOrder
from penstock.outcome import PLACE_COLUMNS, failures_of, place_key
from penstock.record import int64_values
from penstock.steps.chain import matching_namespaces
from penstock.steps.contract import Scan, ScannedParts
from penstock.steps.current_step import enter_step
from penstock.steps.replayed_items import ReplayedItems


def run_scan(
    plan: RoutePlan, log: LocalLog, batches: Iterable[pa.RecordBatch], stretch: Stretch, source: str
) -> Iterator[pa.RecordBatch]:
    """Yields what the holding step needs to decide, by shard; the report goes into the stage folder. ``source`` is
    whose records the stretch has: replayed ones were released once, so they go on at once."""
    with TaskRun(plan, plan.head_chain(), stretch) as run:
        found = _scan(plan, log, batches, stretch, source, run)
    yield pack(found, plan.holding_step().item_type)
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
) -> list[ItemColumns]:
    assert plan.holding is not None
    step, label = plan.holding_step(), plan.holding.label
    namespaces = namespace_pattern(plan.holding.config.namespace) if plan.holding.config.namespace else None
    found: list[ItemColumns] = []
    if source == control_source(plan.name):
        found.extend(ItemColumns.of_rows(control_items(batch, step)) for batch in batches)
        return found
    replayed = source == replay_source(plan.name)
    order = RangeOrder(log, {stretch.partition: (stretch.start, stretch.end)})
    deadly = {record.offset: record for record in plan.deadly_records if record.partition == stretch.partition}
    for _, kept in run.outcomes(_without(deadly, batches, run), None):
        meant = is_meant(kept, namespaces)
        if not meant.all():
            others = kept.filter(pa.array(~meant))
            found.append(_whole_rows(others, order, step.item_type))
            run.given[label] += others.num_rows
            kept = kept.filter(pa.array(meant))
        if kept.num_rows:
            enter_step(label)
            scan = step.scan(kept, plan.key_secret)
            items = scanned_items(kept, order, scan, step.item_type)
            items["bits"] = np.where(~scan.keyed | replayed, items["bits"] | BYPASS, items["bits"])
            parts = scan.parts
            if parts is not None and (named := ReplayedItems.of(kept)) is not None:
                items, parts = _leave_out_neighbours(named, kept, items, parts)
            run.count_scanned(label, kept.num_rows, len(items), parts)
            found.append(items)
    return found


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


def scanned_items(rows: pa.RecordBatch, order: RangeOrder, scan: Scan, kind: np.dtype[np.void]) -> ItemColumns:
    """What a scan has found in rows of the log, as items."""
    columns = _columns_of_rows(rows, order)
    if scan.parts is not None:
        columns = {name: column[scan.parts.rows] for name, column in columns.items()}
        columns["item"] = scan.parts.numbers
    return ItemColumns(kind, {**columns, "high": scan.high, "low": scan.low, "bits": scan.bits, **scan.more})


def _leave_out_neighbours(
    replayed: ReplayedItems, rows: pa.RecordBatch, items: ItemColumns, parts: ScannedParts
) -> tuple[ItemColumns, ScannedParts]:
    """Of rows of which a single part is replayed, that part. It fails if it is not there any more."""
    places = place_key(rows).to_numpy()
    meant = replayed.among(places[parts.rows], items["item"])
    gone = ~np.isin(places, places[parts.rows[meant]]) & ~np.isin(places, place_key(parts.failures).to_numpy())
    lost = failures_of(replayed.as_wanted(rows.filter(pa.array(gone))), LOST, "the record no longer has this part")
    failures = pa.concat_batches([parts.failures, lost])
    return items.take(meant), replace(parts, rows=parts.rows[meant], skipped=0, failures=failures)


def _whole_rows(rows: pa.RecordBatch, order: RangeOrder, kind: np.dtype[np.void]) -> ItemColumns:
    """Rows as items that go on whatever the state says."""
    items = ItemColumns.zeros(kind, rows.num_rows)
    for name, column in _columns_of_rows(rows, order).items():
        items[name] = column
    items["bits"] = BYPASS
    return items


def _columns_of_rows(rows: pa.RecordBatch, order: RangeOrder) -> dict[str, Column]:
    """What an item has of the record that it is."""
    columns = {name: rows.column(name).to_numpy() for name in PLACE_COLUMNS}
    columns["time"] = int64_values(rows.column("timestamp"))
    columns["order"] = order.stamps(columns["partition"], columns["offset"])
    return columns


def is_meant(rows: pa.RecordBatch, namespaces: re.Pattern[str] | None) -> np.ndarray:
    """Which rows a step is for that takes these namespaces."""
    meant = None if namespaces is None else matching_namespaces(rows, namespaces)
    return np.ones(rows.num_rows, np.bool_) if meant is None else meant.to_numpy(zero_copy_only=False)
