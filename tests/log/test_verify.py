"""What is damaged is found, with file, byte and offsets; what is not is never called so."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log.format.frame import HEADER_BYTES, gone_header, pack_header
from penstock.log.format.head import pack, read_head
from penstock.log.format.index import IndexWriter, Place
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.compaction import compact
from penstock.log.maintenance.verify import PartitionCheck, check_partition, verify
from tests.contract.log import config
from tests.log.samples import numbered, numbers, segments

FRAME = 3
"""Records in each frame of the log."""


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    log = LocalLog(tmp_path, config(segment_bytes=4096))
    with log.writer("web") as writer:
        for n in range(0, 60, FRAME):
            writer.append(numbered(range(n, n + FRAME)))
    return log


def only(log: LocalLog) -> PartitionCheck:
    (check,) = verify(log)
    return check


def frames_of(segment: Path) -> list[int]:
    content = segment.read_bytes()
    found, at = [], content.find(b"PNSF")
    while at >= 0:
        found.append(at)
        at = content.find(b"PNSF", at + 1)
    return found


def test_a_whole_log_is_called_whole_and_counted(log: LocalLog) -> None:
    check = only(log)
    usage = log.usage()[0]
    assert check.is_whole
    assert (check.records, check.bytes, check.segments) == (60, usage.bytes, usage.segments)
    assert (check.frames, check.partition, check.source) == (20, 0, "web")


def test_an_empty_log_and_one_that_is_being_written_are_whole(tmp_path: Path) -> None:
    assert list(verify(LocalLog(tmp_path / "none"))) == []
    log = LocalLog(tmp_path / "log", config(segment_bytes=2000, fsync="never"))
    with log.writer("web") as writer:
        assert only(log).is_whole
        for n in range(30):
            writer.append(numbered([n]))
            assert only(log).is_whole
    assert only(log).records == 30


def test_every_flipped_bit_is_found_and_named_with_the_offsets_of_its_frame(log: LocalLog) -> None:
    rng = random.Random(3)
    for segment in segments(log):
        whole, starts = segment.read_bytes(), frames_of(segment)
        for position in [*range(0, HEADER_BYTES, 5), *rng.sample(range(len(whole)), 25)]:
            content = bytearray(whole)
            content[position] ^= 1 << rng.randrange(8)
            segment.write_bytes(content)
            number = sum(start <= position for start in starts) - 1
            first = int(segment.stem) + number * FRAME
            end = starts[number + 1] if number + 1 < len(starts) else len(whole)
            [damage] = check_partition(log, 0).damage
            assert (damage.segment, damage.position, damage.bytes) == (segment, starts[number], end - starts[number])
            assert (damage.first, damage.end) == (first, first + FRAME)
        segment.write_bytes(whole)
    assert only(log).is_whole


def test_damage_in_several_places_is_found_in_one_go_and_what_lies_between_is_not_lost(log: LocalLog) -> None:
    first, second, third = segments(log)[:3]
    for segment, position in [(first, 70), (first, frames_of(first)[2] + 3), (third, 100)]:
        content = bytearray(segment.read_bytes())
        content[position] ^= 4
        segment.write_bytes(content)
    second.unlink()
    base = int(third.stem)
    assert [(d.segment, d.first, d.end) for d in only(log).damage] == [
        (first, 0, 3),
        (first, 6, base),
        (third, base, base + 3),
    ]


@pytest.mark.parametrize("length", ["nothing", "half a frame", "a frame"])
def test_a_file_that_was_cut_short_is_damage_also_between_frames(log: LocalLog, length: str) -> None:
    for segment in (segments(log)[1], segments(log)[-1]):
        whole, starts = segment.read_bytes(), frames_of(segment)
        cut = {"nothing": 0, "half a frame": starts[1] - 30, "a frame": starts[1]}[length]
        segment.write_bytes(whole[:cut])
        [damage] = only(log).damage
        first = int(segment.stem) + FRAME * (cut == starts[1])
        following = [int(other.stem) for other in segments(log) if other > segment]
        assert (damage.first, damage.end) == (first, min(following, default=60))
        segment.write_bytes(whole)


def test_the_rest_of_a_torn_write_is_no_damage(log: LocalLog) -> None:
    last = segments(log)[-1]
    for torn in (b"PNSF", bytes(500), last.read_bytes()[:-9]):
        whole = last.read_bytes()
        last.write_bytes(whole + torn[: len(torn) // 2])
        assert only(log).is_whole
        last.write_bytes(whole)


def test_a_bad_frame_behind_the_head_with_whole_ones_behind_it_is_damage(log: LocalLog) -> None:
    last, directory = segments(log)[-1], log.directory / "0"
    head = read_head(directory)
    assert head is not None
    (directory / "head").write_bytes(pack(head._replace(position=0, durable=0, next_offset=head.segment)))
    content = bytearray(last.read_bytes())
    content[HEADER_BYTES + 20] ^= 1
    last.write_bytes(content)
    [damage] = only(log).damage
    assert (damage.segment, damage.position, damage.first) == (last, 0, head.segment)


def test_a_head_that_cannot_be_read_is_said(log: LocalLog) -> None:
    (log.directory / "0" / "head").write_bytes(b"rubbish")
    check = only(log)
    assert check.head_problem is not None
    assert "head cannot be read" in check.head_problem
    assert (check.damage, check.records) == ((), 60)


def test_every_flipped_bit_of_an_index_is_found_and_readers_do_not_mind(log: LocalLog) -> None:
    for segment in (segments(log)[1], segments(log)[-1]):
        index = segment.with_suffix(".idx")
        whole = index.read_bytes()
        for bit in range(0, 8 * len(whole), 5):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            index.write_bytes(content)
            check = only(log)
            assert (check.wrong_indexes, check.damage, check.is_whole) == ((index,), (), False)
            assert numbers(LocalLog(log.directory)) == [(n, n) for n in range(60)]
        index.write_bytes(whole)
    assert only(log).is_whole


def test_a_flipped_bit_of_an_index_is_repaired_by_whoever_opens_the_log_for_writing(log: LocalLog) -> None:
    for segment in segments(log):
        index = segment.with_suffix(".idx")
        content = bytearray(index.read_bytes())
        content[-3] ^= 4
        index.write_bytes(content)
    assert len(only(log).wrong_indexes) == len(segments(log))
    log.writer("web").close()
    assert only(log).is_whole


def test_what_a_full_disk_cut_off_an_index_is_no_damage(log: LocalLog) -> None:
    index = segments(log)[-1].with_suffix(".idx")
    index.write_bytes(index.read_bytes() + b"half an entry")
    assert only(log).is_whole


def test_an_index_that_does_not_fit_is_named_and_one_of_an_earlier_file_is_not(log: LocalLog) -> None:
    index = segments(log)[1].with_suffix(".idx")
    base = int(index.stem)
    lying = IndexWriter(index, base)
    lying.add(Place(base + 1, frames_of(segments(log)[1])[1], 1, 1, 1))
    lying.close()
    assert only(log).wrong_indexes == (index,)
    assert not only(log).is_whole
    stale = IndexWriter(index, base, generation=7)
    stale.add(Place(base + 1, 77, 1, 1, 1))
    stale.close()
    assert only(log).is_whole
    index.unlink()
    assert only(log).is_whole


def test_a_compacted_log_is_whole(log: LocalLog) -> None:
    compact(log, {0: 60})
    assert only(log).is_whole
    assert only(log).records == log.usage()[0].records < 60


def test_files_that_an_interrupted_compaction_left_are_no_damage(log: LocalLog) -> None:
    shadowed = {path: path.read_bytes() for path in segments(log)[:3]}
    compact(log, {0: 60})
    kept = log.usage()[0].records
    missing = {path: content for path, content in shadowed.items() if not path.exists()}
    assert missing
    for path, content in missing.items():
        path.write_bytes(content)
    assert only(log).is_whole
    assert only(log).records == log.usage()[0].records == kept


def test_bytes_that_only_look_like_a_frame_are_not_taken_for_one(tmp_path: Path) -> None:
    """A record may hold a frame of some log. Behind damage it must not be read as one of this log."""
    log = LocalLog(tmp_path, config(compression="none"))
    fake = pack_header(gone_header(5, 400, 0))
    batch = numbered(range(1)).to_pylist()
    with log.writer("web") as writer:
        writer.append(numbered(range(3)))
        row = {**batch[0], "data": b" " * 64 + fake * 9 + b" " * 64}
        writer.append(numbered([3]).from_pylist([row], schema=numbered([3]).schema))
        writer.append(numbered([4]))
    segment = segments(log)[0]
    content = bytearray(segment.read_bytes())
    real = [p for p in frames_of(segment) if p % 8 == 0]
    assert len(real) > 3
    second = real[1]
    content[second + 20] ^= 1
    segment.write_bytes(content)
    [damage] = only(log).damage
    assert damage.position == second
    assert damage.first == 3
    assert damage.end >= 4


_WRITER = """
import sys
from pathlib import Path
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import numbered
with LocalLog(Path(sys.argv[1]), config(segment_bytes=20_000, fsync="never")).writer("web") as writer:
    while writer.next_offset < 2500:
        n = writer.next_offset
        writer.append(numbered(range(n, n + 1 + n % 6), n % 50))
"""


def test_a_log_is_whole_at_every_moment_while_another_process_writes_and_compaction_runs(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, config(segment_bytes=20_000))
    log.writer("web").close()
    root = str(Path(__file__).parents[2])
    writing = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], env={"PYTHONPATH": root})
    looks = 0
    while writing.poll() is None:
        assert only(log).is_whole
        compact(log, {0: log.bounds(0).end})
        looks += 1
    assert writing.returncode == 0
    assert only(log).is_whole
    assert looks > 1
