"""Records that an operator declares done while their batch is under way.

The batch keeps its range and its number. Tables that have got their part keep it, with these records in it; the others
get theirs without them. So nothing is written twice, whatever an earlier attempt has done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from penstock.destinations.contract import TableReceipt
from penstock.engine.delivery.batch_pieces import Range, Ranges, between
from penstock.engine.delivery.task import REPORT_SUFFIX
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.ledger import ACKNOWLEDGED
from penstock.engine.route_plan import RoutePlan
from penstock.log.local import LocalLog

Stretches = Mapping[int, Sequence[Range]]
"""Per log partition some stretches of offsets."""
NOTHING: Stretches = {}


def rounds(ranges: Ranges, passed_over: Stretches) -> list[Ranges]:
    """What is left of ranges without some stretches: in each round one stretch of a partition, all in order."""
    left = {p: between(stretch, passed_over.get(p, ())) for p, stretch in ranges.items()}
    most = max((len(stretches) for stretches in left.values()), default=0)
    return [{p: stretches[n] for p, stretches in left.items() if n < len(stretches)} for n in range(most)]


def carried_without(
    carry: Callable[[Ranges], BatchReport], plan: RoutePlan, log: LocalLog, ranges: Ranges, passed_over: Stretches
) -> BatchReport:
    """One report of ranges of which some records are passed over: they count as skipped."""
    passed = sum(
        rows.num_rows
        for p, stretches in passed_over.items()
        for start, end in stretches
        for rows in log.read(p, start, end)
    )
    total = BatchReport(ranges=ranges, items=passed, staged=0, skipped={ACKNOWLEDGED: passed}, parts=(), failed=())
    for some in rounds(ranges, passed_over):
        total = _together(total, carry(some))
        for read in plan.stage_dir.glob(f"*{REPORT_SUFFIX}"):
            read.unlink()  # the next round counts its own
    return total


def with_what_was_there(report: BatchReport, receipts: Sequence[TableReceipt], waiting: int = 0) -> BatchReport:
    """The report with rows of records that are passed over, but were at the destination already: those are loaded.
    ``waiting``: rows that no receipt is about."""
    passed = report.skipped.get(ACKNOWLEDGED, 0)
    accounted = sum(table.rows + (table.failures.num_rows if table.failures is not None else 0) for table in receipts)
    more = accounted + waiting - report.staged
    if not passed or more <= 0:
        return report
    # A record that a step splits is several rows, and was counted as one.
    skipped = {**report.skipped, ACKNOWLEDGED: max(0, passed - more)}
    added = {**report.added, **({ACKNOWLEDGED: more - passed} if more > passed else {})}
    return replace(report, skipped={label: count for label, count in skipped.items() if count}, added=added)


def _together(one: BatchReport, other: BatchReport) -> BatchReport:
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
