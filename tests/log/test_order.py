"""The order over all partitions: what was acknowledged before something else was sent comes before it, wherever batches
are cut, whoever dies, and whatever the clocks of the machine say."""

from __future__ import annotations

import itertools
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock.log.writer
from penstock.log.format.frame import decode_header
from penstock.log.format.log_files import segment_bases, segment_path
from penstock.log.local_log import LocalLog
from penstock.log.logical_clock import CLOCK_FILE
from penstock.log.maintenance.compaction import compact
from penstock.log.reader import PartitionReader
from penstock.log.record_order import LogOrder, Offsets, RangeOrder, beginning, ends
from penstock.record import Record, entries
from tests.contract.log import config
from tests.log.samples import numbered

WORKERS = 3


def place_list(ranges: dict[int, tuple[int, int]], log: LocalLog) -> list[tuple[int, int]]:
    """The records of ranges as a merge would apply them: (partition, offset) by rank."""
    found = [
        (p, offset)
        for p, (start, end) in ranges.items()
        for rows in log.read(p, start, end)
        for offset in rows.column("offset").to_pylist()
    ]
    if not found:
        return []
    partitions, offsets = np.array(found, np.int64).T
    ranks = RangeOrder(log, ranges).ranks(partitions, offsets)
    return [found[row] for row in np.argsort(ranks)]


def batches(log: LocalLog, stop: Offsets, max_records: int | None, max_bytes: int | None) -> Iterator[Offsets]:
    at = dict.fromkeys(stop, 0)
    while at != stop:
        reached = at | beginning(log, at, stop, max_records, max_bytes)
        assert reached != at
        yield reached
        at = reached


@pytest.fixture(scope="module")
def spare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("order")


appends = st.lists(st.tuples(st.integers(0, WORKERS - 1), st.integers(1, 4)), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(appends, st.none() | st.integers(1, 12), st.none() | st.integers(1, 2000), st.data())
def test_batches_of_any_size_apply_what_was_acknowledged_first_before_the_rest(
    spare: Callable[[], Path],
    appended: list[tuple[int, int]],
    max_records: int | None,
    max_bytes: int | None,
    data: st.DataObject,
) -> None:
    """One after the other, each sent after the one before was acknowledged, to partitions in any order; with writers
    that are opened anew in between, and batches that are taken in between."""
    log = LocalLog(spare(), config(segment_bytes=1000, fsync="never"))
    writers = {worker: log.writer("web", worker) for worker in range(WORKERS)}
    sent: list[tuple[int, int]] = []
    applied: list[tuple[int, int]] = []
    at: Offsets = dict.fromkeys(range(WORKERS), 0)

    def take() -> None:
        nonlocal at
        stop = ends(log)
        while at != stop:
            reached = at | beginning(log, at, stop, max_records, max_bytes)
            assert reached != at
            taken = place_list({p: (at[p], end) for p, end in reached.items() if at[p] < end}, log)
            if max_records is not None:
                assert len(taken) <= max_records
            applied.extend(taken)
            at = reached
            if data.draw(st.booleans()):
                return

    for worker, count in appended:
        writer = writers[worker]
        if data.draw(st.integers(0, 5)) == 0:
            writer.close()
            writer = writers[worker] = log.writer("web", worker)
        sent += [(writer.partition, offset) for offset in writer.append(numbered(range(count)))]
        if data.draw(st.integers(0, 4)) == 0:
            take()
    for writer in writers.values():
        writer.close()
    while len(applied) < len(sent):
        take()
    assert applied == sent


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, WORKERS - 1), min_size=2, max_size=20), st.none() | st.integers(1, 5), st.data())
def test_appends_that_overlap_come_in_any_order_but_never_before_what_was_acknowledged_before_they_were_sent(
    spare: Callable[[], Path], workers: list[int], most: int | None, data: st.DataObject
) -> None:
    """Between an append's stamp and its publication others are sent and acknowledged, and batches are taken."""
    log = LocalLog(spare(), config(fsync="never"))
    writers = [log.writer("web", worker) for worker in range(WORKERS)]
    waiting, busy = list(workers), set[int]()
    sent_at: dict[tuple[int, int], int] = {}
    acknowledged_at: dict[tuple[int, int], int] = {}
    applied: list[tuple[int, int]] = []
    at: Offsets = dict.fromkeys(range(WORKERS), 0)
    moments = itertools.count()

    def take() -> None:
        nonlocal at
        reached = at | beginning(log, at, ends(log), most, None)
        applied.extend(place_list({p: (at[p], end) for p, end in reached.items() if at[p] < end}, log))
        at = reached

    def append() -> None:
        free = [place for place, worker in enumerate(waiting) if worker not in busy]
        if not free:
            return
        worker = waiting.pop(free[0])
        busy.add(worker)
        moment = next(moments)
        taken = writers[worker].append(numbered(range(2)))
        busy.remove(worker)
        places = [(writers[worker].partition, offset) for offset in taken]
        sent_at.update(dict.fromkeys(places, moment))
        acknowledged_at.update(dict.fromkeys(places, next(moments)))

    def meanwhile(point: str) -> None:
        if point == "log.append.before_write":
            for _ in range(data.draw(st.integers(0, 2))):
                append()
            if data.draw(st.booleans()):
                take()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(penstock.log.writer, "reach", meanwhile)
        while waiting:
            append()
            if data.draw(st.booleans()):
                take()
    while len(applied) < len(sent_at):
        take()
    for writer in writers:
        writer.close()
    assert len(set(applied)) == len(applied)
    turn = {place: number for number, place in enumerate(applied)}
    for earlier, done in acknowledged_at.items():
        for later, began in sent_at.items():
            if done < began:
                assert turn[earlier] < turn[later]


