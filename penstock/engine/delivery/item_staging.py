"""Stages single items of committed batches again: their records come from the log, and go through all steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from penstock.engine.delivery.task import REPLAY_LABEL, TaskRun
from penstock.engine.delivery.task_report import BatchReport, add_up
from penstock.engine.delivery.wanted_items import WantedItems
from penstock.engine.failed.failed_items import LOST
from penstock.engine.route_plan import RoutePlan, links
from penstock.engine.stateful.leaving_items import LeavingItems
from penstock.engine.stateful.noted_places import noted_items, without_made
from penstock.holding.item import ITEM, MADE
from penstock.log.local_log import LocalLog
from penstock.outcome import failures_of
from penstock.steps.chain import Chain, ChainOutcome, labelled


def stage_items(plan: RoutePlan, log: LocalLog, places: pa.RecordBatch) -> BatchReport:
    """Stage these items. What a holding step had kept back it has let go, so it is passed by. An item that the steps no
    longer make, or whose record is gone, fails with ``LOST``. Not for routes with a step in Spark.

    They may be items as they came to the destination, or as the holding step has released them, of a batch that was set
    aside: what the steps behind it make of those is counted as in any batch."""
    release = _Released(plan, places)
    wanted = WantedItems(release.places)
    head = plan.head_chain()
    rest = Chain(links(plan.rest[1:]) if plan.holding is not None else [])
    with TaskRun(plan, rest, None) as run:
        run.leaving = release.items
        parts = run.stage(_outcomes(run, head, rest, log, wanted, release))
        for missing, message in (
            (wanted.not_taken(), "the steps no longer make this item of its record"),
            (wanted.not_fetched(), "the log no longer has the record"),
        ):
            if missing.num_rows:
                run.failed.add(labelled(failures_of(missing, LOST, message), REPLAY_LABEL))
    return add_up([run.report(parts)])


class _Released:
    """What the holding step has let go, of what is staged once more."""

    def __init__(self, plan: RoutePlan, places: pa.RecordBatch) -> None:
        self._step = plan.holding_step() if plan.holding is not None else None
        self._leaving = plan.leaving
        kind = ITEM if self._step is None else self._step.released_type
        self.items = noted_items(places, kind)
        self._found = LeavingItems(self.items)
        self.places = without_made(places, kind)

    def made(self) -> pa.RecordBatch | None:
        """The rows that the step has made."""
        items = self.items[(self.items["bits"] & MADE) != 0]
        return None if self._step is None or len(items) == 0 else self._step.make(items, self._leaving)

    def rows(self, kept: pa.RecordBatch) -> pa.RecordBatch:
        """As that step lets go of rows."""
        return kept if self._step is None else self._step.release(kept, self._found.of(kept), self._leaving)


def _outcomes(
    run: TaskRun, head: Chain, rest: Chain, log: LocalLog, wanted: WantedItems, release: _Released
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    made = release.made()
    if made is not None:
        yield from run.run_chain(made)
    for records in log.fetch(wanted.places):
        for read, outcome in head.runs(records):
            yield from _go_on(run, rest, wanted, read, replace(outcome, kept=release.rows(outcome.kept)))
        wanted.note_fetched(records)


def _go_on(
    run: TaskRun, rest: Chain, wanted: WantedItems, read: pa.RecordBatch, outcome: ChainOutcome
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    for failures in map(wanted.take, outcome.failures):
        if failures.num_rows:
            run.fail(failures)
    # These are the wanted items themselves: whatever becomes of them counts.
    yield from run.run_chain(wanted.take(outcome.kept), read)
    # Of these the wanted items are made, and perhaps others, which count elsewhere.
    for _, made in rest.runs(wanted.leave(outcome.kept)) if rest.links else ():
        for failures in map(wanted.take, made.failures):
            if failures.num_rows:
                run.fail(failures)
        yield read, wanted.take(made.kept)
        run.note.mark_progress()
