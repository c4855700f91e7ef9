"""Compaction killed at every point where it could matter: the log never has a gap and never a record twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.log.local_log import LocalLog
from penstock.log.maintenance.compaction import compact
from penstock.log.maintenance.verify import verify
from tests.contract.log import config
from tests.log.crashing import crashing, fault_points
from tests.log.samples import fetched, numbers, repeating, segments
from tests.log.test_compaction import left_of

OPTIONS = config(segment_bytes=6000, retention={"max_age": None})
POINTS = fault_points("compact", "rewrite")
RECORDS = 150


@pytest.fixture
def original(quick_disk: Path) -> Path:
    """A log with a few closed segments; some keep little, one keeps nothing, the first was compacted before."""
    folder = quick_disk / "original"
    log = LocalLog(folder, OPTIONS)
    for first, end in [(0, 60), (60, RECORDS)]:
        with log.writer("web") as writer:
            for n in range(first, end, 5):
                writer.append(repeating(range(n, n + 5), 60))
        if end == 60:
            compact(log, {0: 30})
    return folder


def test_the_points_are_those_that_change_files() -> None:
    assert len(POINTS) >= 10
    assert {"log.rewrite.renamed", "log.rewrite.durable", "log.compact.remove", "log.compact.marked"} <= set(POINTS)


def test_killed_at_every_point_the_log_reads_as_before_or_after_without_gap_or_double(
    original: Path, quick_disk: Path
) -> None:
    before = numbers(LocalLog(original, OPTIONS))
    after = [(n, n) for n in left_of((n for n, _ in before), int(segments(LocalLog(original))[-1].stem))]
    crashes = 0
    with crashing() as processes:
        for point in POINTS:
            nth = 1
            while processes.dies("compact", folder := _copy(original, quick_disk / "tried"), f"{point}@{nth}"):
                _check(folder, before, after, f"{point}@{nth}")
                nth, crashes = nth + 1, crashes + 1
            assert nth > 1, f"{point} was never reached"
            assert numbers(LocalLog(folder, OPTIONS)) == after
    assert crashes > 30


def _copy(original: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(original, folder))


def _check(folder: Path, before: list[tuple[int, int]], after: list[tuple[int, int]], where: str) -> None:
    log = LocalLog(folder, OPTIONS)
    there = numbers(log)
    assert there == [n for n in before if n in set(there)], where
    assert set(after) <= set(there), where
    assert log.usage()[0].records == len(there), where
    for start in range(0, RECORDS, 7):
        assert numbers(log, 0, start) == [(n, v) for n, v in there if n >= start], where
        end = log.advance(0, start, max_records=3)
        assert len([n for n, _ in there if start <= n < end]) == min(3, len([n for n, _ in there if n >= start])), where
    assert fetched(log, ((0, n) for n in range(RECORDS)))[0] == [n for n, _ in there], where
    assert [check.is_whole for check in verify(log)] == [True], where
    with log.writer("web") as writer:
        assert writer.recovered is None, where
        assert writer.next_offset == RECORDS, where
    compact(log, {0: RECORDS})
    assert numbers(log) == after, where
    assert not (folder / "0" / "compacting").exists(), where
    assert sorted(p.stem for p in (folder / "0").glob("*.idx")) == [p.stem for p in segments(log)], where
