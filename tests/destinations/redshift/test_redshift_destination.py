"""All of the destination but Redshift itself, on a real PostgreSQL."""

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import faults
from penstock.destinations.contract import NULL_TABLE_BOOK, AnyDestination, Batch, Receipt, TableBook
from penstock.destinations.redshift.session import STAGED, RedshiftSession
from penstock.destinations.sql.load.attempt import BatchWrite
from penstock.destinations.sql.load.loader import load_table
from penstock.destinations.sql.marks import KEPT_MARKS
from penstock.destinations.sql.schema.alter_table import TableRules
from penstock.destinations.sql.schema.schema_operations import Key
from penstock.errors import PenstockError, TransientError
from penstock.testing.destination import Staging, batch, events, numbered
from penstock.testing.large_batch import LARGE
from penstock.testing.own_tables import OwnTablesContract
from penstock.testing.sql_destination import SqlContract
from penstock.testing.waiting import HANG, eventually
from tests.destinations.redshift.on_postgres import OnPostgres, made, prepared
from tests.support.postgres import postgres


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


@pytest.fixture
def schema(url: str) -> str:
    name = f"s{uuid.uuid4().hex[:8]}"
    prepared(url, name)
    return name


class TestRedshift(SqlContract):
    most_memory_to_write = 10 * LARGE  # the stand-in for COPY reads whole files

    @pytest.fixture
    def destination(self, tmp_path: Path, url: str, schema: str) -> OnPostgres:
        return made(url, schema, tmp_path / "bucket")

    def ids(self, destination: AnyDestination) -> list[int]:
        config = destination.config
        with psycopg.connect(config.url.get_secret_value()) as connection:
            return [row[0] for row in connection.execute(f"SELECT id FROM {config.database_schema}.events").fetchall()]


class Warehouse:
    """A destination and the batches it was given so far."""

    def __init__(self, url: str, schema: str, tmp_path: Path, casts: dict[str, str] | None = None, **options: Any):
        self.url, self.schema, self.bucket = url, schema, tmp_path / "bucket"
        self.destination = made(url, schema, self.bucket, **options)
        self.staging = Staging(self.destination, tmp_path / "stage", casts)
        self.number = 0

    def load(self, *documents: Any, size: int = 10_000) -> Receipt:
        receipt = self.destination.write(batch(self.number), self.staging.stage(events(*documents), size=size))
        self.number += 1
        assert not [table.unavailable for table in receipt.tables if table.unavailable]
        return receipt

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, options=f"-c search_path={self.schema},public -c timezone=UTC") as connection:
            cursor = connection.execute(query)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def columns(self) -> dict[str, str]:
        with self.destination.session() as session:
            table = session.table("events")
        return {name: column.type for name, column in table.columns.items()} if table else {}


@pytest.fixture
def warehouse(url: str, schema: str, tmp_path: Path) -> Warehouse:
    return Warehouse(url, schema, tmp_path)


def test_a_table_is_made_with_the_types_of_its_values(warehouse: Warehouse) -> None:
    time = "2024-05-01T10:00:00.123456+02:00"
    warehouse.load({"a": {"b": 1}, "d": "x", "e": 1.5, "f": True, "g": [1, "ü"], "_timestamp": time})
    assert warehouse.columns() == {
        "a_b": "bigint", "d": "character varying(65535)", "e": "numeric(38,18)", "f": "boolean",
        "g": "character varying(65535)", "_timestamp": "timestamp with time zone",
    }  # fmt: skip
    assert warehouse.ask("SELECT a_b, d, e, f, g, _timestamp::text FROM events") == [
        (1, "x", pytest.approx(1.5), True, '[1,"ü"]', "2024-05-01 08:00:00.123456+00")
    ]


def test_nothing_and_an_empty_text_are_two_things(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1, "a": ""}, {"id": 2}, {"id": 3, "a": 'x,"y"\n\\'})
    assert warehouse.ask("SELECT id, a FROM events ORDER BY id") == [(1, ""), (2, None), (3, 'x,"y"\n\\')]


def test_numbers_are_written_in_plain_digits(warehouse: Warehouse) -> None:
    warehouse.load({"a": 0.0}, {"a": 1e-18}, {"a": -12345.678}, {"a": 1e19})
    found = [row[0] for row in warehouse.ask("SELECT trim_scale(a)::text FROM events")]
    assert found == ["0", "0.000000000000000001", "-12345.678", "10000000000000000000"]


