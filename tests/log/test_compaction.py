"""Compaction: of each key the newest record stays, at its offset, and nothing that anyone holds is touched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import LogError
from penstock.log.format.frame import HEADER_BYTES, MAX_FRAME_BYTES
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.compaction import Compacted, compact, is_due
from penstock.log.maintenance.maintenance_lock import lock_for_maintenance
from penstock.log.maintenance.verify import verify
from penstock.record import ENTRY_SCHEMA, Record, entries, records
from tests.contract.log import config
from tests.log.samples import START, key_of, number, numbered, numbers, repeating, segments

NO_AGE = {"max_age": None}


def filled(directory: Path, count: int = 400, size: int = 20, **options: object) -> LocalLog:
    """``count`` entries with few keys, five to an append, in many small segments."""
    log = LocalLog(directory, config(**{"segment_bytes": 6000, "retention": NO_AGE, **options}))
    with log.writer("web") as writer:
        for first in range(0, count, 5):
            writer.append(repeating(range(first, min(first + 5, count)), size))
    return log


def bases(log: LocalLog) -> list[int]:
    return [int(path.stem) for path in segments(log)]


def compacted_end(log: LocalLog, floor: int) -> int:
    """Up to where segments are closed and wholly below the floor."""
    return max((base for base in bases(log) if base <= floor), default=0)


def left_of(offsets: Iterable[int], end: int) -> list[int]:
    """What is left when the first ``end`` offsets are compacted: the newest of each key, and everything later."""
    there = list(offsets)
    newest = {key_of(n): n for n in there}
    return [n for n in there if n >= end or newest[key_of(n)] == n]


def one(done: list[Compacted]) -> Compacted:
    (only,) = done
    return only


@pytest.mark.parametrize("floor", [0, 1, 60, 123, 250, 399, 400, 10**9])
def test_the_newest_of_each_key_in_the_whole_log_stays_and_all_from_the_floor_on(tmp_path: Path, floor: int) -> None:
    log = filled(tmp_path)
    end = compacted_end(log, floor)
    done = one(compact(log, {0: floor}))
    expected = left_of(range(400), end)
    assert numbers(log) == [(n, n) for n in expected]
    assert numbers(LocalLog(tmp_path)) == [(n, n) for n in expected]
    assert (done.dropped, done.kept) == (400 - len(expected), len([n for n in expected if n < end]))
    assert log.usage()[0].records == len(expected)
    assert [check.is_whole for check in verify(log)] == [True]


def test_a_record_is_the_same_after_compaction(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, config(segment_bytes=3000))
    with log.writer("web") as writer:
        for n in range(40):
            writer.append(numbered([n]))
    before = {r.offset: r for batch in log.read(0, 0) for r in records(batch)}
    assert one(compact(log, {0: 40})).dropped > 10
    after = [r for batch in log.read(0, 0) for r in records(batch)]
    assert after == [before[r.offset] for r in after]


def test_the_segment_that_is_written_counts_but_is_not_touched(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, config(segment_bytes=4000))
    with log.writer("web") as writer:
        for n in range(0, 100, 10):
            writer.append(repeating(range(n, n + 10), 30))
        active = segments(log)[-1]
        content = active.read_bytes()
        compact(log, {0: 100})
        assert active.read_bytes() == content
        assert writer.append(repeating([100])) == range(100, 101)
    assert numbers(log) == [(n, n) for n in [*left_of(range(100), int(active.stem)), 100]]


@pytest.mark.parametrize("fsync", ["never", {"interval": "1h"}])
def test_what_a_power_cut_may_take_makes_nothing_older_superfluous(tmp_path: Path, fsync: object) -> None:
    log = LocalLog(tmp_path, config(segment_bytes=2000, fsync=fsync))
    with log.writer("web") as writer:
        for n in range(20):
            writer.append(entries([Record(b"%d" % n + b"." * 500, "shop", key="k", timestamp=START)]))
        closed_end = bases(log)[-1]
        compact(log, {0: 20})
        assert numbers(log) == [(n, n) for n in [closed_end - 1, *range(closed_end, 20)]]
    compact(log, {0: 20})
    assert numbers(log) == [(n, n) for n in range(closed_end, 20)]


def test_a_partition_without_a_floor_is_left_alone(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert compact(log, {}) == []
    assert compact(log, {7: 400}) == []
    assert len(numbers(log)) == 400


def test_small_segments_are_put_together(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = bases(log)
    done = one(compact(log, {0: 400}))
    after = bases(log)
    assert (done.segments_before, done.segments_after) == (len(before) - 1, len(after) - 1)
    assert len(after) < len(before) / 3
    assert set(after) <= set(before)
    assert after[-1] == before[-1]
    assert all(path.stat().st_size <= 6000 for path in segments(log))
    assert done.bytes_after == sum(path.stat().st_size for path in segments(log)[:-1]) < done.bytes_before
    assert sorted(path.stem for path in (tmp_path / "0").glob("*.idx")) == sorted(p.stem for p in segments(log))


def test_old_segments_are_not_put_together_with_young_ones_where_retention_goes_by_age(tmp_path: Path) -> None:
    options = {"segment_bytes": 4000, "segment_age": "60s", "retention": {"max_age": "1h"}, "compression": "zstd"}
    log = LocalLog(tmp_path, config(**options))
    with log.writer("web") as writer:
        for n in range(0, 400, 10):
            writer.append(numbered(range(n, n + 10), 100))
    log = LocalLog(tmp_path, config(**{**options, "segment_bytes": "1MB"}))
    done = one(compact(log, {0: 400}))
    assert 400 / 60 - 1 <= done.segments_after < done.segments_before / 3
    assert log.apply_retention({0: 400}, START + timedelta(hours=1, seconds=200))
    oldest = log.reader(0).stored_span().first
    assert oldest is not None
    assert 200 - 60 <= oldest <= 200


def test_compacting_again_changes_no_file(tmp_path: Path) -> None:
    log = filled(tmp_path)
    compact(log, {0: 400})
    files = {path.name: path.stat().st_ino for path in segments(log)}
    done = one(compact(log, {0: 400}))
    assert done.dropped == 0
    assert {path.name: path.stat().st_ino for path in segments(log)} == files


def test_a_log_is_compacted_again_and_again_as_it_grows(tmp_path: Path) -> None:
    log = filled(tmp_path, count=100)
    kept = list(range(100))
    for n in range(100, 800, 100):
        with log.writer("web") as writer:
            for first in range(n, n + 100, 20):
                writer.append(repeating(range(first, first + 20), 20))
        kept += range(n, n + 100)
        end = compacted_end(log, n + 50)
        compact(log, {0: n + 50})
        kept = left_of(kept, end)
        assert numbers(log) == [(k, k) for k in kept]
    assert len(segments(log)) < 12


def test_large_frames_with_few_records_left_stay_within_the_limit_of_a_frame(tmp_path: Path) -> None:
    count = 640_000
    numbers_as_text = pa.array(range(count)).cast(pa.string())
    columns = {
        "timestamp": pa.array([START] * count, ENTRY_SCHEMA.field("timestamp").type),
        "namespace": pa.repeat("shop", count),
        "op": pa.repeat("insert", count),
        "mode": pa.repeat("sync", count),
        "key": numbers_as_text,
        "headers": pa.nulls(count, ENTRY_SCHEMA.field("headers").type),
        "data": pa.repeat(pa.scalar(b"x" * 50), count),
    }
    full = pa.RecordBatch.from_arrays(list(columns.values()), schema=ENTRY_SCHEMA)
    assert full.nbytes <= MAX_FRAME_BYTES < full.nbytes + 8 * count
    log = LocalLog(tmp_path, config(segment_bytes="1MB"))
    with log.writer("web") as writer:
        writer.append(full)
        writer.append(entries([Record(b"5", "shop", key="5")]))
    assert one(compact(log, {0: count})).dropped == 1
    assert log.usage()[0].records == count
    assert numbers(log, 0, count) == [(count, 5)]
    assert [check.is_whole for check in verify(log)] == [True]


def _reading(log: LocalLog) -> Iterator[int]:
    """Offsets as a reader meets them that takes one small batch at a time."""
    for batch in log.read(0, 0, max_batch_records=1):
        yield from batch.column("offset").to_pylist()


@pytest.mark.parametrize("before", [0, 1, 30, 200, 399])
def test_a_reader_goes_on_while_the_log_is_compacted_under_it(tmp_path: Path, before: int) -> None:
    log = filled(tmp_path)
    other = LocalLog(tmp_path, log.config)
    reading = _reading(log)
    seen = [next(reading) for _ in range(before)]
    compact(other, {0: 400})
    seen += reading
    assert seen == sorted(set(seen))
    assert set(left_of(range(400), bases(log)[-1])) <= set(seen)
    assert numbers(log) == [(n, n) for n in left_of(range(400), bases(log)[-1])]


def test_a_reader_goes_on_when_even_the_segment_that_was_written_is_compacted(tmp_path: Path) -> None:
    log = filled(tmp_path, count=90, size=200)
    reading = _reading(log)
    seen = [next(reading) for _ in range(3)]
    with LocalLog(tmp_path, log.config).writer("web") as writer:
        for n in range(90, 180, 5):
            writer.append(repeating(range(n, n + 5), 200))
    compact(LocalLog(tmp_path, log.config), {0: 180})
    seen += reading
    assert seen == sorted(set(seen))
    assert {n for n in left_of(range(180), bases(log)[-1]) if n < 90} <= set(seen)


def test_a_reader_does_not_take_an_end_that_it_knew_for_a_place_in_the_compacted_file(tmp_path: Path) -> None:
    options = config(segment_bytes=20_000, compression="none")
    log = LocalLog(tmp_path, options)

    def append_up_to(count: int) -> int:
        """Fill segments until there are so many; three of four records stay, so they are too large to be merged."""
        while len(segments(log)) < count:
            first = writer.next_offset
            keys = {n: f"k{n}" if n % 4 else None for n in range(first, first + 10)}
            writer.append(entries(Record(b"%d" % n + b"." * 200, "shop", key=key) for n, key in keys.items()))
        return writer.next_offset

    with log.writer("web") as writer:
        known = append_up_to(2)
        reading = _reading(log)
        seen = [next(reading)]
        done = one(compact(LocalLog(tmp_path, options), {0: append_up_to(3)}))
    assert (done.segments_before, done.segments_after) == (2, 2)
    seen += reading
    assert seen == sorted(set(seen))
    assert [n for n in seen if n >= bases(log)[1]] == [n for n, _ in numbers(log, 0, bases(log)[1], known)]


def test_one_at_a_time_changes_closed_segments(tmp_path: Path) -> None:
    log = filled(tmp_path, retention={"max_age": "1s"})
    with lock_for_maintenance(tmp_path / "0") as ours:
        assert ours
        with pytest.raises(LogError, match=r"PEN-LOG-013.*partition 0"):
            compact(log, {0: 400})
        assert log.apply_retention({0: 400}, START + timedelta(days=1)) == []
    assert len(numbers(log)) == 400
    assert one(compact(log, {0: 400})).dropped > 0


def test_a_damaged_log_is_not_compacted_and_loses_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path)
    damaged = segments(log)[2]
    content = bytearray(damaged.read_bytes())
    content[HEADER_BYTES + 50] ^= 1
    damaged.write_bytes(content)
    before = {path.name: path.read_bytes() for path in segments(log)}
    with pytest.raises(LogError, match="PEN-LOG-003"):
        compact(log, {0: 400})
    assert {path.name: path.read_bytes() for path in segments(log)} == before
    assert not (tmp_path / "0" / "compacting").exists()


_WITH_A_QUOTA = """
import resource, sys
from pathlib import Path
from penstock.log.maintenance.compaction import compact
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import numbered, numbers
log = LocalLog(Path(sys.argv[1]), config(segment_bytes=100_000))
with log.writer("web") as writer:
    for n in range(0, 3000, 100):
        writer.append(numbered(range(n, n + 100), 300))
