"""What a task does with what a shard has released: fetches it from the log, runs the steps, and stages it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from penstock.engine.delivery.task import TaskRun
from penstock.engine.delivery.task_report import TaskReport
from penstock.engine.failed.failed_items import LOST
from penstock.engine.route_plan import RoutePlan, links
from penstock.engine.stateful.shard_decision import ShardReport
from penstock.engine.stateful.shards import unpack
from penstock.holding.item import Items
from penstock.log.fetch import POINTER_SCHEMA
from penstock.log.local_log import LocalLog
from penstock.outcome import PLACE_COLUMNS, PLACES_PER_PARTITION, failures_of, place_key
from penstock.record import int64_values
from penstock.steps.chain import Chain, labelled

GOES_ON = "what goes on"
"""Under this label the shards count what they release, and the tasks that read it what they were given."""
ROWS_AT_A_TIME = 32
"""Of released items, so that memory stays bounded."""


def run_release(plan: RoutePlan, log: LocalLog, decided: Iterable[pa.RecordBatch]) -> TaskReport:
    """Stage what the shards of a task have released, and report what they have decided."""
    assert plan.holding is not None
    release = _Release(plan, log)
    with TaskRun(plan, Chain(links(plan.rest[1:])), None) as run:
        parts = run.stage(release.outcomes(run, decided))
    return release.report(run.report(parts))


class _Release:
    def __init__(self, plan: RoutePlan, log: LocalLog) -> None:
        assert plan.holding is not None
        self._label = plan.holding.label
        self._log = log
        self._head = plan.head_chain()
        self._shards: list[ShardReport] = []
        self._released = 0

    def outcomes(
        self, run: TaskRun, decided: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        waiting: list[bytes] = []
        for batch in decided:
            for row in batch.to_pylist():
                if row["report"] is not None:
                    self._shards.append(ShardReport.from_json(row["report"]))
                else:
                    waiting.append(row["items"])
                if len(waiting) == ROWS_AT_A_TIME:
                    yield from self._go_on(run, unpack(waiting))
                    waiting.clear()
        yield from self._go_on(run, unpack(waiting))

    def report(self, report: TaskReport) -> TaskReport:
        shards, label = self._shards, self._label
        holds: dict[int, int] = {}
        for partition, offset in (place for shard in shards for place in shard.holds):
            holds[partition] = min(offset, holds.get(partition, offset))
        skipped = dict(report.skipped)
        if dropped := sum(shard.skipped for shard in shards):
            skipped[label] = dropped
        return TaskReport(
            report.items, report.staged, skipped, report.parts, report.failed, added=report.added,
            returned={label: sum(shard.given for shard in shards), GOES_ON: self._released},
            given={GOES_ON: sum(shard.passed + shard.let_go for shard in shards)},
            waiting=sum(shard.held - shard.let_go for shard in shards),
            waiting_in_all=sum(shard.waiting for shard in shards),
            holds=holds, shards=len(shards),
        )  # fmt: skip

    def _go_on(self, run: TaskRun, items: Items) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        self._released += len(items)
        wanted = _Wanted(items)
        for records in self._log.fetch(wanted.pointers):
            for read, outcome in self._head.runs(records):
                rows = wanted.take(outcome.kept)
                yield from run.run_chain(rows, read)
            wanted.note_fetched(records)
        self._fail(run, wanted.not_taken(), "the steps before it no longer let the record through")
        self._fail(run, wanted.not_fetched(), "the log no longer has the record")

    def _fail(self, run: TaskRun, items: Items, message: str) -> None:
        if len(items):
            columns = [pa.array(np.ascontiguousarray(items[name])) for name in PLACE_COLUMNS]
            places = pa.RecordBatch.from_arrays(columns, PLACE_COLUMNS)
            run.failed.add(labelled(failures_of(places, LOST, message), self._label))


class _Wanted:
    """The items of a release, and which of them were found."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._places = items["partition"].astype(np.int64) * PLACES_PER_PARTITION + items["offset"]
        self._records, numbers = np.unique(self._places, return_inverse=True)
        self._numbers, in_records = np.unique(items["item"], return_inverse=True)
        codes = numbers * len(self._numbers) + in_records
        self._order = np.argsort(codes)
        self._codes = codes[self._order]
        self._taken = np.zeros(len(items), np.bool_)
        self._fetched = np.zeros(len(items), np.bool_)

    @property
    def pointers(self) -> pa.RecordBatch:
        columns = [pa.array(np.ascontiguousarray(self._items[name])) for name in POINTER_SCHEMA.names]
        return pa.RecordBatch.from_arrays(columns, schema=POINTER_SCHEMA)

    def take(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are wanted."""
        if rows.num_rows == 0:
            return rows
        records, known = _find(self._records, place_key(rows).to_numpy())
        in_records, numbered = _find(self._numbers, int64_values(rows.column("item")))
        places, found = _find(self._codes, records * len(self._numbers) + in_records)
        wanted = known & numbered & found
        self._taken[self._order[places[wanted]]] = True
        return rows if wanted.all() else rows.filter(pa.array(wanted))

    def note_fetched(self, records: pa.RecordBatch) -> None:
        self._fetched |= _find(place_key(records).to_numpy(), self._places)[1]

    def not_taken(self) -> Items:
        """The items whose records were there without them."""
        return self._items[self._fetched & ~self._taken]

    def not_fetched(self) -> Items:
        """The items whose records were not there."""
        return self._items[~self._fetched]


def _find(ascending: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place of each value, and whether it is there."""
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return places, ascending[places] == values
