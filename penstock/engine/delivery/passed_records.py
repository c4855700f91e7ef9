"""Records that an operator acknowledges while their batch is under way.

The batch keeps its range and its number. Tables that have their part keep it, with these records in it; the others get
theirs without them. So nothing is written twice, whatever an earlier attempt did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from penstock.destinations.contract import TableReceipt
from penstock.engine.delivery.batch_pieces import Range, Ranges, subtract
from penstock.engine.delivery.task import REPORT_SUFFIX
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.ledger import ACKNOWLEDGED
from penstock.engine.route_plan import RoutePlan
from penstock.log.local_log import LocalLog

Stretches = Mapping[int, Sequence[Range]]
"""Stretches of offsets per log partition."""
NOTHING: Stretches = {}


def staging_rounds(ranges: Ranges, passed_over: Stretches) -> list[Ranges]:
    """Cuts what is not passed over into rounds, in order; a round has at most one stretch of each partition."""
    left = {p: subtract(stretch, passed_over.get(p, ())) for p, stretch in ranges.items()}
    most = max((len(stretches) for stretches in left.values()), default=0)
    return [{p: stretches[n] for p, stretches in left.items() if n < len(stretches)} for n in range(most)]


def stage_without(
    stage: Callable[[Ranges], BatchReport], plan: RoutePlan, log: LocalLog, ranges: Ranges, passed_over: Stretches
) -> BatchReport:
    """Stage ranges without the records that are passed over, and report on all: those count as skipped."""
    passed = sum(
        rows.num_rows
        for p, stretches in passed_over.items()
        for start, end in stretches
        for rows in log.read(p, start, end)
    )
    total = BatchReport(ranges=ranges, items=passed, staged=0, skipped={ACKNOWLEDGED: passed}, parts=(), failed=())
    for some in staging_rounds(ranges, passed_over):
        total = _added_up(total, stage(some))
        for read in plan.stage_dir.glob(f"*{REPORT_SUFFIX}"):
            read.unlink()  # the next round reads its own
    return total


def with_already_loaded(report: BatchReport, receipts: Sequence[TableReceipt], waiting: int = 0) -> BatchReport:
    """Counts rows that are passed over as loaded where the destination already had them. ``waiting``: rows without a
    receipt."""
    passed = report.skipped.get(ACKNOWLEDGED, 0)
    accounted = sum(table.accounted for table in receipts)
    more = accounted + waiting - report.staged
    if not passed or more <= 0:
        return report
    # A record that a step splits has several rows, and was counted as one.
    skipped = {**report.skipped, ACKNOWLEDGED: max(0, passed - more)}
    added = {**report.added, **({ACKNOWLEDGED: more - passed} if more > passed else {})}
    return replace(report, skipped={label: count for label, count in skipped.items() if count}, added=added)


def _added_up(one: BatchReport, other: BatchReport) -> BatchReport:
    return replace(
        one,
        items=one.items + other.items,
        staged=one.staged + other.staged,
        skipped=_summed(one.skipped, other.skipped),
        added=_summed(one.added, other.added),
        parts=[*one.parts, *other.parts],
        failed=[*one.failed, *other.failed],
    )


def _summed(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {label: one.get(label, 0) + other.get(label, 0) for label in (*one, *other)}
