"""What a Spark task does: runs records through the steps, writes them to stage files and reports on them.

No Spark import: ``run_task`` takes the batches that a log reader or a shuffle yields, and returns a report.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Part
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.staged_digest import add_digests, digest_of_places
from penstock.engine.delivery.task_report import BatchReport, RowsOnDisk, TaskReport, add_up
from penstock.engine.failed.failed_items import LOST
from penstock.engine.lost_workers.lost_worker import WorkerLost
from penstock.engine.lost_workers.task_note import TaskNote
from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.noted_places import NOTED_PLACE_SCHEMA, note_items, with_notes
from penstock.holding.item import Items
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.log.record_ids import RecordIds
from penstock.outcome import PLACE_COLUMNS, failures_of
from penstock.record import RECORD_SCHEMA
from penstock.steps.chain import STEP_FAILURE_SCHEMA, Chain, check_sum, labelled
from penstock.steps.contract import FATE, Fate, ScannedParts
from penstock.steps.current_step import enter_step
from penstock.steps.replayed_items import ReplayedItems

STAGE_LABEL = "stage"
REPLAY_LABEL = "replay"
REPORT_SUFFIX = ".report"


def run_task(
    plan: RoutePlan,
    batches: Iterable[pa.RecordBatch],
    stretch: Stretch | None = None,
    chain: Chain | None = None,
    after: str | None = None,
) -> TaskReport:
    """Run the plan's first steps, or the given chain, over the batches, stage the result for the plan's destination,
    and report. The batches are a stretch of the log, or what the step ``after`` returned in Spark."""
    with TaskRun(plan, chain or plan.head_chain(), stretch) as run:
        parts = run.stage(run.outcomes(batches, after))
    return run.report(parts)


def run_steps(
    plan: RoutePlan,
    batches: Iterable[pa.RecordBatch],
    name: str,
    before: str,
    stretch: Stretch | None = None,
    chain: Chain | None = None,
    after: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same, but yields the records to the step ``before`` in Spark; the report goes into the stage folder under
    ``name``."""
    with TaskRun(plan, chain or plan.head_chain(), stretch) as run:
        for _, kept in run.outcomes(batches, after):
            run.given[before] += kept.num_rows
            run.note.suspend_limit()
            yield kept
    write_task_report(plan, name, run.report())


def write_task_report(plan: RoutePlan, name: str, report: TaskReport) -> None:
    """Leave a report in the stage folder. ``name`` names the task, so that a retried one replaces its own."""
    scratch = plan.stage_dir / f".{name}-{uuid.uuid4().hex}"
    scratch.write_text(report.to_json())
    scratch.replace(plan.stage_dir / f"{name}{REPORT_SUFFIX}")


