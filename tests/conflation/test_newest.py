"""The newest of a batch, found over columns, are those that a loop over its rows finds."""

from __future__ import annotations

import time

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.conflation.newest import VersionColumn, codes_of, newest_rows
from penstock.conflation.version import Version, parse_version

TEXTS = [
    ("0.7", Version(0, 7)),
    ("12.0034", Version(12, 34)),
    ("999999999999999999.0", Version(999999999999999999, 0)),
    ("0", None),
    ("", None),
    (".1", None),
    ("1.", None),
    ("1.2.3", None),
    ("-1.2", None),
    ("+1.2", None),
    ("1.2 ", None),
    ("1.2\n", None),
    ("1,2", None),
    ("a.b", None),
    ("1e3.0", None),
    ("1000000000000000000.0", None),
    ("٣.١", None),
    (None, None),
]


def test_versions_are_read_alike_one_by_one_and_as_a_column() -> None:
    column = VersionColumn.parse(pa.array([text for text, _ in TEXTS], pa.string()))
    for (text, version), incarnation, generation, present in zip(
        TEXTS, column.incarnation, column.generation, column.present, strict=True
    ):
        assert (Version(incarnation, generation) if present else None) == version, text
        if text is not None and version is None:
            with pytest.raises(ValueError, match="no version"):
                parse_version(text)
        elif text is not None:
            assert parse_version(text) == version


versions = st.tuples(st.integers(0, 1), st.integers(0, 4))
rows = st.lists(st.tuples(st.integers(0, 2), versions, st.one_of(st.none(), versions)), max_size=30)


@given(rows, st.lists(st.booleans(), min_size=3, max_size=3))
def test_what_is_kept_is_what_a_loop_keeps(
    found: list[tuple[int, tuple[int, int], tuple[int, int] | None]], complete: list[bool]
) -> None:
    groups = np.array([group for group, _, _ in found], np.int64)
    kept = newest_rows(
        groups,
        _column([version for _, version, _ in found]),
        _column([base for _, _, base in found]),
        np.array([complete[group] for group in groups], np.bool_),
    )
    for row, (group, version, base) in enumerate(found):
        others = [(at, v, b or (-1, -1)) for at, (g, v, b) in enumerate(found) if g == group and at != row]
        mine = base or (-1, -1)
        if complete[group]:
            beaten = any(v > version or (v == version and at < row) for at, v, _ in others)
        else:
            beaten = any(b > mine or (b == mine and v == version and at < row) for at, v, b in others)
        assert kept[row] == (not beaten)


def _column(found: list[tuple[int, int]] | list[tuple[int, int] | None]) -> VersionColumn:
    texts = [None if each is None else f"{each[0]}.{each[1]}" for each in found]
    return VersionColumn.parse(pa.array(texts, pa.string()))


def test_time_grows_with_the_rows_and_not_with_their_square() -> None:
    count = 100_000
    sources = pa.array([f"hub{row % 1_000}" for row in range(count)])
    versions = pa.array([f"0.{row}" for row in range(count)])
    began = time.process_time()
    column = VersionColumn.parse(versions)
    none = VersionColumn.parse(pa.nulls(count, pa.string()))
    kept = newest_rows(codes_of(sources), column, none, np.ones(count, np.bool_))
    assert kept.sum() == 1_000
    assert time.process_time() - began < 20, "it takes a fraction of a second"
