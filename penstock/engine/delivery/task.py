"""What a Spark task does: runs records through the steps, writes them to stage files and reports on them.

No Spark import: ``run_task`` takes the batches that a log reader or a shuffle yields, and returns a report.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.task_report import BatchReport, FailedFile, TaskReport, add_up
from penstock.engine.lost_workers.lost_worker import WorkerLost
from penstock.engine.lost_workers.task_note import TaskNote
from penstock.engine.route_plan import RoutePlan
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.outcome import place_key
from penstock.record import RECORD_SCHEMA
from penstock.steps.chain import STEP_FAILURE_SCHEMA, Chain, check_sum, labelled
from penstock.steps.current_step import enter_step

FAILED_RECORD_SCHEMA: pa.Schema = pa.schema(
    [*RECORD_SCHEMA, *(field for field in STEP_FAILURE_SCHEMA if field.name not in RECORD_SCHEMA.names)]
)
"""A record as it was in the log, and the code, message and step of its failure."""

STAGE_LABEL = "stage"
REPORT_SUFFIX = ".report"


def run_task(
    plan: RoutePlan, batches: Iterable[pa.RecordBatch], stretch: Stretch | None = None, chain: Chain | None = None
) -> TaskReport:
    """Run the plan's first steps, or the given chain, over the batches, stage the result for the plan's destination,
    and report. The batches are a stretch of the log, or none after a shuffle."""
    chain = chain or plan.head_chain()
    plan.stage_dir.mkdir(parents=True, exist_ok=True)
    stager = plan.destination().stager(plan.stage_dir, plan.casts)
    skipped: Counter[str] = Counter()
    added: Counter[str] = Counter()
    items = staged = 0
    with TaskNote(plan.stage_dir, plan.step_timeout) as note, FailedWriter(plan.stage_dir) as failed:
        for batch, outcome in (ran for read in batches for ran in chain.runs(read)):
            items += batch.num_rows
            skipped.update(outcome.skipped)
            added.update(outcome.added)
            for failures in outcome.failures:
                failed.add(batch, failures)
            enter_step(STAGE_LABEL)
            taken = stager.add(outcome.kept, batch)
            check_sum(STAGE_LABEL, outcome.kept.num_rows, taken)
            staged += taken.kept.num_rows
            if taken.skipped:
                skipped[STAGE_LABEL] += taken.skipped
            if taken.failures.num_rows:
                failed.add(batch, labelled(taken.failures, STAGE_LABEL))
            note.mark_progress()
        parts = stager.finish()
    return TaskReport(items, staged, dict(skipped), parts, failed.files, *_place(stretch), dict(added))


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
        with FailedWriter(plan.stage_dir) as failed:
            items = 0
            for rows in log.read(partition, start, end):
                items += rows.num_rows
                failed.add(rows, lost_records(rows, lost))
        reports.append(TaskReport(items, 0, {}, (), failed.files, partition, start, end))
    return add_up(reports)


def lost_records(rows: pa.RecordBatch, lost: WorkerLost) -> pa.RecordBatch:
    """The failures of records over which a worker was lost."""
    reason = (lost.code.value, str(lost), lost.step or STAGE_LABEL)
    texts = [pa.repeat(pa.scalar(text), rows.num_rows) for text in reason]
    places = [rows.column("partition"), rows.column("offset")]
    return pa.RecordBatch.from_arrays([*places, *texts], schema=STEP_FAILURE_SCHEMA)


def run_steps(
    plan: RoutePlan,
    batches: Iterable[pa.RecordBatch],
    name: str,
    stretch: Stretch | None = None,
    chain: Chain | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same, but yields the records to Spark; the report goes into the stage folder under ``name``."""
    chain = chain or plan.head_chain()
    plan.stage_dir.mkdir(parents=True, exist_ok=True)
    skipped: Counter[str] = Counter()
    added: Counter[str] = Counter()
    items = 0
    with TaskNote(plan.stage_dir, plan.step_timeout) as note, FailedWriter(plan.stage_dir) as failed:
        for batch, outcome in (ran for read in batches for ran in chain.runs(read)):
            items += batch.num_rows
            skipped.update(outcome.skipped)
            added.update(outcome.added)
            for failures in outcome.failures:
                failed.add(batch, failures)
            note.suspend_limit()
            yield outcome.kept
            note.mark_progress()
    report = TaskReport(items, 0, dict(skipped), (), failed.files, *_place(stretch), dict(added))
    scratch = plan.stage_dir / f".{name}-{uuid.uuid4().hex}"
    scratch.write_text(report.to_json())
    scratch.replace(plan.stage_dir / f"{name}{REPORT_SUFFIX}")


def _place(stretch: Stretch | None) -> tuple[int | None, int, int]:
    return (None, 0, 0) if stretch is None else (stretch.partition, stretch.start, stretch.end)


def read_task_reports(plan: RoutePlan) -> list[TaskReport]:
    """The reports of tasks that yielded their records to Spark."""
    return [TaskReport.from_json(path.read_text()) for path in sorted(plan.stage_dir.glob(f"*{REPORT_SUFFIX}"))]


class FailedWriter:
    """Collects the failed records of one task in one Arrow file, opened only if there is one."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"failed-{uuid.uuid4().hex}.arrow"
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._rows = 0

    def add(self, batch: pa.RecordBatch, failures: pa.RecordBatch) -> None:
        """``batch`` is the records as they were read; ``failures`` names some of them."""
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, FAILED_RECORD_SCHEMA)
        self._writer.write_batch(failed_records(batch, failures))
        self._rows += failures.num_rows

    @property
    def files(self) -> list[FailedFile]:
        return [FailedFile(str(self._path), self._rows)] if self._rows else []

    def __enter__(self) -> FailedWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._writer is not None:
            self._writer.close()


def failed_records(batch: pa.RecordBatch, failures: pa.RecordBatch) -> pa.RecordBatch:
    """The named records as they were in the log, each with its failure."""
    rows = batch.take(pc.index_in(place_key(failures), value_set=place_key(batch)))
    reasons = [failures.column(name) for name in ("code", "message", "step")]
    return pa.RecordBatch.from_arrays([*rows.columns, *reasons], schema=FAILED_RECORD_SCHEMA)


def read_failed(path: str) -> Iterator[pa.RecordBatch]:
    """The batches of a file that ``FailedWriter`` wrote."""
    with pa.memory_map(path) as file, pa.ipc.open_file(file) as reader:
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)
