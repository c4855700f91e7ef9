"""CSV: rows as objects of text, bad rows kept as they stand, the same at any size of block."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Header
from penstock.sources.file.file_progress import Position
from penstock.sources.file.formats.csv_rows import CsvCutter
from penstock.testing.source import log_records, running
from penstock.testing.waiting import HANG
from tests.sources.file.test_rotation import context, live, source

__all__ = ["live"]


class Text:
    """Content in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, at: int, size: int) -> bytes:
        return self.data[at : at + size]


def read_all(
    content: bytes, block_bytes: int, delimiter: str = ",", line_bytes: int = 2000
) -> tuple[list[bytes], list[int], list[int]]:
    """Data, line numbers, and which are bad."""
    cutter = CsvCutter(Text(content), delimiter, '"', None, line_bytes)  # type: ignore[arg-type]
    position, wanted = Position("f"), block_bytes
    data: list[bytes] = []
    lines: list[int] = []
    bad: list[int] = []
    while position.end < len(content):
        block = np.frombuffer(content[position.end : position.end + wanted], np.uint8)
        piece = cutter.cut(block, position, position.end + len(block) == len(content))
        bad += [len(data) + row for row, _ in piece.problems]
        data += piece.data.to_pylist()
        lines += piece.numbers.tolist()
        wanted = block_bytes if piece.taken else wanted * 2
        position = position._replace(end=position.end + piece.taken, line=piece.line, inside=piece.inside)
    return data, lines, bad


FIELDS = st.text(st.sampled_from('ab ,;"\n\t\\é\x01'), max_size=6)
ROWS = st.lists(st.lists(FIELDS, min_size=2, max_size=2).filter(lambda row: row != ["", ""]), max_size=8)


@given(ROWS, st.integers(1, 60), st.sampled_from([",", ";", "\t"]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_the_standard_writer_wrote_is_read_back(
    rows: list[list[str]], block_bytes: int, delimiter: str, ending: str, last_break: bool
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=ending)
    writer.writerow(["a", 'b "x"'])
    writer.writerows(rows)
    content = text.getvalue().encode()
    data, _, bad = read_all(content if last_break else content.removesuffix(ending.encode()), block_bytes, delimiter)
    assert not bad
    assert [list(json.loads(row).values()) for row in data] == rows
    assert all(list(json.loads(row)) == ["a", 'b "x"'] for row in data)


@given(
    st.sampled_from([b"", b"\n", b"\r\n\n"]),
    st.text(st.sampled_from('a,"\n\r'), max_size=40).map(str.encode),
    st.integers(1, 50),
    st.integers(3, 30),
)
def test_any_text_is_read_to_its_end_the_same_at_any_size_of_block(
    blank: bytes, content: bytes, block_bytes: int, line_bytes: int
) -> None:
    content = blank + b"x,y\n" + content
    assert read_all(content, block_bytes) == read_all(content, 1000)
    data, _, bad = read_all(content, block_bytes, line_bytes=len(blank) + line_bytes)
    for row, text in enumerate(data):
        assert row in bad or list(json.loads(text)) == ["x", "y"]


def test_bad_rows_are_named_and_the_others_go_on(tmp_path: Path, live: Path) -> None:
    content = b'\xef\xbb\xbfn,name\r\n1,"two\nlines"\r\n\r\n2\r\n3,a,b\r\n4,"x"y\r\n5,\xff\r\n6,"open\r\n7,\r\n'
    live.with_name("a.csv").write_bytes(content)
    read_data(tmp_path)
    found = log_records(tmp_path / "log")
    good = [json.loads(r.data or b"") for r in found if Header.MALFORMED not in r.headers]
    assert good == [{"n": "1", "name": "two\nlines"}, {"n": "7", "name": ""}]
    bad = {r.headers[Header.MALFORMED].split("/")[-1]: r.data for r in found if Header.MALFORMED in r.headers}
    assert bad == {
        "a.csv:5: 1 fields where 2 were expected": b"2",
        "a.csv:6: 3 fields where 2 were expected": b"3,a,b",
        "a.csv:7: text after the closing quote of a field": b'4,"x"y',
        "a.csv:8: not UTF-8": b"5,\xff",
        "a.csv:9: a quote that is not closed": b'6,"open',
    }
    assert [json.loads(r.headers[Header.POSITION])["line"] for r in found] == [2, 5, 6, 7, 8, 9, 10]


def read_data(folder: Path, **options: object) -> list[dict[str, str]]:
    from threading import Event

    source(folder, "in", **options).run(Event(), once=True)
    records = [r for r in log_records(folder / "log") if Header.MALFORMED not in r.headers]
    return [json.loads(r.data or b"") for r in records]


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.tsv", b"a\tb\n1\t2\n", {}, [{"a": "1", "b": "2"}]),
        ("a.txt", b"a;b\n1;'2;'\n", {"format": "csv", "delimiter": ";", "quote": "'"}, [{"a": "1", "b": "2;"}]),
        ("a.csv", b"1,2\n3,4\n", {"columns": ["x", "y"]}, [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]),
        ("a.csv", b"a,,a\n1,2,3\n", {}, [{"a": "1", "column_2": "2", "a_3": "3"}]),
        ("a.csv", b"a_3,a,a\n1,2,3\n", {}, [{"a_3": "1", "a": "2", "a_3_3": "3"}]),
        ("a.csv", b"\n \r\na,b\n1,2\n", {}, [{"a": "1", "b": "2"}]),
        ("a.csv", b"\xef\xbb\xbf\r\na,b\r\n1,2\r\n", {}, [{"a": "1", "b": "2"}]),
        ("a.csv", b"\n\n", {}, []),
        ("a.csv.gz", gzip.compress(b"a\n1\n", mtime=0), {}, [{"a": "1"}]),
        ("a.csv", b"a,b\n", {}, []),
        ("a.csv", b"", {}, []),
    ],
)
def test_options(
    tmp_path: Path, live: Path, name: str, content: bytes, options: dict[str, object], expected: list[object]
) -> None:
    live.with_name(name).write_bytes(content)
    assert read_data(tmp_path, **options) == expected


def test_a_header_may_come_behind_blank_lines_that_were_read_before(tmp_path: Path, live: Path) -> None:
    file = live.with_name("a.csv")
    file.write_text("\n\n")
    assert read_data(tmp_path) == []
    file.write_text("\n\na,b\n1,2\n")
    assert read_data(tmp_path) == [{"a": "1", "b": "2"}]


def test_a_kill_neither_loses_nor_doubles(tmp_path: Path, live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live.with_name("a.csv").write_text("n,t\n" + "".join(f'{n},"a\nb"\n' for n in range(300)))
    monkeypatch.setenv("PENSTOCK_FAULTS", "log.append.after_fsync@5=kill")
    options = json.dumps({"path": str(live.parent), "batch_bytes": 300})
    with running("file", options, context(tmp_path), once=True) as process:
        process.join(HANG)
        assert process.exitcode == -9
    monkeypatch.delenv("PENSTOCK_FAULTS")
    assert [row["n"] for row in read_data(tmp_path, batch_bytes=300)] == [str(n) for n in range(300)]
