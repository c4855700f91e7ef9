"""Text of values becomes JSON without loss, whatever is in it."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.postgres.catalog.table_layout import Column, Layout, pack
from penstock.sources.postgres.catalog.value_kinds import Kind
from penstock.sources.postgres.copy.copy_text import cut
from penstock.sources.postgres.rows.row_fields import Fields
from penstock.sources.postgres.rows.row_json import Rows, Texts, data_of, keys_of
from penstock.sources.postgres.rows.scratch import Scratch
from tests.sources.postgres.messages import copy_row

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=30)
# What PostgreSQL's own escapes and ours are about, more often than chance would bring it.
SPIKED = st.text(st.sampled_from("\\\t\n\r\b\f\v\"'N.x\x01\x1f\x7fé🎉"), max_size=30)
VALUES = st.none() | TEXT | SPIKED | st.just("\\N") | st.just("\\.")
SCRATCH = Scratch()


def layout(columns: int, key: tuple[int, ...] = ()) -> Layout:
    made = tuple(Column(f"c{i}", "text", Kind.TEXT) for i in range(columns))
    return Layout(7, "public.t", made, tuple(f"c{i}" for i in key))


def read(text: bytes, shape: Layout) -> tuple[list[bytes], list[bytes]]:
    """Rows of COPY text as data and keys."""
    block = np.frombuffer(bytearray(text), np.uint8)
    rows = text.count(b"\n")
    columns = len(shape.columns)
    starts, ends = np.zeros(rows * columns, np.int32), np.zeros(rows * columns, np.int32)
    assert cut(block, len(block), columns, starts, ends) == rows
    block.flags.writeable = False
    placed = Rows(np.zeros(rows, np.int32), np.arange(rows, dtype=np.int64) * columns)
    fields, packed = Fields(block, starts, ends), pack([shape])
    return texts(data_of(placed, fields, packed, SCRATCH)), texts(keys_of(placed, fields, packed, SCRATCH))


def texts(found: Texts) -> list[bytes]:
    return [found.out[a:b].tobytes() for a, b in pairwise(found.offsets)]


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.tuples(*[VALUES] * n), max_size=12).map(lambda r: (n, r))))
def test_what_copy_writes_is_what_was_in_the_row(case: tuple[int, list[tuple[str | None, ...]]]) -> None:
    columns, rows = case
    data, _ = read(b"".join(map(copy_row, rows)), layout(columns))
    assert [list(json.loads(row).values()) for row in data] == [list(row) for row in rows]


@given(st.lists(st.tuples(VALUES, TEXT | SPIKED, TEXT | SPIKED), max_size=8))
def test_a_key_has_its_columns_in_its_own_order(rows: list[tuple[str | None, str, str]]) -> None:
    _, keys = read(b"".join(map(copy_row, rows)), layout(3, key=(2, 1)))
    assert [list(json.loads(key).items()) for key in keys] == [[("c2", row[2]), ("c1", row[1])] for row in rows]


@pytest.mark.parametrize(
    ("kind", "text", "written"),
    [
        (Kind.NUMBER, "0", "0"),
        (Kind.NUMBER, "-12.50", "-12.50"),
        (Kind.NUMBER, "1e+300", "1e+300"),
        (Kind.NUMBER, "NaN", '"NaN"'),
        (Kind.NUMBER, "Infinity", '"Infinity"'),
        (Kind.NUMBER, "-Infinity", '"-Infinity"'),
        (Kind.BOOLEAN, "t", "true"),
        (Kind.BOOLEAN, "f", "false"),
        (Kind.JSON, '{"a": [1]}', '{"a": [1]}'),
        (Kind.JSON, '[1,\n\t2]', "[1,  2]"),
        (Kind.TIMESTAMP, "2026-01-02 03:04:05", '"2026-01-02T03:04:05"'),
        (Kind.TIMESTAMP, "2026-01-02 03:04:05.123456", '"2026-01-02T03:04:05.123456"'),
        (Kind.TIMESTAMP, "infinity", '"infinity"'),
        (Kind.TIMESTAMP, "0044-03-15 00:00:00 BC", '"0044-03-15 00:00:00 BC"'),
        (Kind.TIMESTAMP, "12026-01-02 03:04:05", '"12026-01-02 03:04:05"'),
        (Kind.TIMESTAMPTZ, "2026-01-02 03:04:05+00", '"2026-01-02T03:04:05Z"'),
        (Kind.TIMESTAMPTZ, "2026-01-02 03:04:05.1+00", '"2026-01-02T03:04:05.1Z"'),
        (Kind.TIMESTAMPTZ, "-infinity", '"-infinity"'),
        (Kind.TIMESTAMPTZ, "0044-03-15 00:00:00+00 BC", '"0044-03-15 00:00:00+00 BC"'),
        (Kind.TIMESTAMPTZ, "2026-01-02 03:04:05+05:30", '"2026-01-02 03:04:05+05:30"'),
        (Kind.TEXT, "", '""'),
    ],
)  # fmt: skip
def test_a_kind_has_its_own_spelling(kind: Kind, text: str, written: str) -> None:
    shape = Layout(7, "public.t", (Column("c", "?", kind), Column("d", "text", Kind.TEXT)))
    data, _ = read(copy_row([text, "after"]), shape)
    assert data == [f'{{"c":{written},"d":"after"}}'.encode()]


@pytest.mark.parametrize("text", [b"a\tb\tc\n", b"a\n", b"a\tb", b"a\tb\\", b"\\N"])
def test_rows_that_are_not_as_they_should_be_are_noticed(text: bytes) -> None:
    block = np.frombuffer(bytearray(text), np.uint8)
    places = np.zeros(64, np.int32)
    assert cut(block, len(block), 2, places, places.copy()) == -1


def test_memory_is_let_go_after_a_row_of_an_unusual_size() -> None:
    scratch = Scratch()
    assert len(scratch.bytes("x", 100 * 2**20)) >= 100 * 2**20
    assert len(scratch.bytes("x", 10)) < 2**20
