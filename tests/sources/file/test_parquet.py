"""Parquet: rows as JSON objects, positions by row."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Header
from penstock.sources.file.formats.parquet_rows import objects, rows_from
from penstock.testing.source import log_records, running
from penstock.testing.waiting import HANG
from tests.sources.file.test_rotation import context, live, read_once

__all__ = ["live"]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, 2**63 - 1], pa.int64(), "1 null 9223372036854775807"),
        ([1.5, float("nan"), None, 1e300], pa.float64(), "1.5 null null 1e+300"),
        ([float("inf"), -float("inf"), float("nan")], pa.float32(), '"Infinity" "-Infinity" null'),
        ([[float("inf"), float("nan"), 1.5]], pa.list_(pa.float64()), '["Infinity",null,1.5]'),
        ([True, None, False], pa.bool_(), "true null false"),
        (['a"\n', None, "é"], pa.string(), '"a\\"\\u000a" null "é"'),
        ([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", tz="UTC"), '"2026-01-02T00:00:00+00:00"'),
        ([date(2026, 1, 2)], pa.date32(), '"2026-01-02"'),
        ([Decimal("1.50"), None], pa.decimal128(20, 2), "1.50 null"),
        ([b"ab", b"\xff"], pa.binary(), '"ab" "/w=="'),
        ([[1, 2], [], None], pa.list_(pa.int64()), "[1,2] [] null"),
        ([{"x": Decimal("2.50")}], pa.struct({"x": pa.decimal128(5, 2)}), '{"x":2.50}'),
        ([[("k", 1)], []], pa.map_(pa.string(), pa.int64()), '{"k":1} {}'),
        (["x", "y"], pa.dictionary(pa.int32(), pa.string()), '"x" "y"'),
        ([None], pa.null(), "null"),
    ],
)
def test_values_as_json(values: list[object], kind: pa.DataType, expected: str) -> None:
    column = pa.array(values, kind)
    batch = pa.RecordBatch.from_arrays([column], names=['na"me'])
    texts = [text.decode() for text in objects(batch).to_pylist()]
    assert texts == [f'{{"na\\"me":{value}}}' for value in expected.split(" ")]
    assert all(json.loads(text).keys() == {'na"me'} for text in texts)


def test_columns_of_one_name_do_not_hide_each_other() -> None:
    columns = [pa.array([number]) for number in range(4)]
    batch = pa.RecordBatch.from_arrays(columns, names=["a", "a_3", "a", ""])
    assert objects(batch).to_pylist() == [b'{"a":0,"a_3":1,"a_3_3":2,"column_4":3}']


@given(st.integers(0, 40), st.integers(1, 15), st.integers(0, 45))
def test_reading_goes_on_at_any_row(
    tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, start: int
) -> None:
    file = tmp_path_factory.mktemp("parquet") / "a.parquet"
    pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64())}), file, row_group_size=group)
    found = [
        (p.start + i, json.loads(d)["n"]) for p in rows_from(file, start) for i, d in enumerate(p.data.to_pylist())
    ]
    assert found == [(n, n) for n in range(start, rows)]


def test_files_are_read_once_with_their_rows_numbered(tmp_path: Path, live: Path) -> None:
    file = live.with_name("a.parquet")
    pq.write_table(pa.table({"n": [1, 2, 3]}), file)
    assert read_once(tmp_path) == [1, 2, 3]
    places = [json.loads(r.headers[Header.POSITION]) for r in log_records(tmp_path / "log")]
    assert [place["line"] for place in places] == [1, 2, 3]
    file.rename(live.with_name("b.parquet"))
    assert read_once(tmp_path) == [1, 2, 3]
    pq.write_table(pa.table({"n": [4, 5]}), live.with_name("b.parquet"))
    assert read_once(tmp_path) == [1, 2, 3, 4, 5]


def test_a_file_that_is_not_whole_yet_is_read_when_it_is(tmp_path: Path, live: Path) -> None:
    whole = live.with_name(".whole")
    pq.write_table(pa.table({"n": [1, 2]}), whole)
    content = whole.read_bytes()
    live.with_name("a.parquet").write_bytes(content[:-20])
    pq.write_table(pa.table({"n": [7]}), live.with_name("b.parquet"))
    assert read_once(tmp_path) == [7]
    live.with_name("a.parquet").write_bytes(content)
    assert sorted(read_once(tmp_path)) == [1, 2, 7]


def test_a_kill_neither_loses_nor_doubles(tmp_path: Path, live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"n": range(300)}), live.with_name("a.parquet"), row_group_size=20)
    monkeypatch.setenv("PENSTOCK_FAULTS", "log.append.after_fsync@5=kill")
    with running("file", json.dumps({"path": str(live.parent)}), context(tmp_path), once=True) as process:
        process.join(HANG)
        assert process.exitcode == -9
    monkeypatch.delenv("PENSTOCK_FAULTS")
    assert read_once(tmp_path) == list(range(300))
