"""Adding up what tasks report."""

from __future__ import annotations

import pytest

from penstock.destinations.contract import Part
from penstock.engine.delivery.task_report import RowsOnDisk, TaskReport, add_up
from penstock.errors import RouteError


def report(partition: int, start: int, end: int, **more: object) -> TaskReport:
    return TaskReport(items=end - start, staged=end - start, partition=partition, start=start, end=end, **more)  # type: ignore[arg-type]


def test_stretches_of_a_partition_join_whatever_order_the_tasks_end_in() -> None:
    total = add_up([report(0, 10, 20), report(1, 0, 5), report(0, 0, 10), report(0, 20, 21)])
    assert total.ranges == {0: (0, 21), 1: (0, 5)}
    assert total.items == 26


@pytest.mark.parametrize("pieces", [[(0, 10), (11, 20)], [(0, 10), (5, 20)], [(0, 10), (0, 10)]])
def test_a_gap_or_an_overlap_is_refused(pieces: list[tuple[int, int]]) -> None:
    with pytest.raises(RouteError, match="partition 0"):
        add_up([report(0, start, end) for start, end in pieces])


def test_parts_come_in_log_order() -> None:
    late, early = Part("t", "b", 1, 0, 50), Part("t", "a", 1, 0, 3)
    assert add_up([report(0, 50, 60, parts=(late,)), report(0, 0, 50, parts=(early,))]).parts == [early, late]


def test_skips_and_failures_add_up_by_step() -> None:
    total = add_up(
        [
            report(0, 0, 5, skipped={"where": 2}, failed=(RowsOnDisk("x", 2),)),
            report(0, 5, 9, skipped={"where": 1, "map": 1}, failed=(RowsOnDisk("y", 1),)),
        ]
    )
    assert total.skipped == {"where": 3, "map": 1}
    assert total.failed_rows == 3


def test_a_report_survives_the_way_through_spark() -> None:
    sent = report(
        2, 7, 9, parts=(Part("t", "p", 2, 2, 7, '{"a": 1}'),), skipped={"where": 1}, failed=(RowsOnDisk("f", 1),)
    )
    (row,) = sent.to_batch().to_pylist()
    assert TaskReport.from_json(row["report"]) == sent
