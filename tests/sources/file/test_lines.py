"""Cutting blocks into lines never loses a byte and always knows where it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.file.lines import Position, cut

START = Position("f")


def read_all(content: bytes, block_bytes: int, line_bytes: int) -> tuple[list[bytes], Position]:
    """Reads like the source does: a block at a time, larger when it has no end of a line."""
    found: list[bytes] = []
    position, wanted = START, block_bytes
    while position.end < len(content):
        block = content[position.end : position.end + wanted]
        lines = list(cut(block, position, position.end + len(block) == len(content), line_bytes))
        found += [line.data for line in lines]
        if lines:
            position, wanted = lines[-1].position, block_bytes
        else:
            wanted *= 2
    return found, position


@given(st.binary(max_size=60) | st.lists(st.binary(max_size=6)).map(b"\n".join), st.integers(1, 20))
def test_blocks_of_any_size_give_the_same_lines(content: bytes, block_bytes: int) -> None:
    lines, position = read_all(content, block_bytes, line_bytes=100)
    expected = content.split(b"\n")
    assert lines == (expected[:-1] if expected[-1] == b"" else expected)
    assert (position.end, position.line, position.inside) == (len(content), len(lines), False)


@given(st.binary(max_size=60), st.integers(1, 20), st.integers(1, 5))
def test_lines_that_are_too_long_come_in_pieces_and_no_byte_is_lost(
    content: bytes, block_bytes: int, line_bytes: int
) -> None:
    lines, position = read_all(content, block_bytes, line_bytes)
    assert b"".join(lines) == content.replace(b"\n", b"")
    assert position.end == len(content)
    assert all(len(line) <= line_bytes for line in lines)


def test_pieces_of_a_long_line_are_marked_and_counted_as_one() -> None:
    found = list(cut(b"abcdefgh\nxy\n", START, complete=False, line_bytes=3))
    assert [(line.data, line.part, line.position.line) for line in found] == [
        (b"abc", True, 1),
        (b"def", True, 1),
        (b"gh", True, 1),
        (b"xy", False, 2),
    ]


def test_a_line_without_newline_waits_unless_the_file_is_complete() -> None:
    assert [line.data for line in cut(b"a\nb", START, complete=False, line_bytes=9)] == [b"a"]
    assert [line.data for line in cut(b"a\nb", START, complete=True, line_bytes=9)] == [b"a", b"b"]


@pytest.mark.parametrize(
    "position", [START, Position('a"b\n', 3, 99), Position("f", 1, 5, inside=True), Position("\udcff")]
)
def test_positions_survive_a_header(position: Position) -> None:
    assert Position.from_header(position.to_header()) == position
