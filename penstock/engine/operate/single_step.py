"""Steps through a route one record at a time: shows the record and what each step makes of it, then delivers it or not.

No Spark. Each record is a batch of its own, delivered by the usual protocol, so that a pipeline that is started
afterwards continues after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from threading import Event

import pyarrow as pa

from penstock.config.pipeline_config import OnError
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.delivery.task_report import BatchReport, rows_by_table
from penstock.engine.history.settle_adopted import settle_adopted
from penstock.engine.ledger import Operator, RouteState
from penstock.engine.operate.offset_control import acknowledge
from penstock.engine.pipeline import Pipeline
from penstock.engine.processes.engine_lock import EngineLock
from penstock.engine.route_plan import links
from penstock.errors import PenstockError
from penstock.record import Record, records
from penstock.steps.chain import Chain
from penstock.steps.contract import namespace_pattern


class Fate(StrEnum):
    """What became of a record, or will: ``kept`` is not settled yet."""

    KEPT = "kept"
    LOADED = "loaded"
    SKIPPED = "skipped"
    FAILED = "failed"
    WAITING = "waiting"
    """Its table is unavailable; it is loaded when a pipeline runs and the table takes rows."""
    REFUSED = "refused"
    """The route has halted before it (``on_error: stop``)."""


@dataclass(frozen=True)
class StepOutcome:
    """What a step made of a record: the records after it, or why there are none."""

    step: str
    fate: Fate
    behind: Sequence[Record] = ()
    code: str = ""
    message: str = ""


@dataclass(frozen=True)
class RecordPreview:
    """The next record, before it is delivered."""

    record: Record
    outcomes: Sequence[StepOutcome]
    rows: Mapping[str, int]
    """Rows per table that the destination will get."""
    report: BatchReport = field(repr=False)


@dataclass(frozen=True)
class Result:
    """What became of a record."""

    fate: Fate
    step: str = ""
    code: str = ""
    message: str = ""


class Stepper:
    """Use it in a ``with``: it keeps engines from starting meanwhile."""

    def __init__(self, pipeline: Pipeline, route: str) -> None:
        self._pipeline = pipeline
        # A person watches and ends what takes too long; a limit would end the whole verb silently.
        self._plan = replace(pipeline.plan(route), step_timeout=None)
        if self._plan.rest:
            raise PenstockError(
                "PEN-ENG-020",
                f"route '{route}' has the step '{self._plan.rest[0].label}', which runs in Spark: it cannot be stepped"
                " through.",
                "Set `max_records: 1` on the route and run the pipeline, to deliver one record per batch.",
            )
        waiting = pipeline.ledger.waiting_tables(route)
        if waiting and self._plan.on_error is OnError.STOP:
            raise PenstockError(
                "PEN-ENG-023",
                f"tables of route '{route}' wait for earlier batches ({', '.join(waiting)}), and its batches are to be"
                " whole: nothing would come through.",
                "Start the pipeline, which loads what waits; then step.",
            )
        self._delivery = Delivery(
            self._plan,
            self._plan.destination(),
            pipeline.log,
            pipeline.ledger,
            pipeline.failed_store,
            stopping=Event(),
            history=pipeline.history(),
        )
        self._lock = EngineLock(pipeline.layout.run)

    def __enter__(self) -> Stepper:
        self._lock.acquire()
        try:
            self._pipeline.check_log()
            self._pipeline.history().check_local_state(self._plan.name, self._plan.sources)
            open_route(self._pipeline.log, self._pipeline.ledger, self._plan.name, self._plan.sources)
            self._plan.stage_dir.mkdir(parents=True, exist_ok=True)
            settle_adopted(self._delivery)
        except Halted as halted:
            self._lock.release()
            raise halted.__cause__ or halted from None
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        clean_stage(self._plan.stage_dir)
        activity = self._pipeline.ledger.activity(self._plan.name)
        if activity is not None and activity.state is not RouteState.HALTED:
            self._pipeline.ledger.set_state(self._plan.name, RouteState.STOPPED)
        self._lock.release()

    def pending_ranges(self) -> Ranges | None:
        """The ranges of the batch under way, if any. It comes first, unchanged: the destination may have it."""
        pending = self._pipeline.ledger.standing(self._plan.name).pending
        return None if pending is None else pending.ranges

    def deliver_pending(self) -> Result:
        begun = self.pending_ranges()
        return Result(Fate.SKIPPED) if begun is None else self._deliver(self._stage_ranges(begun))

    def _place_in_order(self, head: pa.RecordBatch) -> tuple[int, int]:
        partition, offset = (head.column(name)[0].as_py() for name in ("partition", "offset"))
        return self._pipeline.log.reader(partition).stamp_at(offset), partition

    def next(self) -> RecordPreview | None:
        """The record that the route reads next: the first in the order of the log."""
        self._pass_over_acknowledged()
        heads = [self._head(p) for p in self._pipeline.log.partitions(self._plan.sources)]
        found = [head for head in heads if head is not None]
        if not found:
            return None
        head = min(found, key=self._place_in_order)
        (record,) = records(head)
        report = self._stage_ranges({record.partition: (self._committed(record.partition), record.offset + 1)})
        return RecordPreview(record, self._step_outcomes(head), rows_by_table(report.parts), report)

    def deliver(self, preview: RecordPreview) -> Result:
        return self._deliver(preview.report)

    def acknowledge(self, preview: RecordPreview, operator: Operator) -> None:
        """Acknowledge the record: it is not sent, and counts as skipped under ``acknowledged``."""
        place = preview.record
        acknowledge(self._pipeline, self._plan.name, place.offset, place.offset, place.partition, operator)

    def _deliver(self, report: BatchReport) -> Result:
        route, ledger = self._plan.name, self._pipeline.ledger
        before, extent = ledger.totals(route), ledger.failed_extent(route)
        try:
            self._delivery.deliver(report)
        except Halted as halted:
            halt = ledger.standing(route).halt
            if halt is None:
                # No record is at fault: the destination contradicts the ledger.
                raise halted.__cause__ or halted from None
            return Result(Fate.REFUSED, halt.step, halt.code, halt.message)
        now = ledger.totals(route)
        if now.failed > before.failed:
            entry = next(self._pipeline.failed_store.read(route, ledger.failed_extent(route), after=extent))
            return Result(Fate.FAILED, entry.step, entry.code, entry.error)
        if now.waiting > before.waiting:
            waiting = ledger.waiting_tables(route)
            return Result(Fate.WAITING, message="; ".join(table.reason for table in waiting.values()))
        return Result(Fate.LOADED if now.loaded > before.loaded else Fate.SKIPPED)

    def _stage_ranges(self, ranges: Ranges) -> BatchReport:
        clean_stage(self._plan.stage_dir)
        return stage_ranges(self._plan, self._pipeline.log, ranges)

    def _committed(self, partition: int) -> int:
        position = self._pipeline.ledger.offsets(self._plan.name).get(partition)
        return position.committed if position is not None else 0

    def _head(self, partition: int) -> pa.RecordBatch | None:
        for rows in self._pipeline.log.read(partition, self._committed(partition), max_batch_records=1):
            return rows.slice(0, 1)
        return None

    def _pass_over_acknowledged(self) -> None:
        for partition, stretches in self._pipeline.ledger.standing(self._plan.name).acknowledged.items():
            for start, end in stretches:
                if start <= self._committed(partition) < end:
                    self._delivery.deliver(self._stage_ranges({partition: (self._committed(partition), end)}))

    def _step_outcomes(self, batch: pa.RecordBatch) -> list[StepOutcome]:
        """The record after the route's own filters and after each step, up to where it ends."""
        plan, all_links, found = self._plan, links(self._plan.head), []
        for count in range(len(all_links) + 1):
            outcome = Chain(all_links[:count], namespace_pattern(plan.namespace), plan.only_keys).run(batch)
            name = all_links[count - 1].label if count else "route"
            if outcome.failures:
                (failure,) = outcome.failures[0].slice(0, 1).to_pylist()
                found.append(StepOutcome(failure["step"], Fate.FAILED, (), failure["code"], failure["message"]))
                break
            if outcome.kept.num_rows == 0:
                found.append(StepOutcome(next(iter(outcome.skipped), name), Fate.SKIPPED))
                break
            if count:
                found.append(StepOutcome(name, Fate.KEPT, records(outcome.kept)))
        return found
