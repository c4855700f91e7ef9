"""What a task does with what a shard has released: fetches it from the log, runs the steps, and stages it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.engine.delivery.task import TaskRun
from penstock.engine.delivery.task_report import TaskReport
from penstock.engine.delivery.wanted_items import WantedItems
from penstock.engine.failed.failed_items import LOST
from penstock.engine.route_plan import RoutePlan, links
from penstock.engine.stateful.leaving_items import LeavingItems
from penstock.engine.stateful.noted_places import places_of
from penstock.engine.stateful.shard_decision import ShardReport
from penstock.holding.decision import join_levels
from penstock.holding.item import ITEM, MADE, Items
from penstock.holding.packed_rows import unpack_rows
from penstock.log.local_log import LocalLog
from penstock.outcome import failures_of
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
        self._step = plan.holding_step()
        self._leaving = plan.leaving
        self._log = log
        self._head = plan.head_chain()
        self._shards: list[ShardReport] = []
        self._released = 0

    def outcomes(
        self, run: TaskRun, decided: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        for items in self._read(decided):
            yield from self._go_on(run, items)

    def set_aside(self, run: TaskRun, decided: Iterable[pa.RecordBatch]) -> list[Part]:
        """Stage nothing: only write down what would go on."""
        for items in self._read(decided):
            run.leaving = items if self._step.released_type != ITEM else None
            run.note_places(places_of(items))
        return []

    def _read(self, decided: Iterable[pa.RecordBatch]) -> Iterator[Items]:
        """Keeps the reports of the shards, and yields what they release."""
        released: list[bytes] = []
        for batch in decided:
            for row in batch.to_pylist():
                if row["report"] is not None:
                    self._shards.append(ShardReport.from_json(row["report"]))
                else:
                    released.append(row["items"])
                if len(released) == ROWS_AT_A_TIME:
                    yield self._unpack(released)
                    released.clear()
        if released:
            yield self._unpack(released)

    def _unpack(self, blobs: Sequence[bytes]) -> Items:
        items = unpack_rows(blobs, self._step.released_type)
        self._released += len(items)
        return items

    def report(self, report: TaskReport) -> TaskReport:
        shards, label = self._shards, self._label
        holds: dict[int, int] = {}
        for partition, offset in (place for shard in shards for place in shard.holds):
            holds[partition] = min(offset, holds.get(partition, offset))
        skipped, added = Counter(report.skipped), Counter(report.added)
        for shard in shards:
            skipped.update({f"{label}/{reason}": count for reason, count in shard.reasons.items()})
            skipped[label] += shard.skipped + shard.dropped - sum(shard.reasons.values())
            added[label] += shard.made
        return TaskReport(
            report.items, report.staged, dict(+skipped), report.parts, report.failed, added=dict(+added),
            returned={label: sum(shard.given for shard in shards), GOES_ON: self._released},
            given={GOES_ON: sum(shard.passed + shard.let_go + shard.made for shard in shards)},
            waiting=sum(shard.held - shard.let_go - shard.dropped for shard in shards),
            waiting_in_all=sum(shard.waiting for shard in shards),
            holds=holds, shards=len(shards), places=report.places, digest=report.digest,
            counts=_sums([shard.counts for shard in shards]), levels=join_levels(shard.levels for shard in shards),
            noted=report.noted,
        )  # fmt: skip

    def _go_on(self, run: TaskRun, items: Items) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        if self._step.released_type == ITEM:
            yield from self._fetch(run, items, lambda rows: rows)
            return
        made = (items["bits"] & MADE) != 0
        leaving = LeavingItems(items[~made])

        def release(rows: pa.RecordBatch) -> pa.RecordBatch:
            run.leaving = leaving.of(rows)
            return self._step.release(rows, run.leaving, self._leaving)

        yield from self._fetch(run, leaving.items, release)
        if made.any():
            run.leaving = items[made]
            yield from run.run_chain(self._step.make(run.leaving, self._leaving))

    def _fetch(
        self, run: TaskRun, items: Items, release: Callable[[pa.RecordBatch], pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        wanted = WantedItems(places_of(items))
        for records in self._log.fetch(wanted.places):
            for read, outcome in self._head.runs(records):
                yield from run.run_chain(wanted.take(release(outcome.kept)), read)
            wanted.note_fetched(records)
        self._fail(run, wanted.not_taken(), "the steps before it no longer let the record through")
        self._fail(run, wanted.not_fetched(), "the log no longer has the record")

    def _fail(self, run: TaskRun, places: pa.RecordBatch, message: str) -> None:
        if places.num_rows:
            run.failed.add(labelled(failures_of(places, LOST, message), self._label))


def _sums(numbers: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """By name."""
    names = {name for each in numbers for name in each}
    return {name: sum(each.get(name, 0) for each in numbers) for name in sorted(names)}
