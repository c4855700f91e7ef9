"""What a task does with what a shard has released: fetches it from the log, runs the steps, and stages it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.engine.delivery.task import TaskRun
from penstock.engine.delivery.task_report import TaskReport
from penstock.engine.delivery.wanted_items import WantedItems
from penstock.engine.failed.failed_items import LOST
from penstock.engine.route_plan import RoutePlan, links
from penstock.engine.stateful.shard_decision import ShardReport
from penstock.engine.stateful.shards import unpack
from penstock.holding.item import Items
from penstock.log.local_log import LocalLog
from penstock.outcome import PLACE_COLUMNS, PLACE_SCHEMA, failures_of
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
        if plan.set_aside_mark.exists():
            parts = release.set_aside(run, decided)
        else:
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
        for places in self._read(decided):
            yield from self._go_on(run, places)

    def set_aside(self, run: TaskRun, decided: Iterable[pa.RecordBatch]) -> list[Part]:
        """Stage nothing: only write down what would go on."""
        for places in self._read(decided):
            run.places.add(places)
        return []

    def _read(self, decided: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Keeps the reports of the shards, and yields the places of what they release."""
        released: list[bytes] = []
        for batch in decided:
            for row in batch.to_pylist():
                if row["report"] is not None:
                    self._shards.append(ShardReport.from_json(row["report"]))
                else:
                    released.append(row["items"])
                if len(released) == ROWS_AT_A_TIME:
                    yield from self._places(unpack(released))
                    released.clear()
        yield from self._places(unpack(released))

    def _places(self, items: Items) -> Iterator[pa.RecordBatch]:
        self._released += len(items)
        if len(items):
            columns = [pa.array(np.ascontiguousarray(items[name])) for name in PLACE_COLUMNS]
            batch = pa.RecordBatch.from_arrays(columns, PLACE_COLUMNS)
            yield batch.cast(PLACE_SCHEMA)

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
            holds=holds, shards=len(shards), places=report.places, digest=report.digest,
        )  # fmt: skip

    def _go_on(self, run: TaskRun, places: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        wanted = WantedItems(places)
        for records in self._log.fetch(wanted.places):
            for read, outcome in self._head.runs(records):
                rows = wanted.take(outcome.kept)
                yield from run.run_chain(rows, read)
            wanted.note_fetched(records)
        self._fail(run, wanted.not_taken(), "the steps before it no longer let the record through")
        self._fail(run, wanted.not_fetched(), "the log no longer has the record")

    def _fail(self, run: TaskRun, places: pa.RecordBatch, message: str) -> None:
        if places.num_rows:
            run.failed.add(labelled(failures_of(places, LOST, message), self._label))
