"""Plans what events would change at a route's destination: runs its steps and its stager, and loads nothing.

No Spark, and no traces: files are staged in a temporary folder, and the target is only read.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.destinations.contract import Part
from penstock.engine.delivery.task import read_rows, run_task
from penstock.engine.delivery.task_report import TaskReport
from penstock.engine.operate.samples import SampleRange
from penstock.engine.route_plan import RoutePlan
from penstock.errors import PenstockError, TransientError


@dataclass(frozen=True)
class FailedKind:
    """Events that a step (or the staging) fails in the same way. ``message`` is that of the first."""

    step: str
    code: str
    message: str
    count: int


@dataclass(frozen=True)
class PlannedChanges:
    """What events would change. ``statements`` is None for a destination that has no tables to plan."""

    route: str
    destination: str
    statements: Sequence[str] | None
    events: int = 0
    staged: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    failed: Sequence[FailedKind] = ()


def plan_changes(plan: RoutePlan, sample: Iterable[SampleRange], offline: bool = False) -> PlannedChanges:
    """Run the route's steps and stager over the sample and ask its destination. ``offline``: do not even look at it."""
    destination = plan.destination()
    if destination.sql() is None:
        return PlannedChanges(plan.name, plan.destination_name, None)
    if plan.rest:
        raise PenstockError(
            "PEN-ENG-009",
            f"route '{plan.name}' has the step '{plan.rest[0].label}', which runs in Spark: it cannot be planned.",
            "Plan a route without that step, with events as they are after it.",
        )
    with tempfile.TemporaryDirectory(prefix="penstock-plan-") as folder:
        staged = replace(plan, stage_dir=Path(folder))
        reports = [run_task(staged, piece.batches, chain=piece.chain) for piece in sample]
        parts: list[Part] = [part for report in reports for part in report.parts]
        try:
            statements = destination.plan(parts, offline, plan.name) if parts else []
        except TransientError as error:
            raise PenstockError(
                error.code, error.what, "To plan as if the destination were empty, add --offline."
            ) from error
        return _added_up(plan, reports, statements)


def _added_up(plan: RoutePlan, reports: Sequence[TaskReport], statements: Sequence[str]) -> PlannedChanges:
    skipped: Counter[str] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    messages: dict[tuple[str, str], str] = {}
    for report in reports:
        skipped.update(report.skipped)
        for file in report.failed:
            for batch in read_rows(file.path):
                columns = (batch.column(name).to_pylist() for name in ("step", "code", "message"))
                for step, code, message in zip(*columns, strict=True):
                    failed[step, code] += 1
                    messages.setdefault((step, code), message)
    return PlannedChanges(
        plan.name,
        plan.destination_name,
        statements,
        sum(report.items for report in reports),
        sum(report.staged for report in reports),
        dict(skipped),
        [FailedKind(*kind, messages[kind], count) for kind, count in failed.items()],
    )
