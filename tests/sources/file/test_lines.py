"""Cutting blocks into lines never loses a byte, always knows where it is, and agrees with the slow way."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.json.arrow_text import gathered
from penstock.sources.file.file_progress import Position, parse_positions
from penstock.sources.file.formats.json_lines import BAD, GOOD, MAX_LINES, PART, cut


class Line(NamedTuple):
    data: bytes
    number: int
    kind: int
    following: int


class Taken(NamedTuple):
    taken: int
    lines: int
    inside: bool


def cut_bytes(
    block: bytes, at: int = 0, line: int = 0, inside: bool = False, complete: bool = False, line_bytes: int = 1000
) -> tuple[list[Line], Taken]:
    buffer = np.frombuffer(block, np.uint8)
    places, kinds = np.empty((4, MAX_LINES), np.int64), np.empty(MAX_LINES, np.int8)
    count, *taken = cut(buffer, at, line, inside, complete, line_bytes, places, kinds)
    starts, ends, numbers, followings = places[:, :count]
    data = gathered(buffer, starts, ends - starts).to_pylist()
    columns = (numbers.tolist(), kinds[:count].tolist(), (at + followings).tolist())
    return [Line(*row) for row in zip(data, *columns, strict=True)], Taken(*taken)


def read_all(content: bytes, block_bytes: int, line_bytes: int) -> list[Line]:
    """Reads like the source does: a block at a time, larger when it has no end of a line."""
    found: list[Line] = []
    at, line, inside, wanted = 0, 0, False, block_bytes
    while at < len(content):
        block = content[at : at + wanted]
        lines, taken = cut_bytes(block, at, line, inside, at + len(block) == len(content), line_bytes)
        found += lines
        wanted = block_bytes if taken.taken else wanted * 2
        at, line, inside = at + taken.taken, taken.lines, taken.inside
    assert (at, inside) == (len(content), False) or inside
    return found


def slowly(content: bytes) -> list[Line]:
    """Line by line with the standard parser: what all must agree with, for lines that are not too long."""
    found: list[Line] = []
    at = 0
    for number, raw in enumerate(content.split(b"\n"), 1):
        at = min(at + len(raw) + 1, len(content))
        data = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        data = data.removesuffix(b"\r")
        if data.strip(b" \t\r\n"):
            found.append(Line(data, number, GOOD if _is_object(data) else BAD, at))
    return found


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data.decode(), parse_constant=_refuse), dict)
    except ValueError:
        return False


def _refuse(name: str) -> None:
    raise ValueError(name)


LINES = st.one_of(
    st.binary(max_size=12),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=9), max_size=3).map(
        lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    ),
    st.sampled_from([b"", b"  ", b"\r", b"{}", b'{"a":[1,{}]} ', b"[1]", b'{"a":1}{}', b"\xef\xbb\xbf{}", b'{"a"']),
)
CONTENT = st.lists(LINES, max_size=12).map(b"\n".join) | st.lists(LINES, max_size=12).map(b"\r\n".join)


@given(CONTENT, st.integers(1, 40))
def test_blocks_of_any_size_give_the_lines_that_the_slow_way_finds(content: bytes, block_bytes: int) -> None:
    assert read_all(content, block_bytes, line_bytes=1000) == slowly(content)


@given(st.binary(max_size=60), st.integers(1, 20), st.integers(1, 5))
def test_lines_that_are_too_long_come_in_pieces_and_no_byte_is_lost(
    content: bytes, block_bytes: int, line_bytes: int
) -> None:
    lines = read_all(content, block_bytes, line_bytes)
    blank = bytes.maketrans(b"\xef\xbb\xbf", b"   ")
    kept = b"".join(b"".join(line.data for line in lines).translate(blank).split())
    assert kept == b"".join(content.translate(blank).split())
    assert all(len(line.data) <= line_bytes for line in lines)


def test_pieces_of_a_long_line_are_marked_and_counted_as_one() -> None:
    found, _ = cut_bytes(b"abcdefgh\n{}\n", line_bytes=3)
    assert [(line.data, line.kind, line.number) for line in found] == [
        (b"abc", PART, 1),
        (b"def", PART, 1),
        (b"gh", PART, 1),
        (b"{}", GOOD, 2),
    ]


def test_a_line_without_newline_waits_unless_the_file_is_complete() -> None:
    assert [line.data for line in cut_bytes(b"{}\n[]")[0]] == [b"{}"]
    assert [line.data for line in cut_bytes(b"{}\n[]", complete=True)[0]] == [b"{}", b"[]"]


def test_tiny_lines_are_cut_in_bounded_numbers_and_none_is_missed() -> None:
    content = b"{}\n" * (MAX_LINES + 10)
    first, lines = cut_bytes(content)
    rest, _ = cut_bytes(content[lines.taken :], lines.taken, lines.lines, lines.inside)
    assert (len(first), len(rest)) == (MAX_LINES, 10)
    assert [line.number for line in rest] == list(range(MAX_LINES + 1, MAX_LINES + 11))
    assert rest[-1].following == len(content)


@pytest.mark.parametrize(
    "position",
    [
        Position("f", "1:2"),
        Position('a"b\n', "1:2", 3, 99),
        Position("f", line=1, end=5, inside=True, sum=7),
        Position("\udcff"),
    ],
)
def test_positions_survive_a_header(position: Position) -> None:
    assert parse_positions(position.to_header()) == [position]
    assert parse_positions(position.to_header([Position("g", "3:4")])) == [Position("g", "3:4"), position]
