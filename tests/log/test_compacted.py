"""Frames that compaction leaves, whose offsets are not consecutive, read like any other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log.frame import SCATTERED_SCHEMA, encode, place
from penstock.log.local import LocalLog
from tests.contract.log import config
from tests.log.samples import numbered, numbers, segments

KEPT = [[2, 5, 6], [11, 19], [24]]


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    """Offsets 0 to 29 in closed segments of which only ``KEPT`` is left, then 30 to 39 as they were appended."""
    log = LocalLog(tmp_path, config(segment_bytes=2500))
    with log.writer("web") as writer:
        for first in range(0, 40, 10):
            writer.append(numbered(range(first, first + 10), size=30))
    closed = segments(log)[:3]
    assert [int(segment.stem) for segment in closed] == [0, 10, 20]
    for segment, kept in zip(closed, KEPT, strict=True):
        columns = [pa.array(kept, pa.int64()), *numbered(kept).columns]
        body = encode(pa.RecordBatch.from_arrays(columns, schema=SCATTERED_SCHEMA), "lz4")
        _, header = place(body, kept[0], kept[-1])
        segment.write_bytes(header + b"".join(piece.to_pybytes() for piece in body.pieces))
        segment.with_suffix(".idx").unlink()
    return log


LEFT = [offset for kept in KEPT for offset in kept] + list(range(30, 40))


def test_what_is_left_is_read_in_order(log: LocalLog) -> None:
    assert numbers(log) == [(n, n) for n in LEFT]


@pytest.mark.parametrize(("start", "end"), [(0, 3), (3, 6), (6, 12), (7, 11), (12, 30), (20, 33)])
def test_an_offset_that_is_gone_yields_the_next_higher_one(log: LocalLog, start: int, end: int) -> None:
    assert numbers(log, 0, start, end) == [(n, n) for n in LEFT if start <= n < end]


@pytest.mark.parametrize("start", range(0, 40, 3))
@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_limits_count_the_records_that_are_left(log: LocalLog, start: int, limit: int) -> None:
    end = log.advance(0, start, max_records=limit)
    waiting = [n for n in LEFT if n >= start]
    assert [n for n in waiting if n < end] == waiting[:limit]


def test_pointers_to_what_is_gone_are_left_out(log: LocalLog) -> None:
    assert log.fetch((0, n) for n in range(40)).column("offset").to_pylist() == LEFT
