"""Which records a backtest reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.engine.backtest.log_range import LogRange
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries

T = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    """Ten records of two workers, one each second, and one of another source."""
    log = LocalLog(tmp_path / "log")
    with log.writer("spans", 0) as first, log.writer("spans", 1) as second, log.writer("web") as other:
        for second_ in range(10):
            record = Record(b"x", "traces", timestamp=T + timedelta(seconds=second_))
            (second if second_ % 2 else first).append(entries([record]))
        other.append(entries([Record(b"x", "web", timestamp=T)]))
    return log


@pytest.mark.parametrize(
    ("since", "until", "offsets"),
    [
        (None, None, {0: (0, 5), 1: (0, 5)}),
        (3, None, {0: (2, 5), 1: (1, 5)}),
        (3, 5, {0: (2, 3), 1: (1, 2)}),
        (0, 1, {0: (0, 1)}),
        (20, None, {}),
        (None, -5, {}),
    ],
)
def test_a_range_of_time(
    log: LocalLog, since: int | None, until: int | None, offsets: dict[int, tuple[int, int]]
) -> None:
    first, last = (None if each is None else T + timedelta(seconds=each) for each in (since, until))
    found = LogRange.between(log, ["spans"], first, last)
    assert found.offsets == offsets
    assert found.records == sum(end - start for start, end in offsets.values())


def test_the_tasks_have_all_of_it_once(log: LocalLog) -> None:
    found = LogRange.between(log, ["spans"], T + timedelta(seconds=2), None)
    cut = [(each.partition, offset) for each in found.cut(log, 4) for offset in range(each.start, each.end)]
    assert sorted(cut) == [(p, offset) for p, edges in found.offsets.items() for offset in range(*edges)]
