"""The file reader: lines once, in order, byte for byte, whatever happens in between."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Event, Thread

import pytest

from penstock.errors import PenstockError
from penstock.record import Header, Mode, Op
from penstock.sources.contract import SourceContext
from penstock.sources.file.config import FileConfig
from penstock.sources.file.source import FileSource
from penstock.testing.source import log_records, numbers, running
from penstock.testing.waiting import eventually

PATTERN = "in/*.ndjson"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


def read_once(folder: Path, pattern: str = PATTERN, **options: object) -> None:
    config = FileConfig.model_validate({"path": folder / pattern, **options})
    FileSource(config, context(folder)).run(Event(), once=True)


def context(folder: Path) -> SourceContext:
    return SourceContext("orders", folder / "log", "{}", folder / "state")


def test_lines_are_kept_byte_for_byte_with_their_place(folder: Path) -> None:
    content = b'\xef\xbb\xbf{"n":1,"p":2.50}\r\n\n{"n":2,"s":"\\ud800"}\n {"n":3}\t\n{"n":1e400}'
    (folder / "in/a.ndjson").write_bytes(content)
    read_once(folder)
    found = log_records(folder / "log")
    assert [r.data for r in found] == [b'{"n":1,"p":2.50}', b'{"n":2,"s":"\\ud800"}', b' {"n":3}\t', b'{"n":1e400}']
    assert {(r.op, r.mode, r.namespace, r.key) for r in found} == {(Op.INSERT, Mode.COPY, "orders", None)}
    places = [json.loads(r.headers[Header.POSITION]) for r in found]
    assert [place["line"] for place in places] == [1, 3, 4, 5]
    assert places[-1]["end"] == len(content)
    assert places[0]["file"] == str(folder / "in/a.ndjson")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":', "not JSON"),
        (b"[1]", "an array"),
        (b"7", "a number"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b"[" * 10_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_kept_and_named(folder: Path, line: bytes, reason: str) -> None:
    (folder / "in/a.ndjson").write_bytes(b'{"n":1}\n' + line + b'\n{"n":2}\n')
    read_once(folder)
    good, bad, after = log_records(folder / "log")
    assert bad.data == line
    assert bad.headers[Header.MALFORMED].startswith(f"{folder / 'in/a.ndjson'}:2: ")
    assert reason in bad.headers[Header.MALFORMED]
    assert numbers([good, bad, after]) == [1, 2]


def test_a_line_that_is_too_long_is_kept_in_pieces(folder: Path) -> None:
    (folder / "in/a.ndjson").write_bytes(b'{"n":1}\n{"long":"' + b"x" * 50 + b'"}\n{"n":2}\n')
    read_once(folder, line_bytes=20, batch_bytes=8)
    found = log_records(folder / "log")
    pieces = [record for record in found if Header.MALFORMED in record.headers]
    assert b"".join(piece.data or b"" for piece in pieces) == b'{"long":"' + b"x" * 50 + b'"}'
    assert all(":2: part of a line" in piece.headers[Header.MALFORMED] for piece in pieces)
    assert numbers(found) == [1, 2]


def test_reading_again_takes_only_what_is_new_in_all_files(folder: Path) -> None:
    (folder / "in/a.ndjson").write_bytes(b'{"n":1}\n')
    (folder / "in/b.ndjson").write_bytes(b'{"n":2}\n{"n":3}')
    read_once(folder)
    read_once(folder)
    with (folder / "in/a.ndjson").open("ab") as file:
        file.write(b'{"n":4}\n')
    (folder / "in/c.ndjson").write_bytes(b'{"n":5}\n')
    read_once(folder)
    assert numbers(log_records(folder / "log")) == [1, 2, 3, 4, 5]


def test_the_summary_of_positions_may_be_lost(folder: Path) -> None:
    for name, number in (("a", 1), ("b", 2)):
        (folder / f"in/{name}.ndjson").write_bytes(b'{"n":%d}\n' % number)
    read_once(folder)
    (folder / "state/positions.json").unlink()
    (folder / "in/c.ndjson").write_bytes(b'{"n":3}\n')
    read_once(folder)
    assert numbers(log_records(folder / "log")) == [1, 2, 3]


def test_a_file_that_became_shorter_is_a_new_one(folder: Path) -> None:
    (folder / "in/a.ndjson").write_bytes(b'{"n":1}\n{"n":2}\n')
    read_once(folder)
    (folder / "in/a.ndjson").write_bytes(b'{"n":3}\n')
    read_once(folder)
    assert numbers(log_records(folder / "log")) == [1, 2, 3]


def test_a_file_whose_name_is_not_utf8_is_read_too(folder: Path) -> None:
    name = os.fsdecode(b"in/\xff.ndjson")
    (folder / name).write_bytes(b'{"n":1}\nbad\n')
    read_once(folder)
    read_once(folder)
    good, bad = log_records(folder / "log")
    assert numbers([good]) == [1]
    assert "\\udcff.ndjson:2: not JSON" in bad.headers[Header.MALFORMED]


def test_a_missing_file_is_said(folder: Path) -> None:
    with pytest.raises(PenstockError, match=r"PEN-FILE-001.*nothing\.ndjson"):
        read_once(folder, "in/nothing.ndjson")


@pytest.mark.parametrize("path", ["in", "in/*.ndjson"])
def test_a_folder_or_pattern_without_files_is_no_mistake(folder: Path, path: str) -> None:
    read_once(folder, path)
    assert log_records(folder / "log") == []


def test_following_waits_for_the_newline_and_finds_new_files(folder: Path) -> None:
    config = FileConfig.model_validate({"path": folder / PATTERN, "poll": "10ms"})
    stopping = Event()
    follower = Thread(target=FileSource(config, context(folder)).run, args=(stopping,))
    follower.start()
    try:
        first = folder / "in/a.ndjson"
        first.write_bytes(b'{"n":1}\n{"n"')
        eventually(lambda: _numbers(folder) == [1], "the first line")
        (folder / "in/b.ndjson").write_bytes(b'{"n":9}\n')
        eventually(lambda: _numbers(folder) == [1, 9], "the new file")
        with first.open("ab") as file:
            file.write(b":2}\n")
        eventually(lambda: _numbers(folder) == [1, 9, 2], "the rest of the line")
    finally:
        stopping.set()
        follower.join(10)
    assert not follower.is_alive()


def _numbers(folder: Path) -> list[int]:
    return numbers(log_records(folder / "log"))


@pytest.mark.parametrize("point", ["log.append.before_write", "log.append.before_fsync", "log.append.after_fsync"])
def test_a_kill_at_any_point_of_an_append_neither_loses_nor_doubles_a_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    for name in "ab":
        start = ord(name) * 1000
        (folder / f"in/{name}.ndjson").write_bytes(b"".join(b'{"n":%d}\n' % n for n in range(start, start + 300)))
    options = json.dumps({"path": str(folder / PATTERN), "batch_bytes": 500})
    monkeypatch.setenv("PENSTOCK_FAULTS", f"{point}@7=kill")
    with running("file", options, context(folder), once=True) as process:
        process.join(20)
        assert process.exitcode == -9
    monkeypatch.delenv("PENSTOCK_FAULTS")
    read_once(folder, batch_bytes=500)
    assert numbers(log_records(folder / "log")) == [*range(97_000, 97_300), *range(98_000, 98_300)]