class TaskRun:
    """Runs a chain over the batches of one task, and counts what becomes of every row."""

    def __init__(self, plan: RoutePlan, chain: Chain, stretch: Stretch | None) -> None:
        plan.stage_dir.mkdir(parents=True, exist_ok=True)
        self._plan = plan
        self._chain = chain
        self._stretch = stretch
        self._items = 0
        self._added: Counter[str] = Counter()
        self._returned: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.given: Counter[str] = Counter()
        self._staged = 0
        self._digest = 0
        self.note = TaskNote(plan.stage_dir, plan.step_timeout)
        self.failed = RowFile(plan.stage_dir, "failed", STEP_FAILURE_SCHEMA)
        self.places = RowFile(plan.stage_dir, "places", NOTED_PLACE_SCHEMA)
        """What is staged, on a route whose ranges do not tell."""
        self._noted = RowFile(plan.stage_dir, "noted", NOTED_PLACE_SCHEMA)
        self.leaving: Items | None = None
        """What the holding step has let go, of which rows are staged at the moment."""
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self.note)
        self._open.enter_context(self.failed)
        self._open.enter_context(self.places)
        self._open.enter_context(self._noted)
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def outcomes(
        self, batches: Iterable[pa.RecordBatch], after: str | None
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Each batch, or piece of one, as it was read, and the rows that the chain keeps of it."""
        read = batches if after is None else self._without_fates(after, batches)
        for batch in read:
            yield from self.run_chain(batch)

    def run_chain(
        self, rows: pa.RecordBatch, read: pa.RecordBatch | None = None
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """The same for one batch of ``rows``, whose records were ``read`` in another form before."""
        for batch, outcome in self._chain.runs(rows):
            original = batch if read is None else read
            self._items += batch.num_rows
            self.skipped.update(outcome.skipped)
            self._added.update(outcome.added)
            for failures in outcome.failures:
                self.fail(failures)
            yield original, outcome.kept
            self.note.mark_progress()

    def count_scanned(self, label: str, rows: int, items: int, parts: ScannedParts | None) -> None:
        """Count what a holding step has found in some rows."""
        self.given[label] += items
        if parts is None:
            return
        failed = parts.failures.num_rows
        if failed:
            self.failed.add(labelled(parts.failures, label))
        if parts.skipped:
            self.skipped[label] += parts.skipped
        self._added[label] += items + failed + parts.skipped - rows

    def fail_unprocessed(self, rows: pa.RecordBatch, lost: WorkerLost) -> None:
        """Count records that end the process which runs them, as failed."""
        self._items += rows.num_rows
        self.failed.add(lost_records(rows, lost))

    def stage(self, outcomes: Iterable[tuple[pa.RecordBatch, pa.RecordBatch]]) -> list[Part]:
        """Stage the rows of outcomes for the plan's destination."""
        stager = self._plan.destination().stager(self._plan.stage_dir, self._plan.casts)
        if self._plan.log_dir is not None:
            stager.identify(RecordIds(LocalLog(self._plan.log_dir)))
        for read, outcome in outcomes:
            enter_step(STAGE_LABEL)
            kept = self._fail_unmade_items(read, outcome)
            taken = stager.add(kept, read)
            check_sum(STAGE_LABEL, kept.num_rows, taken)
            self._staged += taken.kept.num_rows
            self._digest = add_digests(self._digest, digest_of_places(taken.kept))
            if self._plan.holding is not None and taken.kept.num_rows:
                self.note_places(taken.kept)
            if taken.skipped:
                self.skipped[STAGE_LABEL] += taken.skipped
            if taken.failures.num_rows:
                self.fail(labelled(taken.failures, STAGE_LABEL))
        return stager.finish()

    def fail(self, failures: pa.RecordBatch) -> None:
        """Take down what has failed, with what its holding step has said of it."""
        self.failed.add(failures)
        if self.leaving is not None:
            self._noted.add(note_items(failures, self.leaving))

    def note_places(self, rows: pa.RecordBatch) -> None:
        """Write down where these rows are, with what their holding step has said of them."""
        self.places.add(with_notes(rows, []) if self.leaving is None else note_items(rows, self.leaving))

    def _fail_unmade_items(self, read: pa.RecordBatch, kept: pa.RecordBatch) -> pa.RecordBatch:
        """What a replayed record became instead of the item that is replayed, because the steps have changed, must not
        be delivered: it may be there. Returns the other rows."""
        replayed = ReplayedItems.of(read)
        if replayed is None:
            return kept
        unmade = replayed.unmade(kept)
        if unmade.any():
            rows = replayed.as_wanted(kept.filter(pa.array(unmade)))
            failures = failures_of(rows, LOST, "the steps no longer make this item of its record")
            self.failed.add(labelled(failures, REPLAY_LABEL))
        return kept.filter(pa.array(~unmade))

    def report(self, parts: Sequence[Part] = ()) -> TaskReport:
        report = TaskReport(
            self._items, self._staged, dict(self.skipped), parts, self.failed.files,
            added=dict(self._added), given=dict(self.given), returned=dict(self._returned), places=self.places.files,
            noted=self._noted.files, digest=self._digest,
        )  # fmt: skip
        at = self._stretch
        return report if at is None else replace(report, partition=at.partition, start=at.start, end=at.end)

    def _without_fates(self, step: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that a step in Spark lets go on."""
        for batch in batches:
            fates = batch.column(FATE)
            added = pc.sum(pc.equal(fates, Fate.ADDED.value)).as_py() or 0
            kept = batch.filter(pc.fill_null(pc.not_equal(fates, Fate.SKIPPED.value), True))
            self._returned[step] += batch.num_rows - added
            if added:
                self._added[step] += added
            if skipped := batch.num_rows - kept.num_rows:
                self.skipped[step] += skipped
            yield kept.select(RECORD_SCHEMA.names)


def stage_ranges(plan: RoutePlan, log: LocalLog, ranges: Ranges) -> BatchReport:
    """Run the tasks of some ranges in this process, without Spark. For routes of Arrow steps alone."""
    return add_up(
        run_task(plan, log.read(partition, start, end), Stretch(partition, start, end))
        for partition, (start, end) in ranges.items()
    )


def fail_ranges(plan: RoutePlan, log: LocalLog, ranges: Ranges, lost: WorkerLost) -> BatchReport:
    """Report all records of ranges as failed, because they end the process that runs them."""
    reports = []
    for partition, (start, end) in ranges.items():
        with RowFile(plan.stage_dir, "failed", STEP_FAILURE_SCHEMA) as failed:
            items = 0
            for rows in log.read(partition, start, end):
                items += rows.num_rows
                failed.add(lost_records(rows, lost))
        reports.append(TaskReport(items, 0, {}, (), failed.files, partition, start, end))
    return add_up(reports)


def lost_records(rows: pa.RecordBatch, lost: WorkerLost) -> pa.RecordBatch:
    """The failures of records over which a worker was lost."""
    reason = (lost.code.value, str(lost), lost.step or STAGE_LABEL)
    texts = [pa.repeat(pa.scalar(text), rows.num_rows) for text in reason]
    places = [rows.column(name) for name in PLACE_COLUMNS]
    return pa.RecordBatch.from_arrays([*places, *texts], schema=STEP_FAILURE_SCHEMA)


def read_task_reports(plan: RoutePlan) -> list[TaskReport]:
    """The reports of tasks that yielded their records to Spark."""
    return [TaskReport.from_json(path.read_text()) for path in sorted(plan.stage_dir.glob(f"*{REPORT_SUFFIX}"))]


class RowFile:
    """Collects the failures of one task, or the places of what it stages, in one Arrow file, opened only if there is
    one. The records are in the log."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema) -> None:
        self._path = directory / f"{name}-{uuid.uuid4().hex}.arrow"
        self._schema = schema
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """``rows`` have the columns of the schema, and perhaps others."""
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, self._schema)
        self._writer.write_batch(rows.select(self._schema.names))
        self._rows += rows.num_rows

    @property
    def files(self) -> list[RowsOnDisk]:
        return [RowsOnDisk(str(self._path), self._rows)] if self._rows else []

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._writer is not None:
            self._writer.close()


def read_rows(path: str) -> Iterator[pa.RecordBatch]:
    """The batches of a file that ``RowFile`` wrote."""
    with pa.memory_map(path) as file, pa.ipc.open_file(file) as reader:
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)
