"""The fast flattening gives what the slow and obvious one gives, on whatever comes."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.flatten import flatten
from tests.flatten import reference
from tests.json.spelling import DOCUMENTS, damaged

MOMENTS = st.one_of(
    st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat()),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.sampled_from(
        [
            "2026-02-29T00:00:00Z",
            "2024-02-29T23:59:59.5Z",
            "2026-01-01T00:00:00+02:30",
            "2026-01-01",
            "x",
            "2026-01-01T24:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59.999999Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567Z",
            "2026-01-01T00:00:00z",
            "2026-1-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
        ]
    ),
)
PLAIN_DOCUMENTS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-9, 9),
        st.booleans(),
        st.floats(width=32, allow_nan=False, allow_infinity=False),
    ),
    min_size=1,
).map(lambda value: json.dumps(value).encode())


def check(documents: list[bytes | None], infer_timestamps: bool = False) -> None:
    fast = flatten(pa.array(documents, pa.binary()), infer_timestamps=infer_timestamps)
    slow = reference.flatten(documents, infer_timestamps)
    assert {column.name: column.type for column in fast.columns} == slow.types
    assert fast.table.column_names == [column.name for column in fast.columns] == list(slow.types)
    assert {column.name: column.paths for column in fast.columns} == slow.paths
    assert fast.table.schema.types == [inner.arrow for inner in slow.types.values()]
    assert fast.table.to_pydict() == slow.cells
    assert fast.rows.to_pylist() == slow.rows
    assert fast.empty.to_pylist() == slow.empty
    assert [failure.record for failure in fast.failures] == slow.failed
    assert sum(collision.values for collision in fast.collisions) == slow.collided
    assert len(fast.rows) + len(fast.empty) + len(fast.failures) == len(documents)
    fast.table.validate(full=True)


@given(st.lists(st.one_of(DOCUMENTS, damaged(), st.none()), max_size=6))
def test_any_documents(documents: list[bytes | None]) -> None:
    check(documents)


@given(st.lists(PLAIN_DOCUMENTS, max_size=8))
def test_numbers_and_booleans_in_one_column(documents: list[bytes | None]) -> None:
    check(documents)


@given(st.lists(st.one_of(MOMENTS, st.just(7)).map(lambda moment: json.dumps({"t": moment}).encode()), max_size=3))
def test_timestamps_in_strings(documents: list[bytes | None]) -> None:
    check(documents, infer_timestamps=True)
    check(documents, infer_timestamps=False)