@pytest.mark.parametrize("character", ["x", "ü", "日"])
def test_a_text_with_too_many_bytes_is_kept_aside_in_pieces(warehouse: Warehouse, character: str) -> None:
    size = len(character.encode())
    fits, too_long = character * (65_535 // size), character * (65_535 // size + 1)
    warehouse.load({"id": 1, "a": fits}, {"id": 2, "a": too_long})
    (one, two) = warehouse.ask("SELECT a, _unmapped FROM events ORDER BY id")
    assert one == (fits, None)
    assert two[0] is None
    kept = two[1][""]
    assert all(len(piece.encode()) <= 65_535 for piece in kept)
    assert json.loads("".join(kept)) == {"a": too_long}


def test_a_value_of_another_type_is_kept_aside_and_the_row_loads(warehouse: Warehouse) -> None:
    warehouse.load({"a": 1})
    warehouse.load({"a": "x"}, {"a": "7"})
    assert warehouse.columns()["_unmapped"] == "super"
    assert warehouse.ask("SELECT a, _unmapped FROM events") == [(1, None), (None, {"a": "x"}), (7, None)]


@pytest.mark.parametrize("number", ["1e400", "12345678901234567890123", "0.1234567890123456789"])
def test_a_number_that_super_would_round_is_kept_as_text(warehouse: Warehouse, number: str) -> None:
    parts = warehouse.staging.stage([b'{"a":1,"A":%s}' % number.encode()])
    warehouse.destination.write(batch(), parts)
    ((kept,),) = warehouse.ask("SELECT _unmapped FROM events")
    assert kept == {"": f'{{"/A":{number}}}'}


def test_a_cast_to_json_takes_any_value(url: str, schema: str, tmp_path: Path) -> None:
    warehouse = Warehouse(url, schema, tmp_path, {"/a": "jsonb"})
    warehouse.load({"a": [1, {"b": None}]}, {"a": "plain"}, {"a": 7})
    assert warehouse.columns() == {"a": "super"}
    assert warehouse.ask("SELECT a FROM events") == [([1, {"b": None}],), ("plain",), (7,)]
    warehouse.load({"a": "7"}, {"a": "true"}, {"a": "null"})
    assert warehouse.ask("SELECT a FROM events")[3:] == [("7",), ("true",), ("null",)]


def test_a_nul_character_is_taken_out(warehouse: Warehouse) -> None:
    warehouse.load({"a": "x\0y"})
    assert warehouse.ask("SELECT a FROM events") == [("xy",)]


def test_a_row_that_copy_refuses_fails_with_its_reason_and_the_others_load(warehouse: Warehouse) -> None:
    warehouse.ask("CREATE TABLE events (id bigint, pause interval)")
    receipt = warehouse.load(*({"id": number, "pause": "soon" if number == 37 else "1 day"} for number in range(50)))
    assert receipt.rows == 49
    (failures,) = receipt.failures
    assert failures.column("offset").to_pylist() == [37]
    assert "Invalid digit (column a)" in failures.column("message")[0].as_py()
    assert warehouse.ask("SELECT count(*) FROM events") == [(49,)]
    again = warehouse.destination.write(batch(0), warehouse.staging.stage(numbered([1])))
    assert again.repeated
    assert again.failures[0].equals(failures)


# Keys


@pytest.mark.parametrize("other", ["k\x00", "k ", "k\x00  "])
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_keys_that_are_equal_to_redshift_are_one_row_with_the_newest_values(
    url: str, schema: str, tmp_path: Path, known: bool, other: str
) -> None:
    warehouse = Warehouse(url, schema, tmp_path, primary_key=("id",))
    if known:
        warehouse.load({"id": "k", "v": 1})
    receipt = warehouse.load({"id": "k", "v": 4}, {"id": other, "v": 5})
    assert (receipt.rows, list(receipt.failures)) == (2, [])
    assert 5 in [v for (v,) in warehouse.ask("SELECT v FROM events")]
    if not known or other == "k\x00":  # what stands in for it here minds blanks
        assert warehouse.ask("SELECT count(*) FROM events") == [(1,)]


def test_rows_with_a_key_update_each_other(url: str, schema: str, tmp_path: Path) -> None:
    warehouse = Warehouse(url, schema, tmp_path, primary_key=("id",))
    warehouse.load({"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "y"}, {"id": 1, "a": "z"})
    warehouse.load({"id": 2, "b": 7}, {"id": 3, "a": ""})
    assert warehouse.ask("SELECT id, a, b FROM events ORDER BY id") == [(1, "z", 1), (2, "y", 7), (3, "", None)]
    with warehouse.destination.session() as session:
        table = session.table("events")
    assert table is not None
    assert table.key == Key("events_penstock_key", ("id",))


def test_an_older_version_changes_nothing(url: str, schema: str, tmp_path: Path) -> None:
    warehouse = Warehouse(url, schema, tmp_path, primary_key=("id",), version_column="v")
    warehouse.load({"id": 1, "v": 5, "a": "new"}, {"id": 2, "v": 1, "a": "old"})
    warehouse.load({"id": 1, "v": 4, "a": "late"}, {"id": 2, "v": 2, "a": "newer"}, {"id": 3, "v": 0, "a": "first"})
    assert warehouse.ask("SELECT id, a FROM events ORDER BY id") == [(1, "new"), (2, "newer"), (3, "first")]


def test_what_is_older_than_the_tables_row_says_nothing_beside_what_is_newer(
    url: str, schema: str, tmp_path: Path
) -> None:
    target = Warehouse(url, schema, tmp_path, primary_key=("id",), version_column="v")
    target.load({"id": 1, "v": 5, "a": 1, "b": 1}, {"id": 2, "v": 1, "a": 1, "b": 1}, {"id": 3, "b": 1})
    target.load(
        *({"id": 1, "v": 3, "b": 9}, {"id": 1, "v": 7, "a": 2}),
        *({"id": 2, "v": 3, "b": 9}, {"id": 2, "v": 7, "a": 2}),
        *({"id": 3, "b": 9}, {"id": 3, "v": 1, "a": 2}),
        *({"id": 4, "b": 9}, {"id": 4, "v": 1, "a": 2}),
        {"id": 5, "v": 1},
    )
    assert target.ask("SELECT id, v, a, b FROM events ORDER BY id") == [
        (1, 7, 2, 1),
        (2, 7, 2, 9),
        (3, 1, 2, 9),
        (4, 1, 2, 9),
        (5, 1, None, None),
    ]


def test_a_value_that_does_not_fit_empties_its_column(url: str, schema: str, tmp_path: Path) -> None:
    warehouse = Warehouse(url, schema, tmp_path, primary_key=("id",))
    warehouse.load({"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1})
    warehouse.load({"id": 1, "a": "x"}, {"id": 2, "b": 2})
    found = warehouse.ask("SELECT id, a, b, _unmapped FROM events ORDER BY id")
    assert found == [(1, None, 1, {"a": "x"}), (2, 1, 2, None)]


def test_rows_that_are_nothing_but_a_key_are_there_once(url: str, schema: str, tmp_path: Path) -> None:
    warehouse = Warehouse(url, schema, tmp_path, primary_key=("id", "kind"))
    for _ in range(2):
        warehouse.load({"id": 1, "kind": "a"}, {"id": 1, "kind": "b"}, {"id": 1, "kind": "a"})
    assert sorted(warehouse.ask("SELECT id, kind FROM events")) == [(1, "a"), (1, "b")]


def test_a_key_of_the_owner_is_used_in_its_own_order(url: str, schema: str, tmp_path: Path) -> None:
    warehouse = Warehouse(url, schema, tmp_path, primary_key=("x",))
    warehouse.ask("CREATE TABLE events (a bigint, b bigint, n bigint, CONSTRAINT theirs PRIMARY KEY (b, a))")
    with warehouse.destination.session() as session:
        table = session.table("events")
    assert table is not None
    assert table.key == Key("theirs", ("b", "a"))
    warehouse.load({"a": 1, "b": 2, "n": 3})
    warehouse.load({"a": 1, "b": 2, "n": 4})
    assert warehouse.ask("SELECT a, b, n FROM events") == [(1, 2, 4)]


# Delivery


def test_files_are_gone_after_their_load(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.load({"id": 1})
    monkeypatch.setattr(faults, "_armed", faults.parse("destination.writing=raise"))
    with pytest.raises(faults.InjectedFault):
        warehouse.load({"id": 2})
    assert list(warehouse.bucket.iterdir()) == []


def test_only_the_newest_marks_are_kept(warehouse: Warehouse) -> None:
    for number in (0, 1, KEPT_MARKS, KEPT_MARKS + 1):
        warehouse.destination.write(batch(number), warehouse.staging.stage(numbered([number])))
    assert warehouse.ask("SELECT batch FROM _penstock_loads ORDER BY 1") == [(KEPT_MARKS,), (KEPT_MARKS + 1,)]


def test_a_commit_that_is_under_way_is_waited_for(warehouse: Warehouse) -> None:
    """The writer of a batch is gone, its COMMIT is not: another attempt must not load the rows again."""
    warehouse.load({"id": 0})
    parts = warehouse.staging.stage(numbered([1]))
    receipts: list[Receipt] = []
    with psycopg.connect(warehouse.url) as first:
        first.execute(f"LOCK TABLE {warehouse.schema}._penstock_loads".encode())
        first.execute(f"INSERT INTO {warehouse.schema}.events VALUES (1)".encode())
        row = "VALUES ('ledger-a', 'shop', 1, 'events', 1, 0, '')"
        first.execute(f"INSERT INTO {warehouse.schema}._penstock_loads {row}".encode())
        second = threading.Thread(target=lambda: receipts.append(warehouse.destination.write(batch(1), parts)))
        second.start()
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
        eventually(lambda: bool(warehouse.ask(waiting)), "the second attempt waits")
        first.commit()
    second.join(20)
    assert [receipt.repeated for receipt in receipts] == [True]
    assert warehouse.ask("SELECT id FROM events") == [(0,), (1,)]


class Blind(RedshiftSession):
    """Does not find a mark when it looks, as if it were written a moment later."""

    def find_mark(self, batch: Batch, table: str) -> None:
        return None


def test_a_mark_that_came_after_one_looked_stops_the_load(warehouse: Warehouse) -> None:
    warehouse.load({"id": 0})
    destination = warehouse.destination
    parts = warehouse.staging.stage(numbered([1]))
    with closing(destination.connect()) as connection:
        session = Blind(connection, destination.dialect, destination.bucket)
        with pytest.raises(TransientError, match="PEN-DST-031"):
            load_table(BatchWrite(session, TableRules(), batch(0), NULL_TABLE_BOOK), "events", parts)
    assert warehouse.ask("SELECT id FROM events") == [(0,)]


def test_many_failures_are_remembered_with_the_batch(url: str, schema: str, tmp_path: Path) -> None:
    warehouse = Warehouse(url, schema, tmp_path, primary_key=("id",))
    documents = [{"id": 1}, *({"name": f"n{number}"} for number in range(6_000))]
    receipt = warehouse.load(*documents)
    assert (receipt.rows, receipt.failures[0].num_rows) == (1, 6_000)
    assert warehouse.ask("SELECT count(*) > 1 FROM _penstock_loads") == [(True,)]
    again = warehouse.destination.write(batch(0), warehouse.staging.stage(numbered([1])))
    assert again.failures[0].equals(receipt.failures[0])


def test_engines_that_add_columns_at_once_take_turns(warehouse: Warehouse) -> None:
    warehouse.load({"id": 0})
    turns = threading.Lock()
    names: list[str] = []

    class Book(TableBook):
        def lock(self, name: str) -> Any:
            names.append(name)
            return turns

    writes = [
        (batch(1, route=route), warehouse.staging.stage(events({f"c{number}": 1 for number in range(20)})))
        for route in ("a", "b")
    ]
    receipts: list[Receipt] = []
    threads = [
        threading.Thread(target=lambda write=write: receipts.append(warehouse.destination.write(*write, Book())))
        for write in writes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert [receipt.rows for receipt in receipts] == [1, 1]
    assert len(warehouse.columns()) == 21
    assert set(names) == {f'redshift "{warehouse.schema}"."events"'}


def test_a_bucket_that_cannot_be_written_is_tried_again(warehouse: Warehouse) -> None:
    warehouse.load({"id": 0})
    warehouse.bucket.rmdir()
    warehouse.bucket.write_text("in the way")
    receipt = warehouse.destination.write(batch(1), warehouse.staging.stage(numbered([1])))
    (table,) = receipt.tables
    assert isinstance(table.unavailable, TransientError)
    assert table.unavailable.code == "PEN-DST-032"
    with pytest.raises(PenstockError, match="PEN-DST-036"):
        warehouse.destination.check()


def test_a_database_that_is_away_is_tried_again(tmp_path: Path) -> None:
    destination = made("postgresql://127.0.0.1:1/x", "public", tmp_path / "bucket")
    staging = Staging(destination, tmp_path / "stage")
    with pytest.raises(TransientError, match="PEN-DST-034"):
        destination.write(batch(), staging.stage(numbered([1])))
    with pytest.raises(PenstockError, match="PEN-DST-034"):
        destination.check()


def test_the_staged_table_is_seen_by_nobody_else(warehouse: Warehouse) -> None:
    warehouse.load({"id": 0})
    assert warehouse.ask(f"SELECT count(*) FROM pg_tables WHERE tablename = '{STAGED}'") == [(0,)]


class TestRedshiftTables(OwnTablesContract):
    @pytest.fixture(autouse=True)
    def _schema(self, url: str, schema: str, tmp_path: Path) -> None:
        self.place = (url, schema, tmp_path / "bucket")

    def make(self, **options: Any) -> AnyDestination:
        as_given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        return made(*self.place, **as_given)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.place[0], autocommit=True) as connection:
            connection.execute(f'SET search_path = "{self.place[1]}"'.encode())
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def run(self, statement: str) -> None:
        self.ask(statement)

    def rows(self, table: str, columns: str = "id") -> list[tuple[Any, ...]]:
        return sorted(self.ask(f"SELECT {columns} FROM {table}"))
