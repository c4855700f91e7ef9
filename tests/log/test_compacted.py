"""What compaction leaves, whose offsets are not consecutive, reads like anything else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import LogError
from penstock.log.format.frame import HEADER_BYTES, SCATTERED_SCHEMA, encode, gone_header, pack_header, place
from penstock.log.format.index import IndexWriter, Place
from penstock.log.local_log import LocalLog
from penstock.log.reader import Bounds, StoredSpan
from tests.contract.log import config
from tests.log.samples import START, fetched, numbered, numbers, segments

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
        _, header = place(body, kept[0], kept[-1], stamp=1 + kept[0] // 10, generation=1)
        last = int(segment.stem) + 9
        rest = pack_header(gone_header(kept[-1] + 1, last, generation=1)) if kept[-1] < last else b""
        segment.write_bytes(header + b"".join(piece.to_pybytes() for piece in body.pieces) + rest)
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


def test_pointers_to_what_is_gone_are_named(log: LocalLog) -> None:
    gone = [n for n in range(40) if n not in LEFT]
    assert fetched(log, ((0, n) for n in range(40))) == (LEFT, gone)
    assert fetched(log, [(0, 0), (0, 7), (0, 29)]) == ([], [0, 7, 29])
    assert fetched(log, [(0, 0), (0, 19), (0, 38)]) == ([19, 38], [0])


def test_a_time_is_found_among_what_is_left(log: LocalLog) -> None:
    for seconds in range(45):
        later = [n for n in LEFT if n >= seconds]
        assert log.offset_at(0, START + timedelta(seconds=seconds)) == (later[0] if later else 40)


def test_what_is_held_is_told_by_its_records_not_by_its_files(log: LocalLog) -> None:
    assert log.bounds(0) == Bounds(0, 40)
    assert log.reader(0).stored_span() == StoredSpan(first=2, last=39)


def test_a_segment_cut_off_behind_a_whole_frame_is_no_compacted_one(log: LocalLog) -> None:
    segment = segments(log)[0]
    segment.write_bytes(segment.read_bytes()[:-HEADER_BYTES])
    with pytest.raises(LogError, match=r"PEN-LOG-003.*the file is missing"):
        numbers(log)


def test_an_index_of_the_segment_as_it_was_is_not_believed(log: LocalLog) -> None:
    index = segments(log)[0].with_suffix(".idx")
    stale = IndexWriter(index, 0)
    stale.add(Place(offset=3, position=0, records=3, raw_bytes=0, max_timestamp=0))
    stale.close()
    assert numbers(LocalLog(log.directory), 0, 0, 10) == [(n, n) for n in KEPT[0]]
    assert LocalLog(log.directory).usage()[0].records == len(LEFT)
