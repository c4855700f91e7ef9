"""Records that end the process which runs them before a holding step: found, written down, and left out."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.lost_workers.deadly_records import DeadlyRecord, keep_deadly_records, kept_deadly_records
from penstock.engine.lost_workers.deadly_search import find_deadly_records
from penstock.engine.lost_workers.lost_worker import LostCode, WorkerLost
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries

LOST = WorkerLost("python", LostCode.KILLED_WORKER, "had its process killed by SIGSEGV")
DEADLY = DeadlyRecord(0, 7, LOST.step, LOST.code, LOST.what)


def fill(folder: Path, sizes: list[int]) -> tuple[LocalLog, dict[int, tuple[int, int]]]:
    """A log whose partitions have so many records."""
    log = LocalLog(folder)
    ranges = {}
    for number, size in enumerate(sizes):
        with log.writer(f"source{number}") as writer:
            for _ in range(size):
                writer.append(entries([Record(b"{}")]))
            ranges[writer.partition] = (0, size)
    return log, ranges


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3), data=st.data())
@settings(max_examples=25, deadline=None)
def test_all_deadly_records_are_found_and_no_other(sizes: list[int], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        log, ranges = fill(Path(folder), sizes)
        places = [(p, offset) for p, (start, end) in ranges.items() for offset in range(start, end)]
        deadly = data.draw(st.sets(st.sampled_from(places)))
        tried = []

        def attempt(part: Ranges) -> None:
            tried.append(part)
            if any(start <= offset < end for p, (start, end) in part.items() for q, offset in deadly if p == q):
                raise LOST

        found = find_deadly_records("out", log, ranges, attempt, Event())
        assert sorted((each.partition, each.offset) for each in found) == sorted(deadly)
        assert all(str(each.lost) == str(LOST) and each.code is LOST.code for each in found)
        assert len(tried) <= 1 + 2 * len(deadly) * (len(places) - 1).bit_length()


def test_the_search_ends_when_the_engine_stops(tmp_path: Path) -> None:
    log, ranges = fill(tmp_path, [4])
    stopping = Event()

    def attempt(part: Ranges) -> None:
        stopping.set()
        raise LOST

    with pytest.raises(Stopped):
        find_deadly_records("out", log, ranges, attempt, stopping)


def test_a_batch_that_runs_again_is_run_without_the_same_records(tmp_path: Path) -> None:
    assert kept_deadly_records(tmp_path, 3) == ()
    keep_deadly_records(tmp_path, 3, [DEADLY])
    assert kept_deadly_records(tmp_path, 3) == (DEADLY,)


def test_other_batches_are_given_them_again(tmp_path: Path) -> None:
    keep_deadly_records(tmp_path, 3, [DEADLY])
    assert kept_deadly_records(tmp_path, 4) == ()
