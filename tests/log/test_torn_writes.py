"""A write may stop at any byte. Whatever was acknowledged before it is there, and the log goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import LogError
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import numbered, numbers, segments


def _acknowledged_then_torn(log: LocalLog) -> tuple[Path, bytes, bytes, int]:
    """A log with three appends of ten, and its state before the third: segment, its bytes, old head, old length."""
    with log.writer("web") as writer:
        writer.append(numbered(range(10)))
        writer.append(numbered(range(10, 20)))
        [segment] = segments(log)
        before = segment.stat().st_size
        head = (segment.parent / "head").read_bytes()
        writer.append(numbered(range(20, 30)))
    return segment, segment.read_bytes(), head, before


def test_the_last_frame_cut_at_every_byte_loses_nothing_before_it(quick_disk: Path) -> None:
    log = LocalLog(quick_disk)
    segment, content, head, before = _acknowledged_then_torn(log)
    for length in range(before, len(content)):
        segment.write_bytes(content[:length])
        (segment.parent / "head").write_bytes(head)
        with log.writer("web") as writer:
            cut = writer.recovered.bytes_cut if writer.recovered else 0
            assert cut == length - before
            assert writer.append(numbered([20])) == range(20, 21)
        assert numbers(log) == [(n, n) for n in range(21)], f"cut at byte {length}"


def test_a_whole_frame_that_was_not_yet_published_is_kept(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    segment, _, head, _ = _acknowledged_then_torn(log)
    (segment.parent / "head").write_bytes(head)
    assert log.bounds(0).end == 20
    with log.writer("web") as writer:
        assert writer.recovered is None
        assert writer.next_offset == 30
    assert len(numbers(log)) == 30


def test_the_report_names_the_segment_and_the_place_of_the_cut(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    segment, content, head, before = _acknowledged_then_torn(log)
    segment.write_bytes(content[:-5])
    (segment.parent / "head").write_bytes(head)
    with log.writer("web") as writer:
        assert writer.recovered is not None
        assert (writer.recovered.segment, writer.recovered.position) == (segment, before)
        assert writer.recovered.bytes_cut == len(content) - 5 - before


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"PNSF", b"PNSF" + b"\xff" * 200, os.urandom(300)])
def test_rubbish_behind_the_last_frame_is_cut(tmp_path: Path, tail: bytes) -> None:
    log = LocalLog(tmp_path)
    segment, content, _, _ = _acknowledged_then_torn(log)
    segment.write_bytes(content + tail)
    with log.writer("web") as writer:
        assert writer.recovered is not None
        assert writer.recovered.bytes_cut == len(tail)
    assert len(numbers(log)) == 30


@pytest.mark.parametrize("head", [None, b"", b"not a head", b"\0" * 48])
def test_a_lost_head_is_found_again_from_the_frames(tmp_path: Path, head: bytes | None) -> None:
    log = LocalLog(tmp_path, config(segment_bytes=2048))
    with log.writer("web") as writer:
        for n in range(20):
            writer.append(numbered([n]))
    path = tmp_path / "0" / "head"
    path.unlink() if head is None else path.write_bytes(head)
    with log.writer("web") as writer:
        assert writer.append(numbered([20])) == range(20, 21)
    assert numbers(log) == [(n, n) for n in range(21)]


def test_a_reader_says_when_the_head_cannot_be_read(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    _acknowledged_then_torn(log)
    (tmp_path / "0" / "head").write_bytes(b"rubbish")
    with pytest.raises(LogError, match="PEN-LOG-007"):
        log.bounds(0)


_APPENDER = """
import json, sys
from pathlib import Path
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import numbered
with LocalLog(Path(sys.argv[1]), config(segment_bytes=4096)).writer("web") as writer:
    for n in range(12):
        taken = writer.append(numbered(range(writer.next_offset, writer.next_offset + 10)))
        print(json.dumps([taken.start, taken.stop]), flush=True)
"""


@pytest.mark.parametrize(
    "fault", ["log.append.before_write@5", "log.append.before_fsync@5", "log.append.after_fsync@5", "log.roll@2"]
)
def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path, fault: str) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PENSTOCK_FAULTS": f"{fault}=kill", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", _APPENDER, str(tmp_path)]
    died = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert died.returncode == -9, died.stderr
    acknowledged = [json.loads(line) for line in died.stdout.splitlines()]
    assert acknowledged
    log = LocalLog(tmp_path, config(segment_bytes=4096))
    with log.writer("web") as writer:
        end = writer.next_offset
        assert end >= acknowledged[-1][1]
        assert writer.append(numbered([end])) == range(end, end + 1)
    assert numbers(log) == [(n, n) for n in range(end + 1)]


@pytest.mark.parametrize("point", ["log.append.before_write", "log.append.before_fsync", "log.append.after_fsync"])
def test_a_failed_append_leaves_no_trace(tmp_path: Path, point: str) -> None:
    script = """
import sys
from pathlib import Path
from penstock.log.local_log import LocalLog
from tests.log.samples import numbered, numbers
log = LocalLog(Path(sys.argv[1]))
with log.writer("web") as writer:
    writer.append(numbered([0]))
    try: writer.append(numbered(range(1, 500)))
    except OSError as error: print(error)
    assert numbers(log) == [(0, 0)]
    assert writer.append(numbered([1])) == range(1, 2)
assert numbers(log) == [(0, 0), (1, 1)]
"""
    environment = {
        **os.environ, "PENSTOCK_FAULTS": f"{point}@2=raise", "PYTHONPATH": str(Path(__file__).parents[2])
    }  # fmt: skip
    command = [sys.executable, "-c", script, str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, f"injected at {point}"), ran.stderr