def test_many_small_appends_are_cut_where_they_must_be(tmp_path: Path) -> None:
    """Past what the indexes mark: the cut is found between their entries."""
    log = LocalLog(tmp_path, config(segment_bytes=200_000, fsync="never"))
    sent: list[tuple[int, int]] = []
    with log.writer("web", 0) as zero, log.writer("web", 1) as one:
        for number in range(3000):
            writer = one if number % 7 in (1, 2) else zero
            sent += [(writer.partition, offset) for offset in writer.append(numbered(range(4)))]
    stop = ends(log)
    assert sum(stop.values()) == len(sent)
    for size in (1, 4999, 9001, 11_999):
        reached = beginning(log, {}, stop, size, None)
        assert sum(reached.values()) == size
        taken = {(p, offset) for p, end in reached.items() for offset in range(end)}
        assert taken == set(sent[:size])
    assert beginning(log, {}, stop, 12_000, None) == stop


def test_a_look_at_the_ends_never_shows_a_record_without_one_that_was_acknowledged_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are looked at one after the other. Between any two looks more is appended, to each in turn."""
    log = LocalLog(tmp_path, config(fsync="never"))
    writers = [log.writer("web", worker) for worker in range(WORKERS)]
    sent: list[tuple[int, int]] = []

    def append() -> None:
        for writer in writers:
            sent.extend((writer.partition, offset) for offset in writer.append(numbered(range(2))))

    look = PartitionReader.published_end

    def slow_look(self: PartitionReader) -> object:
        append()
        return look(self)

    monkeypatch.setattr(PartitionReader, "published_end", slow_look)
    for _ in range(5):
        append()
        acknowledged = len(sent)
        found = ends(log)
        there = [place for place in sent if place[1] < found[place[0]]]
        assert there == sent[: len(there)]
        assert len(there) >= acknowledged


def test_what_comes_before_a_record_is_what_is_older_in_every_partition(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, config(fsync="never"))
    sent: list[tuple[int, int]] = []
    with log.writer("web", 0) as zero, log.writer("web", 1) as one:
        for writer, count in ((one, 2), (zero, 3), (zero, 1), (one, 2), (zero, 2)):
            sent += [(writer.partition, offset) for offset in writer.append(numbered(range(count)))]
    whole = {0: (0, 6), 1: (0, 4)}
    for number, place in enumerate(sent):
        found = LogOrder(log).before(whole, place)
        assert {(p, o) for p, (start, end) in found.items() for o in range(start, end)} == set(sent[:number])


@pytest.mark.parametrize("lost", ["nothing", "the clock", "the clock and the heads", "an older clock"])
@pytest.mark.parametrize("segment_bytes", [1500, 2**20])
@pytest.mark.parametrize("many", [5, 5000])
def test_appends_after_a_restart_are_newer_than_all_before_it(
    tmp_path: Path, lost: str, segment_bytes: int, many: int
) -> None:
    """A power cut may leave an older clock, or none, and older heads. With many records an index names the very end."""
    log = LocalLog(tmp_path, config(segment_bytes=segment_bytes))
    with log.writer("web", 0) as zero, log.writer("web", 1) as one:
        zero.append(numbered(range(5)))
        older = (tmp_path / CLOCK_FILE).read_bytes()
        for _ in range(20):
            one.append(numbered(range(5)))
        one.append(numbered(range(many)))
    if lost == "an older clock":
        (tmp_path / CLOCK_FILE).write_bytes(older)
    elif lost != "nothing":
        (tmp_path / CLOCK_FILE).unlink()
    if lost == "the clock and the heads":
        (tmp_path / "1" / "head").unlink()
        # What a roll leaves when it is cut off: a segment in which nothing is yet.
        segment_path(tmp_path / "1", log.bounds(0).end + 10**6).touch()
    with log.writer("web", 0) as zero:
        zero.append(numbered([100]))
    assert log.reader(0).stamp_at(5) > last_frame_stamp(tmp_path / "1")


def last_frame_stamp(directory: Path) -> int:
    contents = [segment_path(directory, base).read_bytes() for base in segment_bases(directory)]
    content = [each for each in contents if each][-1]
    position = stamp = 0
    while position < len(content):
        header = decode_header(content[position:])
        position, stamp = position + header.frame_bytes, header.stamp
    return stamp


def test_a_wall_clock_that_steps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LocalLog(tmp_path, config(fsync="never"))
    sent: list[tuple[int, int]] = []
    now = 1_900_000_000.0
    for step in (0.0, -3 * 3600.0, 2 * 86_400.0, -10 * 86_400.0, 0.0):
        now += step
        monkeypatch.setattr(time, "time", lambda at=now: at)
        for worker in (0, 1, 0):
            with log.writer("web", worker) as writer:
                sent += [(writer.partition, offset) for offset in writer.append(numbered(range(2)))]
    stop = ends(log)
    assert place_list({p: (0, end) for p, end in stop.items()}, log) == sent


_KILLED = """
import os, sys
from pathlib import Path
from penstock import faults
from penstock.log.local_log import LocalLog
from tests.log.samples import numbered

