"""The table of sampled spans in ClickHouse."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from penstock.testing.destination import Staging, batch
from tests.destinations.clickhouse.conftest import Engine
from tests.support.otlp_requests import START
from tests.support.sampled_rows import COLUMNS, END, sampled_rows


@pytest.mark.parametrize(("times", "digits"), [("microseconds", 6), ("nanoseconds", 9)])
def test_sampled_spans_have_columns_of_sensible_types(engine: Engine, tmp_path: Path, times: str, digits: int) -> None:
    sample, rows = sampled_rows(times=times)
    destination = engine.destination(table="spans")
    destination.write(batch(0), Staging(destination, tmp_path / "stage", sample.casts).stage(rows))
    found = engine.columns("spans")
    moment = f"Nullable(DateTime64({digits}, 'UTC'))"
    expected = {"start_time": moment, "end_time": moment, "duration_ns": "Nullable(Int64)"}
    assert {name: found[name] for name in COLUMNS} == {n: expected.get(n, "Nullable(String)") for n in COLUMNS}
    ask = f"SELECT {', '.join(COLUMNS)} FROM spans ORDER BY span_id"
    first, second = (dict(zip(COLUMNS, row, strict=True)) for row in engine.ask(ask))
    assert (first["trace_id"], first["span_id"], first["parent_span_id"]) == ("0" * 31 + "7", "0" * 15 + "7", "ab" * 8)
    assert (first["kind"], first["duration_ns"]) == ("SERVER", END - START)
    assert (first["status_code"], first["status_message"], first["service_name"]) == ("ERROR", 'it\'s "down"', "shop")
    assert orjson.loads(first["attributes"])["k"] == 2**53 + 1
    assert [each["name"] for each in orjson.loads(first["events"])] == ["retry"]
    assert orjson.loads(first["links"])[0]["span_id"] == bytes(range(8)).hex()
    assert (second["start_time"], second["duration_ns"], second["parent_span_id"]) == (None, None, None)
    cut = 10 ** (9 - digits)
    assert engine.ask(
        "SELECT toUnixTimestamp64Nano(toDateTime64(start_time, 9)), toUnixTimestamp64Nano(toDateTime64(end_time, 9)),"
        " start_time_unix_nano FROM spans WHERE duration_ns > 0"
    ) == [(START // cut * cut, END // cut * cut, START)]
