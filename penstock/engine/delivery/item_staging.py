"""Stages single items of committed batches again: their records come from the log, and go through all steps."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.engine.delivery.task import REPLAY_LABEL, TaskRun
from penstock.engine.delivery.task_report import BatchReport, add_up
from penstock.engine.delivery.wanted_items import WantedItems
from penstock.engine.failed.failed_items import LOST
from penstock.engine.route_plan import RoutePlan, links
from penstock.log.local_log import LocalLog
from penstock.outcome import failures_of
from penstock.steps.chain import Chain, labelled


def stage_items(plan: RoutePlan, log: LocalLog, places: pa.RecordBatch) -> BatchReport:
    """Stage these items. What a holding step had kept back it has let go, so it is passed by. An item that the steps no
    longer make, or whose record is gone, fails with ``LOST``. Not for routes with a step in Spark."""
    wanted = WantedItems(places)
    steps = [step for step in plan.steps if step is not plan.holding]
    head = plan.head_chain()
    chain = Chain(links(steps), head.pattern, head.only_keys)
    with TaskRun(plan, chain, None) as run:
        parts = run.stage(_outcomes(run, chain, log, wanted))
        for missing, message in (
            (wanted.not_taken(), "the steps no longer make this item of its record"),
            (wanted.not_fetched(), "the log no longer has the record"),
        ):
            if missing.num_rows:
                run.failed.add(labelled(failures_of(missing, LOST, message), REPLAY_LABEL))
    return add_up([run.report(parts)])


def _outcomes(
    run: TaskRun, chain: Chain, log: LocalLog, wanted: WantedItems
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    for records in log.fetch(wanted.places):
        for read, outcome in chain.runs(records):
            for failures in map(wanted.take, outcome.failures):
                if failures.num_rows:
                    run.failed.add(failures)
            yield read, wanted.take(outcome.kept)
            run.note.mark_progress()
        wanted.note_fetched(records)