def die(point):
    if point == sys.argv[2]:
        os._exit(9)

faults.reach = die
import penstock.log.writer
penstock.log.writer.reach = die
writer = LocalLog(Path(sys.argv[1])).writer("web", 1)
if sys.argv[2] == "opened":
    os._exit(9)
writer.append(numbered([7]))
"""


@pytest.mark.parametrize("point", ["opened", "log.append.before_write", "log.append.before_fsync"])
def test_a_writer_that_is_killed_leaves_the_order_as_it_was(tmp_path: Path, point: str) -> None:
    log = LocalLog(tmp_path)
    with log.writer("web", 0) as zero:
        zero.append(numbered(range(3)))
        assert subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), point], check=False).returncode == 9
        zero.append(numbered(range(3)))
        with log.writer("web", 1) as one:
            one.append(numbered(range(3)))
        zero.append(numbered(range(3)))
    stop = ends(log)
    found = place_list({p: (0, end) for p, end in stop.items()}, log)
    own = [place for place in found if place[0] == 1][-3:]
    assert found.index((0, 5)) < found.index(own[0])
    assert found.index(own[-1]) < found.index((0, 6))


def test_a_clock_with_bytes_that_nobody_wrote_is_repaired(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    with log.writer("web", 0) as zero:
        zero.append(numbered(range(3)))
    (tmp_path / CLOCK_FILE).write_bytes(b"\xff" * 15 + b"\x7f" * 33)
    with log.writer("web", 1) as one:
        one.append(numbered(range(3)))
    with log.writer("web", 0) as zero:
        zero.append(numbered(range(3)))
    assert log.reader(0).stamp_at(0) < log.reader(1).stamp_at(0) < log.reader(0).stamp_at(3)


def test_a_clock_that_is_taken_away_from_writers_at_work_is_made_anew(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    sent: list[tuple[int, int]] = []
    with log.writer("web", 0) as zero, log.writer("web", 1) as one:
        for turn in range(4):
            for writer in (one, zero, one):
                sent += [(writer.partition, offset) for offset in writer.append(numbered(range(2)))]
            (tmp_path / CLOCK_FILE).unlink()
            with log.writer("files") as files:
                sent += [(files.partition, offset) for offset in files.append(numbered([turn]))]
    assert place_list({p: (0, end) for p, end in ends(log).items()}, log) == sent


def test_compaction_keeps_the_order(tmp_path: Path) -> None:
    """What is left of many appends lies in one frame; each record is still where it was among other partitions'."""
    log = LocalLog(tmp_path, config(segment_bytes=6000, fsync="never"))
    sent: list[tuple[int, int]] = []
    with log.writer("web", 0) as zero, log.writer("web", 1) as one:
        for number in range(120):
            writer = zero if number % 3 else one
            # Every second key comes once only, so something is left of every segment.
            keys = [f"k{number}", "again"]
            batch = entries(Record(b"{}", namespace="shop", key=key) for key in keys)
            sent += [(writer.partition, offset) for offset in writer.append(batch)]
    stop = ends(log)
    done = compact(log, stop)
    assert all(each.dropped > 10 for each in done)
    whole = {p: (0, end) for p, end in stop.items()}
    left = set(place_list(whole, log))
    expected = [place for place in sent if place in left]
    assert place_list(whole, log) == expected
    for size in (1, 10, 31, 64):
        got: list[tuple[int, int]] = []
        at: Offsets = dict.fromkeys(stop, 0)
        for reached in batches(log, stop, size, None):
            got += place_list({p: (at[p], end) for p, end in reached.items() if at[p] < end}, log)
            at = reached
        assert got == expected
    for place in expected[::7]:
        found = LogOrder(log).before(whole, place)
        earlier = [p for p in expected if p[0] in found and p[1] < found[p[0]][1]]
        assert earlier == expected[: expected.index(place)]


