"""JSON arrays: elements as they stand, the same at any size of block, on after what is broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Header
from penstock.sources.file.file_progress import Position
from penstock.sources.file.formats.json_array import ArrayCutter
from penstock.testing.source import log_records, running
from penstock.testing.waiting import HANG
from tests.sources.file.test_rotation import context, live, read_once

__all__ = ["live"]


def read_all(content: bytes, block_bytes: int, line_bytes: int = 2000) -> list[tuple[bytes, int, bool]]:
    """Data, line, and whether it is bad."""
    cutter = ArrayCutter(line_bytes)
    position, wanted = Position("f"), block_bytes
    found: list[tuple[bytes, int, bool]] = []
    while position.end < len(content):
        block = np.frombuffer(content[position.end : position.end + wanted], np.uint8)
        piece = cutter.cut(block, position, position.end + len(block) == len(content))
        bad = {row for row, _ in piece.problems}
        rows = zip(piece.data.to_pylist(), piece.numbers.tolist(), strict=True)
        found += [(data, number, row in bad) for row, (data, number) in enumerate(rows)]
        wanted = block_bytes if piece.taken else wanted * 2
        position = position._replace(end=position.end + piece.taken, line=piece.line, inside=piece.inside)
    return found


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(VALUES, max_size=8), st.sampled_from([None, 2]), st.booleans(), st.integers(1, 60))
def test_elements_are_found_at_any_size_of_block(
    values: list[object], indent: int | None, ascii_only: bool, block_bytes: int
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    values = json.loads(text)
    found = read_all(text, block_bytes)
    assert [json.loads(data) for data, _, _ in found] == values
    assert [bad for _, _, bad in found] == [not isinstance(value, dict) for value in values]
    for data, number, _ in found:
        assert data.split(b"\n")[0] in text.split(b"\n")[number - 1]


@given(st.text(st.sampled_from('{}[],:"a1\n'), max_size=40).map(str.encode), st.integers(1, 50), st.integers(3, 30))
def test_any_text_is_read_to_its_end(content: bytes, block_bytes: int, line_bytes: int) -> None:
    content = b"[" + content
    for data, _, bad in read_all(content, block_bytes, line_bytes):
        assert bad or isinstance(json.loads(data), dict)


def test_a_broken_element_is_kept_and_the_next_line_goes_on(tmp_path: Path, live: Path) -> None:
    live.with_name("a.json").write_bytes(b'\xef\xbb\xbf [\n{"n":1},\n{"n":oops},\n7,\n{"n":2}\n]\n')
    assert read_once(tmp_path) == [1, 2]
    bad = [r for r in log_records(tmp_path / "log") if Header.MALFORMED in r.headers]
    assert [(r.data, r.headers[Header.MALFORMED].split("/")[-1]) for r in bad] == [
        (b'{"n":oops},', "a.json:3: not an element of a JSON array"),
        (b"7", "a.json:4: a number where an object was expected"),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b'[{"n":1},{"n":2}]'),
        ("a.json", b'{"n":1}\n{"n":2}'),
        ("a.json.gz", gzip.compress(b'[{"n":1},\n {"n":2}]\n', mtime=0)),
    ],
)
def test_what_a_json_file_is_shows_in_its_first_byte(tmp_path: Path, live: Path, name: str, content: bytes) -> None:
    live.with_name(name).write_bytes(content)
    assert read_once(tmp_path) == [1, 2]


def test_an_array_that_grows_is_followed_and_a_kill_neither_loses_nor_doubles(
    tmp_path: Path, live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = live.with_name("a.json")
    file.write_text("[" + ",".join(f'{{"n":{n}}}' for n in range(300)))
    monkeypatch.setenv("PENSTOCK_FAULTS", "log.append.after_fsync@5=kill")
    options = json.dumps({"path": str(live.parent), "batch_bytes": 300})
    with running("file", options, context(tmp_path), once=True) as process:
        process.join(HANG)
        assert process.exitcode == -9
    monkeypatch.delenv("PENSTOCK_FAULTS")
    with file.open("a") as out:
        out.write(',{"n":300}]')
    assert read_once(tmp_path, batch_bytes=300) == list(range(301))
