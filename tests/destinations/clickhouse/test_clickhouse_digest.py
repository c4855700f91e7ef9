"""By its digest ClickHouse knows a piece again: equal rows must have equal ones, other rows others."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.clickhouse.digest import digest

ROW = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(max_size=5),
    st.none() | st.booleans(),
    st.none() | st.decimals(-999, 999, places=2),
)
SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("d", pa.decimal128(12, 2))])


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(SCHEMA.types)]
    return pa.table(columns, schema=SCHEMA)


@given(st.lists(ROW, max_size=20), st.data())
def test_equal_rows_have_equal_digests_however_they_lie_in_memory(
    rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    start, end = sorted((data.draw(st.integers(0, len(rows))), data.draw(st.integers(0, len(rows)))))
    middle = data.draw(st.integers(start, end))
    whole = table(rows)
    fresh = table(rows[start:end]).combine_chunks()
    parts = [whole.slice(start, middle - start), whole.slice(middle, end - middle)]
    assert digest(pa.concat_tables(parts).combine_chunks()) == digest(fresh)
    assert digest(whole.slice(start, end - start)) == digest(fresh)


@given(st.lists(ROW, max_size=5), st.lists(ROW, max_size=5))
def test_other_rows_have_other_digests(one: list[tuple[object, ...]], other: list[tuple[object, ...]]) -> None:
    same = table(one).equals(table(other))
    assert (digest(table(one).combine_chunks()) == digest(table(other).combine_chunks())) == same
