"""What the transport benchmark stands on: documents, load, clocks and a log with history are what it says they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from bench.__main__ import SECTIONS as NAMED
from bench.records import short_texts
from bench.transport import SECTIONS, tables
from bench.transport.changes import clocks, compare
from bench.transport.copying import TableCopy
from bench.transport.files import DOCUMENT_BYTES, write_events
from bench.transport.tables import DELETES, IN_A_TRANSACTION, INSERTS, TABLE, UPDATES
from bench.transport.verbs import asked, write_project
from penstock.cli.main import app
from penstock.record import Record, entries
from tests.support.postgres import LOGICAL, postgres

ROWS = 2_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres(settings=LOGICAL) as found:
        size = tables.create(found, ROWS)
        assert 100 <= size <= 150
        yield found


def test_the_sections_that_can_be_named_are_those_that_there_are() -> None:
    assert list(SECTIONS) == list(NAMED["transport"])


def test_documents_are_json_of_the_size_that_is_told(tmp_path: Path) -> None:
    write_events(tmp_path / "events.ndjson", 5_000)
    lines = (tmp_path / "events.ndjson").read_bytes().splitlines()
    assert {len(line) for line in lines} == {DOCUMENT_BYTES}
    assert {tuple(json.loads(line)) for line in lines} == {("id", "page", "user", "at", "session")}
    assert len(set(lines)) == 5_000


def test_a_document_without_room_for_its_fields_is_an_error() -> None:
    with pytest.raises(ValueError, match="no room"):
        short_texts(1, 60)


def test_a_load_makes_as_many_changes_of_each_kind_as_it_says(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE PUBLICATION seen FOR ALL TABLES")
        connection.execute("SELECT pg_create_logical_replication_slot('seen', 'pgoutput')")
        load = tables.change(url, rate=100_000, seconds=0.01)
        seen = connection.execute(
            "SELECT chr(get_byte(data, 0)), count(*) FROM pg_logical_slot_get_binary_changes("
            "'seen', NULL, NULL, 'proto_version', '1', 'publication_names', 'seen') GROUP BY 1"
        ).fetchall()
        connection.execute("SELECT pg_drop_replication_slot('seen')")
        connection.execute("DROP PUBLICATION seen")
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()
    transactions = load.changes // IN_A_TRANSACTION
    assert load.changes == 1_000
    assert rows == ROWS
    kinds = {"B": 1, "C": 1, "I": INSERTS, "U": UPDATES, "D": DELETES}
    assert {kind: count for kind, count in seen if kind in kinds} == {k: transactions * n for k, n in kinds.items()}


def test_a_load_keeps_to_the_clock(url: str) -> None:
    load = tables.finished(tables.put_load(url, rate=2_000, seconds=0.5))
    assert load.changes == 1_000
    assert load.seconds >= 0.45


def test_a_load_that_cannot_be_says_why() -> None:
    with pytest.raises(RuntimeError, match="connection"):
        tables.finished(tables.put_load("postgresql://nobody@127.0.0.1:1/none", rate=50, seconds=1))


def test_a_copy_counts_every_row_in_the_log(url: str, tmp_path: Path) -> None:
    assert TableCopy(url, ROWS, tmp_path).into_log() > 0
    with pytest.raises(RuntimeError, match=f"of {ROWS + 1:,} rows {ROWS:,} are in the log"):
        TableCopy(url, ROWS + 1, tmp_path).into_log()


def test_the_clock_of_a_row_is_read_from_the_log_and_deletes_have_none() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    rows = (b'{"id":1,"at":"2026-01-02T03:04:05.678901Z","note":null}', b'{"id":2}')
    batch = entries([Record(row, "public.items", timestamp=at) for row in rows])
    assert clocks(batch).tolist() == [pytest.approx(at.timestamp(), abs=1e-6)]


@pytest.mark.parametrize("harm", ["DELETE FROM items WHERE id = 1", "UPDATE items SET price = price + 1 WHERE id = 1"])
def test_a_mirror_that_is_not_the_table_is_found_out(url: str, tmp_path: Path, harm: str) -> None:
    columns = 'id BIGINT, customer INTEGER, name TEXT, price DECIMAL(12,2), version INTEGER, "at" TIMESTAMPTZ, day DATE'
    with psycopg.connect(url) as connection, duckdb.connect(tmp_path / "mirror.duckdb") as mirror:
        rows = connection.execute(f"SELECT * FROM {TABLE}").fetchall()
        mirror.execute(f"CREATE TABLE {TABLE} ({columns}, ok BOOLEAN, note TEXT)")
        table = pa.table({f"column{place}": values for place, values in enumerate(zip(*rows, strict=True))})
        mirror.register("rows", table)
        mirror.execute(f"INSERT INTO {TABLE} FROM rows")
    compare(url, tmp_path / "mirror.duckdb")
    with duckdb.connect(tmp_path / "mirror.duckdb") as mirror:
        mirror.execute(harm.replace("id = 1", f"id = {rows[0][0]}"))
    with pytest.raises(RuntimeError, match="differ"):
        compare(url, tmp_path / "mirror.duckdb")


def test_every_verb_finds_what_it_is_asked_for(tmp_path: Path) -> None:
    config = write_project(tmp_path, 4_000)
    for verb in asked(config, 4_000):
        ran = CliRunner().invoke(app, [*verb.arguments, "--config", str(config)], input="n\n")
        assert ran.exit_code == verb.exit_code, verb.name
        if verb.words[:2] in {("log", "show"), ("tap", "done")}:
            assert len(ran.stdout.splitlines()) >= 10, verb.name
        if verb.words[:2] == ("offset", "rewind"):
            assert "again from" in ran.stderr
