"""What a task of a backtest reads: the spans of a stretch of the log, scanned by each set of policies, in batches.

A live route decides on what has come since its last batch. Here a batch is what came in one interval of the clock, as
long as the route waits from one batch to the next: so a batch has about the spans that it had, wherever the log is cut
into tasks. What a route had to catch up with came in larger batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.component import namespace_pattern
from penstock.engine.backtest.policy_sets import ComparedSets
from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.scan_task import is_meant, scanned_items
from penstock.engine.stateful.shards import SHARDS, shard_numbers
from penstock.holding.item import Items
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.log.record_order import RangeOrder
from penstock.otlp.span_columns import span_table
from penstock.otlp.span_table import Needs
from penstock.otlp.trace_requests import TraceRequests
from penstock.sampling.span_item import LOG
from penstock.steps.sample.scan_spans import are_traces
from penstock.steps.sample.step import Sample

SERVICE = "service.name"

ARRIVAL_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("policy_set", pa.int32(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("services", pa.list_(pa.string()), nullable=False),
        pa.field("items", pa.binary(), nullable=False),
    ]
)
"""Spans of a batch for a shard, or some of them: rows of ``SPAN_ITEM``, whose ``bits`` are the place of the span's
service in ``services``."""


@dataclass(frozen=True)
class Reading:
    """What is read, and how. Travels to tasks."""

    plan: RoutePlan
    log: LocalLog
    sets: ComparedSets
    batch_us: int
    """How long a batch lasts (µs)."""


def read_arrivals(reading: Reading, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """The spans of a stretch that the route's step is given. What fails, or is no span, is left out: no policy has a
    say in it."""
    steps, chain = reading.sets.build_steps(), reading.plan.head_chain()
    order = RangeOrder(reading.log, {stretch.partition: (stretch.start, stretch.end)})
    for batch in reading.log.read(stretch.partition, stretch.start, stretch.end):
        for _, outcome in chain.runs(batch):
            for number, step in enumerate(steps):
                items, services = _scan(step, outcome.kept, order, reading.plan.key_secret)
                yield from _rows(number, items, services, reading.batch_us)


def _scan(step: Sample, rows: pa.RecordBatch, order: RangeOrder, secret: bytes) -> tuple[Items, pa.StringArray]:
    """The spans that a step finds, and the service of each."""
    namespace = step.config.namespace
    if namespace is not None:
        rows = rows.filter(pa.array(is_meant(rows, namespace_pattern(namespace))))
    scan = step.scan(rows, secret)
    items = scanned_items(rows, order, scan, step.item_type).take(scan.keyed)
    return items.take((items["mask"] & LOG) == 0).to_rows(), service_names(rows)


def service_names(rows: pa.RecordBatch) -> pa.StringArray:
    """The service of every span that a scan finds in these rows, in its order; null if it has no name."""
    found = TraceRequests.of(rows.filter(pa.array(are_traces(rows))))
    table = span_table(found.buffer, found.scanned, Needs(resource_attributes=frozenset([SERVICE])))
    return table.resource_attributes[SERVICE].texts.filter(pa.array(found.scanned.spans.well_named))


def _rows(number: int, items: Items, services: pa.StringArray, batch_us: int) -> Iterator[pa.RecordBatch]:
    coded = pc.dictionary_encode(services, null_encoding="encode")
    items["bits"] = coded.indices.to_numpy()
    batches, shards = items["time"] // batch_us, items["high"] % np.uint64(SHARDS)
    by_row = np.lexsort((batches, shards))
    items, batches, shards = items[by_row], batches[by_row], shards[by_row]
    new = (np.diff(batches) != 0) | (np.diff(shards) != 0)
    edges = [0, *(np.flatnonzero(new) + 1).tolist(), len(items)]
    firsts = edges[:-1] if len(items) else []
    if firsts:
        cut = [_with_own_services(items[a:b], coded.dictionary) for a, b in zip(firsts, edges[1:], strict=True)]
        numbers = np.array(shard_numbers(), np.int32)
        yield _arrivals(number, numbers[shards[firsts].astype(np.int64)], batches[firsts], cut)


def _with_own_services(items: Items, services: pa.StringArray) -> tuple[list[str | None], bytes]:
    """Items with the services that they name, and no others."""
    used, places = np.unique(items["bits"], return_inverse=True)
    items["bits"] = places
    return services.take(pa.array(used)).to_pylist(), items.tobytes()


def _arrivals(
    number: int, shards: np.ndarray, batches: np.ndarray, cut: Sequence[tuple[list[str | None], bytes]]
) -> pa.RecordBatch:
    columns = [
        pa.array(np.full(len(cut), number, np.int32)),
        pa.array(shards),
        pa.array(batches),
        pa.array([services for services, _ in cut], pa.list_(pa.string())),
        pa.array([items for _, items in cut], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARRIVAL_SCHEMA)