before = numbers(log)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
try:
    compact(log, {0: 3000})
except OSError as error:
    print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert numbers(log) == before
assert compact(log, {0: 3000})[0].dropped > 0
"""


@pytest.mark.parametrize("quota", [100, 10_000])
def test_without_room_nothing_is_lost_and_with_room_it_is_done(tmp_path: Path, quota: int) -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", _WITH_A_QUOTA, str(tmp_path), str(quota)]
    ran = subprocess.run(command, env={"PYTHONPATH": root}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "OSError"), ran.stderr


def test_it_is_due_when_half_of_the_log_is_new(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert not is_due(log, 0, 0)
    assert not is_due(log, 0, 150)
    assert is_due(log, 0, 400)
    compact(log, {0: 400})
    assert not is_due(log, 0, 400)
    with log.writer("web") as writer:
        for n in range(400, 800, 5):
            writer.append(repeating(range(n, n + 5), 20))
    assert not is_due(log, 0, 400)
    assert is_due(log, 0, 800)


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    told: list[tuple[int, int, int]] = []
    compact(filled(tmp_path), {0: 400}, progress=lambda *how_far: told.append(how_far))
    assert {partition for partition, _, _ in told} == {0}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1] == told[-1][2] > 0


def test_records_are_read_back_by_number(tmp_path: Path) -> None:
    log = filled(tmp_path)
    compact(log, {0: 400})
    left = left_of(range(400), bases(log)[-1])
    found = log.fetch((0, n) for n in range(400))
    assert [number(data) for batch in found for data in batch.column("data").to_pylist()] == left
