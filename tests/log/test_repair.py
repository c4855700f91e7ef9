"""After a repair the log goes on: what was whole is there, what was lost is named, and its bytes are kept."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import LogError
from penstock.log.format.frame import HEADER_BYTES
from penstock.log.format.head import Head, pack
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.compaction import compact
from penstock.log.maintenance.maintenance_lock import lock_for_maintenance
from penstock.log.maintenance.repair import repair
from penstock.log.maintenance.verify import Damage, verify
from tests.contract.log import config
from tests.log.crashing import crashing, fault_points
from tests.log.samples import numbered, numbers, segments

RECORDS = 60


@pytest.fixture
def log(quick_disk: Path) -> LocalLog:
    return filled(quick_disk / "log")


def filled(directory: Path) -> LocalLog:
    log = LocalLog(directory, config(segment_bytes=4096))
    with log.writer("web") as writer:
        for n in range(0, RECORDS, 3):
            writer.append(numbered(range(n, n + 3)))
    return log


def flip(segment: Path, position: int) -> None:
    content = bytearray(segment.read_bytes())
    content[position] ^= 1
    segment.write_bytes(content)


def lost(damages: tuple[Damage, ...]) -> set[int]:
    return {offset for damage in damages for offset in range(damage.first, damage.end)}


def goes_on_without(directory: Path, gone: set[int]) -> None:
    """The log is whole but for these offsets, takes more, and never gives a lost offset again."""
    log = LocalLog(directory, config(segment_bytes=4096))
    assert [check.is_whole for check in verify(log)] == [True]
    expected = [(n, n) for n in range(RECORDS) if n not in gone]
    assert numbers(log) == expected
    assert log.usage()[0].records == len(expected)
    with log.writer("web") as writer:
        assert writer.recovered is None
        assert writer.append(numbered([RECORDS])) == range(RECORDS, RECORDS + 1)
    assert numbers(log) == [*expected, (RECORDS, RECORDS)]
    compact(log, {0: RECORDS})
    assert [check.is_whole for check in verify(log)] == [True]


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("where", [0, 5, HEADER_BYTES + 40])
def test_a_damaged_frame_costs_its_own_records_only(log: LocalLog, which: int, where: int) -> None:
    segment = segments(log)[which]
    first = int(segment.stem)
    second_frame = segment.read_bytes().index(b"PNSF", 8)
    damaged = segment.read_bytes()[:second_frame]
    flip(segment, where)
    [done] = repair(log)
    assert lost(done.lost) == {first, first + 1, first + 2}
    goes_on_without(log.directory, lost(done.lost))
    [kept] = done.quarantine.glob("*.bytes")
    content = bytearray(kept.read_bytes())
    content[where] ^= 1
    assert bytes(content) == damaged


def test_what_was_lost_stays_known(log: LocalLog) -> None:
    segment = segments(log)[1]
    flip(segment, 100)
    repair(log)
    [check] = verify(log)
    [earlier] = check.quarantined
    first = int(segment.stem)
    assert check.is_whole
    assert (earlier.segment, earlier.position, earlier.first, earlier.end) == (segment.name, 0, first, first + 3)
    assert "checksum" in earlier.why


@pytest.mark.parametrize(
    "harm",
    [
        lambda segment: segment.unlink(),
        lambda segment: segment.write_bytes(b""),
        lambda segment: segment.write_bytes(segment.read_bytes()[:100]),
        lambda segment: segment.write_bytes(bytes(len(segment.read_bytes()))),
        lambda segment: segment.write_bytes(bytes(200) + segment.read_bytes()[200:]),
    ],
    ids=["missing", "empty", "cut", "zeros", "begins with zeros"],
)
@pytest.mark.parametrize("which", [1, -1])
def test_a_segment_in_any_state_is_repaired(log: LocalLog, harm: Callable[[Path], object], which: int) -> None:
    segment = segments(log)[which]
    following = [int(other.stem) for other in segments(log) if other > segment]
    end = min(following, default=RECORDS)
    harm(segment)
    [done] = repair(log)
    assert lost(done.lost) <= set(range(int(segment.stem), end))
    assert lost(done.lost) >= set(range(int(segment.stem), int(segment.stem) + 3))
    goes_on_without(log.directory, lost(done.lost))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_harmed_all_that_is_not_named_as_lost_is_there(log: LocalLog, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        segment = rng.choice(segments(log))
        content = bytearray(segment.read_bytes())
        at, length = rng.randrange(len(content) + 1), rng.choice([1, 8, 64, 700, 3000])
        match rng.choice(["flip", "cut", "zero", "insert", "shuffle"]):
            case "flip":
                content[at : at + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in content[at : at + 1])
            case "cut":
                del content[at:]
            case "zero":
                content[at : at + length] = bytes(len(content[at : at + length]))
            case "insert":
                content[at:at] = rng.randbytes(length)
            case "shuffle":
                content[at : at + length] = bytes(rng.sample(content[at : at + length], len(content[at : at + length])))
        segment.write_bytes(content)
    [check] = verify(log)
    [done] = repair(log)
    assert done.lost == check.damage
    goes_on_without(log.directory, lost(done.lost))


@pytest.mark.parametrize("which", [0, 1, -2])
def test_segments_under_each_other_s_names_are_not_passed_over_in_silence(log: LocalLog, which: int) -> None:
    first, second = sorted((log.directory / "0").glob("*.seg"))[which:][:2]
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    with pytest.raises(LogError, match="PEN-LOG-003"):
        numbers(LocalLog(log.directory, log.config))
    (check,) = verify(log)
    assert {first, second} <= {damage.segment for damage in check.damage}
    (done,) = repair(log)
    assert lost(done.lost) == lost(check.damage)
    goes_on_without(log.directory, lost(done.lost))


def test_a_whole_log_is_left_as_it_is(log: LocalLog) -> None:
    before = {path: (path.read_bytes(), path.stat().st_ino) for path in segments(log)}
    [done] = repair(log)
    assert (done.lost, done.indexes, done.head_problem) == ((), 0, None)
    assert {path: (path.read_bytes(), path.stat().st_ino) for path in segments(log)} == before
    assert not done.quarantine.exists()


@pytest.mark.parametrize("damaged", [0, 100])
def test_what_is_behind_a_head_that_a_power_cut_set_back_is_kept(log: LocalLog, damaged: int) -> None:
    directory, files = log.directory / "0", segments(log)
    stale = files[-3]
    head = Head(int(stale.stem), stale.stat().st_size, int(files[-2].stem), stale.stat().st_size)
    (directory / "head").write_bytes(pack(head))
    for harmed in (files[0], stale, files[-2], files[-1]):
        flip(harmed, damaged)
    [done] = repair(log)
    assert lost(done.lost) == {int(path.stem) + n for path in (files[0], stale, *files[-2:]) for n in range(3)}
    goes_on_without(log.directory, lost(done.lost))


@pytest.mark.parametrize("head", [None, b"rubbish"])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_damage_is_repaired_although_the_head_is_lost(log: LocalLog, head: bytes | None, which: int) -> None:
    path = log.directory / "0" / "head"
    path.unlink() if head is None else path.write_bytes(head)
    flip(segments(log)[which], 100)
    [done] = repair(log)
    assert done.head_problem
    goes_on_without(log.directory, lost(done.lost))


def test_an_unreadable_head_is_found_again(log: LocalLog) -> None:
    (log.directory / "0" / "head").write_bytes(b"rubbish")
    [done] = repair(log)
    assert done.head_problem is not None
    goes_on_without(log.directory, set())


def test_what_is_cut_off_when_the_end_is_found_again_is_said(log: LocalLog) -> None:
    (log.directory / "0" / "head").write_bytes(b"rubbish")
    with segments(log)[-1].open("ab") as file:
        file.write(b"torn")
    [done] = repair(log)
    assert (done.torn, done.lost) == (4, ())
    goes_on_without(log.directory, set())


def test_an_index_that_does_not_fit_is_written_anew(log: LocalLog) -> None:
    index = segments(log)[1].with_suffix(".idx")
    right = index.read_bytes()
    # Entries of the segment behind it: all of it right, but not for this one.
    index.write_bytes(right[:48] + segments(log)[2].with_suffix(".idx").read_bytes()[48:])
    [done] = repair(log)
    assert (done.indexes, done.lost) == (1, ())
    assert index.read_bytes()[48:] == right[48:]
    goes_on_without(log.directory, set())


def test_a_partition_with_a_writer_is_refused(log: LocalLog) -> None:
    flip(segments(log)[0], 100)
    content = segments(log)[0].read_bytes()
    with log.writer("web"), pytest.raises(LogError, match=r"PEN-LOG-001.*\(web\)"):
        repair(log)
    with lock_for_maintenance(log.directory / "0"), pytest.raises(LogError, match="PEN-LOG-013"):
        repair(log)
    assert segments(log)[0].read_bytes() == content


def test_a_compacted_log_is_repaired_like_any_other(quick_disk: Path) -> None:
    log = LocalLog(quick_disk, config(segment_bytes=4096))
    with log.writer("web") as writer:
        for n in range(0, 300, 5):
            writer.append(numbered(range(n, n + 5)))
    assert compact(log, {0: 120})[0].dropped
    before = numbers(log)
    flip(segments(log)[0], HEADER_BYTES + 20)
    [done] = repair(log)
    assert numbers(log) == [(n, v) for n, v in before if n not in lost(done.lost)]
    assert [check.is_whole for check in verify(log)] == [True]


def test_a_repair_killed_at_every_point_is_finished_by_the_next(quick_disk: Path) -> None:
    original = quick_disk / "original"
    log = filled(original)
    flip(segments(log)[1], 100)
    flip(segments(log)[-1], 100)
    [check] = verify(log)
    gone, folder = lost(check.damage), quick_disk / "tried"
    crashes = 0
    with crashing() as processes:
        for point in fault_points("repair", "rewrite"):
            for nth in range(1, 100):
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(original, folder)
                if not processes.dies("repair", folder, f"{point}@{nth}"):
                    assert nth > 1, f"{point} was never reached"
                    break
                crashes += 1
                repair(LocalLog(folder))
                goes_on_without(folder, gone)
    assert crashes > 10
