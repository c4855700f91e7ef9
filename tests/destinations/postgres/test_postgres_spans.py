"""The table of sampled spans in PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.config.pipeline_config import PipelineConfig
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.testing.destination import Staging, batch
from tests.support.database import Database
from tests.support.otlp_requests import START
from tests.support.sampled_rows import COLUMNS, END, sampled_rows

TYPES = {
    "start_time": "timestamp with time zone", "end_time": "timestamp with time zone", "duration_ns": "bigint",
    **dict.fromkeys(("attributes", "resource_attributes", "events", "links"), "jsonb"),
}  # fmt: skip


def test_sampled_spans_have_columns_of_sensible_types(database: Database, tmp_path: Path) -> None:
    sample, rows = sampled_rows()
    options = {"url": database.dsn, "database_schema": database.schema, "table": "spans"}
    destination = PostgresDestination(PostgresConfig.model_validate(options))
    destination.write(batch(0), Staging(destination, tmp_path / "stage", sample.casts).stage(rows))
    types = database.ask(
        "SELECT column_name, data_type FROM information_schema.columns"
        f" WHERE table_schema = '{database.schema}' AND table_name = 'spans'"
    )
    found = {row[0]: row[1] for row in types}
    assert {name: found[name] for name in COLUMNS} == {name: TYPES.get(name, "text") for name in COLUMNS}
    ask = f"SELECT {', '.join(COLUMNS)}, start_time_unix_nano, end_time_unix_nano FROM spans ORDER BY span_id"
    first, second = (dict(zip([*COLUMNS, "from", "to"], row, strict=True)) for row in database.ask(ask))
    assert (first["trace_id"], first["span_id"], first["parent_span_id"]) == ("0" * 31 + "7", "0" * 15 + "7", "ab" * 8)
    assert first["start_time"] == datetime.fromtimestamp(0, UTC) + timedelta(microseconds=START // 1000)
    assert (first["from"], first["to"], first["duration_ns"]) == (START, END, END - START)
    assert (first["attributes"]["k"], first["events"][0]["name"]) == (2**53 + 1, "retry")
    assert first["links"][0]["trace_id"] == bytes(range(16)).hex()
    assert (first["status_code"], first["status_message"], first["service_name"]) == ("ERROR", 'it\'s "down"', "shop")
    assert (second["start_time"], second["duration_ns"], second["parent_span_id"]) == (None, None, None)


def test_nanoseconds_are_refused_where_there_is_no_type_for_them() -> None:
    sample = {"policies": [{"name": "all", "type": "always_sample"}], "times": "nanoseconds"}
    raw = {
        "name": "traces",
        "sources": {"spans": {"type": "otlp", "listen": "127.0.0.1:4318"}},
        "routes": {
            "kept": {
                "from": "spans",
                "steps": [{"sample": sample}],
                "to": {"type": "postgres", "url": "postgresql://x@127.0.0.1/x", "table": "spans"},
            }
        },
    }
    with pytest.raises(ValidationError, match="timestamp_ns"):
        PipelineConfig.model_validate(raw)