def as_format_1(directory: Path) -> None:
    """Rewrite a partition as it was written before there were stamps."""
    for base in segment_bases(directory):
        path = segment_path(directory, base)
        content = bytearray(path.read_bytes())
        position = 0
        while position < len(content):
            size = decode_header(bytes(content[position:])).frame_bytes
            content[position + 4] = 1
            # Where the stamp is now there was the lowest timestamp.
            struct.pack_into("<q", content, position + 40, 1_900_000_000_000_000)
            checked = bytes(content[position : position + 60])
            struct.pack_into("<I", content, position + 60, google_crc32c.value(checked))
            position += size
        path.write_bytes(content)
    head = (directory / "head").read_bytes()
    fields = struct.pack("<4sIqqqq", b"PNSH", 1, *struct.unpack_from("<qqqq", head, 8))
    (directory / "head").write_bytes(fields + struct.pack("<Q", google_crc32c.value(fields)))


def test_a_log_from_before_there_was_an_order_is_read_and_is_older_than_what_comes(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, config(segment_bytes=1500))
    for worker in (0, 1):
        with log.writer("web", worker) as writer:
            for first in range(0, 30, 5):
                writer.append(numbered(range(first, first + 5)))
    for partition in (0, 1):
        as_format_1(tmp_path / str(partition))
    (tmp_path / CLOCK_FILE).unlink()
    log = LocalLog(tmp_path, config(segment_bytes=1500))
    assert ends(log) == {0: 30, 1: 30}
    assert [log.reader(0).stamp_at(0), log.reader(1).stamp_at(29)] == [0, 0]
    sent: list[tuple[int, int]] = []
    with log.writer("web", 0) as zero, log.writer("web", 1) as one:
        for writer in (one, zero, one):
            sent += [(writer.partition, offset) for offset in writer.append(numbered(range(2)))]
    stop = ends(log)
    old = [(p, offset) for p in (0, 1) for offset in range(30)]
    assert place_list({p: (0, end) for p, end in stop.items()}, log) == old + sent
    for size in (7, 61, 64):
        got: list[tuple[int, int]] = []
        at: Offsets = dict.fromkeys(stop, 0)
        for reached in batches(log, stop, size, None):
            got += place_list({p: (at[p], end) for p, end in reached.items() if at[p] < end}, log)
            at = reached
        assert got == old + sent


def test_two_partitions_may_be_opened_in_any_order_after_a_copy_is_put_back(tmp_path: Path) -> None:
    """A copy that was taken while the log was written: the clock's file may be older than what it is beside."""
    log = LocalLog(tmp_path / "log", config(fsync="never"))
    with log.writer("web", 0) as zero, log.writer("web", 1) as one:
        zero.append(numbered(range(3)))
        shutil.copy(log.directory / CLOCK_FILE, tmp_path / "clock")
        one.append(numbered(range(3)))
        one.append(numbered(range(3)))
        shutil.copytree(log.directory, tmp_path / "copy")
        shutil.copy(tmp_path / "clock", tmp_path / "copy" / CLOCK_FILE)
    back = LocalLog(tmp_path / "copy")
    with back.writer("web", 0) as zero:
        zero.append(numbered(range(3)))
    assert back.reader(0).stamp_at(3) > back.reader(1).stamp_at(5)


def test_a_partition_with_a_long_way_to_go_does_not_keep_what_is_older_elsewhere(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, config(fsync="never"))
    with log.writer("files") as files, log.writer("web") as web:
        files.append(numbered(range(10)))
        web.append(numbered(range(5)))
        for _ in range(200):
            files.append(numbered(range(10)))
    assert beginning(log, {}, ends(log), 20, None) == {0: 15, 1: 5}
