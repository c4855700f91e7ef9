"""Damage below what was known to be on disk is told, with file and byte; it is never cut off and never read as data."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.errors import LogError
from penstock.log.format.frame import HEADER_BYTES
from penstock.log.format.head import pack, read_head
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import fetched, numbered, numbers, segments


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    log = LocalLog(tmp_path, config(segment_bytes=4096))
    with log.writer("web") as writer:
        for n in range(0, 60, 3):
            writer.append(numbered(range(n, n + 3)))
    return log


def _flip(path: Path, position: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def test_no_flipped_bit_goes_unnoticed(log: LocalLog) -> None:
    middle = segments(log)[1]
    whole = middle.read_bytes()
    rng = random.Random(7)
    for position in [*range(HEADER_BYTES), *rng.sample(range(HEADER_BYTES, len(whole)), 150)]:
        _flip(middle, position, rng.randrange(8))
        with pytest.raises(
            LogError, match=rf"PEN-LOG-003: segment .*{middle.name} is damaged at byte \d+.*undamaged copy"
        ):
            numbers(LocalLog(log.directory))
        middle.write_bytes(whole)
    assert len(numbers(LocalLog(log.directory))) == 60


def test_the_error_names_the_frame_that_is_damaged(log: LocalLog) -> None:
    segment = segments(log)[1]
    second_frame = segment.read_bytes().index(b"PNSF", 8)
    _flip(segment, second_frame + HEADER_BYTES + 100)
    first = int(segment.stem) + 3
    with pytest.raises(LogError, match=rf"{segment.name} is damaged at byte {second_frame} \(offset {first}\): "):
        numbers(log)


def test_a_head_that_is_lost_does_not_make_the_log_look_empty(log: LocalLog) -> None:
    (log.partition_dir(0) / "head").unlink()
    fresh = LocalLog(log.directory)
    for look in (lambda: numbers(fresh), lambda: fresh.bounds(0), lambda: fresh.reader(0).stored_span()):
        with pytest.raises(LogError, match=r"PEN-LOG-007: .*head is missing, and there are records"):
            look()
    with fresh.writer("web"):
        pass
    assert len(numbers(fresh)) == 60


def test_records_before_and_behind_the_damage_can_be_read(log: LocalLog) -> None:
    segment = segments(log)[1]
    _flip(segment, HEADER_BYTES + 100)
    base = int(segment.stem)
    assert numbers(log, 0, 0, base) == [(n, n) for n in range(base)]
    assert numbers(log, 0, base + 3) == [(n, n) for n in range(base + 3, 60)]


def test_a_damaged_old_segment_does_not_keep_new_records_out(log: LocalLog) -> None:
    _flip(segments(log)[1], HEADER_BYTES + 100)
    with log.writer("web") as writer:
        assert writer.append(numbered([60])) == range(60, 61)


def _unpublish(log: LocalLog, position: int) -> None:
    """Put the head back to an early moment of the last segment, as a power loss may leave it."""
    directory = log.directory / "0"
    head = read_head(directory)
    assert head is not None
    (directory / "head").write_bytes(pack(head._replace(position=position, durable=position, next_offset=head.segment)))


def test_a_bad_frame_with_whole_ones_behind_it_is_no_torn_write(log: LocalLog) -> None:
    last = segments(log)[-1]
    _unpublish(log, 0)
    _flip(last, HEADER_BYTES + 50)
    size = last.stat().st_size
    with pytest.raises(LogError, match=rf"PEN-LOG-003.*{last.name} is damaged at byte 0"):
        log.writer("web")
    assert last.stat().st_size == size


def test_a_segment_shorter_than_what_was_durable_is_damage(log: LocalLog) -> None:
    last = segments(log)[-1]
    content = last.read_bytes()
    for length in (0, len(content) // 2, len(content) - 1):
        last.write_bytes(content[:length])
        with pytest.raises(LogError, match="PEN-LOG-003"):
            log.writer("web")
        with pytest.raises(LogError, match="PEN-LOG-003"):
            numbers(LocalLog(log.directory))
        assert last.stat().st_size == length


def test_a_missing_segment_is_damage(log: LocalLog) -> None:
    segments(log)[-1].unlink()
    with pytest.raises(LogError, match=r"PEN-LOG-003.*the file is missing"):
        log.writer("web")
    with pytest.raises(LogError, match=r"PEN-LOG-003.*the file is missing"):
        log.bounds(0)


def test_a_segment_missing_in_the_middle_is_no_silent_gap(log: LocalLog) -> None:
    gone = segments(log)[1]
    gone.unlink()
    assert numbers(log, 0, 0, 1) == [(0, 0)]
    with pytest.raises(LogError, match=rf"PEN-LOG-003: segment .*{gone.name} .*the file is missing"):
        numbers(log)


@pytest.mark.parametrize("harm", ["missing", "empty", "short", "flipped", "foreign"])
def test_an_index_is_never_missed_and_never_believed(tmp_path: Path, harm: str) -> None:
    log = LocalLog(tmp_path, config(segment_bytes="8MB", compression="none"))
    with log.writer("web") as writer:
        for n in range(0, 60_000, 1000):
            writer.append(numbered(range(n, n + 1000), size=200))
    foreign = segments(log)[0].with_suffix(".idx").read_bytes()
    for segment in segments(log)[1:]:
        index = segment.with_suffix(".idx")
        content = index.read_bytes()
        assert len(content) > 48
        changed = {
            "missing": None,
            "empty": b"",
            "short": content[:-60],
            "flipped": content[:60] + bytes([content[60] ^ 1]) + content[61:],
            "foreign": foreign,
        }[harm]
        index.unlink() if changed is None else index.write_bytes(changed)
    again = LocalLog(tmp_path)
    for start in (0, 12_345, 31_000, 59_999):
        assert numbers(again, 0, start, start + 2) == [(n, n) for n in range(start, min(start + 2, 60_000))]
    assert again.advance(0, 10, max_records=50_000) == 50_010
    assert again.usage()[0].records == 60_000
    with again.writer("web") as writer:
        assert writer.append(numbered([60_000])) == range(60_000, 60_001)
    assert fetched(again, [(0, 60_000), (0, 30_000)]) == ([30_000, 60_000], [])
