"""The whole destination against a strict stand-in for BigQuery."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest, ServiceUnavailable

from penstock import faults
from penstock.destinations.bigquery.config import BigqueryConfig
from penstock.destinations.bigquery.destination import BigqueryDestination
from penstock.destinations.bigquery.session import BigquerySession
from penstock.destinations.contract import NULL_TABLE_BOOK, AnyDestination, Batch, Receipt
from penstock.destinations.sql.load.attempt import BatchWrite
from penstock.destinations.sql.load.loader import load_table
from penstock.destinations.sql.schema.alter_table import TableRules
from penstock.errors import PenstockError, TransientError
from penstock.testing.destination import Staging, batch, events, numbered
from penstock.testing.large_batch import LARGE
from penstock.testing.own_tables import OwnTablesContract
from penstock.testing.sql_destination import SqlContract
from tests.destinations.bigquery.simulator import SimulatedBigquery


class Simulated(BigqueryDestination):
    def __init__(self, config: BigqueryConfig) -> None:
        super().__init__(config)
        self.there = SimulatedBigquery(config.project)

    def client(self) -> SimulatedBigquery:
        return self.there


def made(**options: Any) -> Simulated:
    return Simulated(BigqueryConfig(project="my-project", dataset="shop", **{"adopt": ("events",), **options}))


class TestBigquery(SqlContract):
    in_this_process = True
    most_memory_to_write = 10 * LARGE  # the stand-in is a part of this process

    def make(self, tmp_path: Path) -> Simulated:
        return made()

    def ids(self, destination: AnyDestination) -> list[int]:
        return [row[0] for row in destination.there.database.execute("SELECT id FROM shop.events").fetchall()]


class Warehouse:
    def __init__(self, tmp_path: Path, casts: dict[str, str] | None = None, **options: Any) -> None:
        self.destination = made(**options)
        self.there = self.destination.there
        self.staging = Staging(self.destination, tmp_path / "stage", casts)
        self.number = 0

    def load(self, *documents: Any) -> Receipt:
        receipt = self.destination.write(batch(self.number), self.staging.stage(events(*documents)))
        self.number += 1
        assert not [table.unavailable for table in receipt.tables if table.unavailable]
        return receipt

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.there.database.execute(query).fetchall()

    def columns(self) -> dict[str, str]:
        with self.destination.session() as session:
            table = session.table("events")
        return {name: column.type for name, column in table.columns.items()} if table else {}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


def test_a_table_is_made_with_the_types_of_its_values(warehouse: Warehouse) -> None:
    time = "2024-05-01T10:00:00.123456+02:00"
    warehouse.load({"a": {"b": 1}, "d": "x", "e": 1.5, "f": True, "g": [1, "ü"], "_timestamp": time}, {"d": ""})
    assert warehouse.columns() == {
        "a_b": "INT64", "d": "STRING", "e": "FLOAT64", "f": "BOOL", "g": "STRING", "_timestamp": "TIMESTAMP"
    }  # fmt: skip
    assert warehouse.ask("SELECT a_b, d, e, f, g, _timestamp::VARCHAR FROM shop.events") == [
        (1, "x", 1.5, True, '[1,"ü"]', "2024-05-01 08:00:00.123456+00"),
        (None, "", None, None, None, None),
    ]


def test_casts_decide_the_types_of_their_columns(tmp_path: Path) -> None:
    casts = {"/price": "numeric(12,2)", "/day": "date", "/raw": "jsonb", "/at": "datetime"}
    warehouse = Warehouse(tmp_path, casts)
    warehouse.load({"price": 1.5, "day": "2024-05-01", "raw": {"a": 1}, "at": "2024-05-01T10:00:00Z"}, {"price": 2})
    types = warehouse.columns()
    assert (types["price"], types["day"], types["at"]) == ("NUMERIC(12, 2)", "DATE", "DATETIME")
    found = warehouse.ask('SELECT price::VARCHAR, day::VARCHAR, "at"::VARCHAR FROM shop.events')
    assert found == [("1.50", "2024-05-01", "2024-05-01 10:00:00"), ("2.00", None, None)]


def test_text_stays_text_in_a_json_column(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path, {"/raw": "json"})
    warehouse.load({"raw": "7"}, {"raw": "true"}, {"raw": "null"}, {"raw": "x"})
    found = [json.loads(row[0]) for row in warehouse.ask("SELECT raw::VARCHAR FROM shop.events")]
    assert found == ["7", "true", "null", "x"]


def test_a_value_of_another_type_is_kept_aside_and_the_row_loads(warehouse: Warehouse) -> None:
    warehouse.load({"a": 1})
    warehouse.load({"a": "x"}, {"a": "7"})
    assert warehouse.columns()["_unmapped"] == "JSON"
    found = warehouse.ask("SELECT a, _unmapped FROM shop.events")
    assert [(a, json.loads(kept) if kept else None) for a, kept in found] == [(1, None), (None, {"a": "x"}), (7, None)]


@pytest.mark.parametrize("number", ["1e400", "12345678901234567890123", "0.1234567890123456789"])
def test_a_number_that_json_would_round_is_kept_as_text(warehouse: Warehouse, number: str) -> None:
    warehouse.destination.write(batch(), warehouse.staging.stage([b'{"a":1,"A":%s}' % number.encode()]))
    ((kept,),) = warehouse.ask("SELECT _unmapped FROM shop.events")
    assert json.loads(kept) == {"": f'{{"/A":{number}}}'}


def test_a_column_of_arrays_is_left_to_its_owner(warehouse: Warehouse) -> None:
    warehouse.ask("CREATE TABLE shop.events (id BIGINT, tags BIGINT[])")
    warehouse.load({"id": 1, "tags": [1, 2]})
    ((number, tags, kept),) = warehouse.ask("SELECT id, tags, _unmapped FROM shop.events")
    assert (number, tags, json.loads(kept)) == (1, None, {"tags": [1, 2]})


def test_an_integer_column_becomes_wider_if_asked(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path, on_type_conflict="widen")
    warehouse.load({"a": 1, "b": True})
    warehouse.load({"a": 1.5, "b": "x"})
    assert warehouse.columns() == {"a": "FLOAT64", "b": "BOOL", "_unmapped": "JSON"}
    assert warehouse.ask("SELECT a, b FROM shop.events") == [(1.0, True), (1.5, None)]


def test_new_columns_are_added_in_one_change(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1})
    warehouse.load({f"c{number}": number for number in range(50)})
    assert len([text for text in warehouse.there.statements if text.startswith("ALTER TABLE")]) == 1
    assert len(warehouse.columns()) == 51


def test_a_row_that_is_refused_fails_with_its_reason_and_the_others_load(warehouse: Warehouse) -> None:
    warehouse.ask("CREATE TABLE shop.events (id BIGINT, pause TIME)")
    receipt = warehouse.load(
        *({"id": number, "pause": "99:99:99" if number == 7 else "00:10:00"} for number in range(20))
    )
    assert receipt.rows == 19
    (failures,) = receipt.failures
    assert failures.column("offset").to_pylist() == [7]
    assert "BigQuery says: " in failures.column("message")[0].as_py()
    assert warehouse.ask("SELECT count(*) FROM shop.events") == [(19,)]


# Keys


def test_rows_with_a_key_update_each_other(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path, primary_key=("id",))
    warehouse.load({"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "y"}, {"id": 1, "a": "z"})
    warehouse.load({"id": 2, "b": 7}, {"id": 3, "a": ""})
    found = warehouse.ask("SELECT id, a, b FROM shop.events ORDER BY id")
    assert found == [(1, "z", 1), (2, "y", 7), (3, "", None)]


def test_an_older_version_changes_nothing(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path, primary_key=("id",), version_column="v")
    warehouse.load({"id": 1, "v": 5, "a": "new"}, {"id": 2, "v": 1, "a": "old"})
    warehouse.load({"id": 1, "v": 4, "a": "late"}, {"id": 2, "v": 2, "a": "newer"})
    assert warehouse.ask("SELECT id, a FROM shop.events ORDER BY id") == [(1, "new"), (2, "newer")]


# Delivery


def staged_tables(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return warehouse.ask("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE '%staged%'")


def test_staged_tables_are_gone_after_their_load(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.load({"id": 1})
    monkeypatch.setattr(faults, "_armed", faults.parse("destination.writing=raise"))
    with pytest.raises(faults.InjectedFault):
        warehouse.load({"id": 2})
    assert staged_tables(warehouse) == []


class Blind(BigquerySession):
    """Does not find a mark when it looks, as if it were written a moment later."""

    def find_mark(self, batch: Batch, table: str) -> None:
        return None


@pytest.mark.parametrize("job", ["known", "forgotten"])
def test_a_job_that_outlived_its_writer_is_not_done_again(warehouse: Warehouse, job: str) -> None:
    warehouse.load({"id": 1})
    if job == "forgotten":  # job ids are remembered for months, but not for ever: the mark is
        warehouse.there.jobs.clear()
    session = Blind(warehouse.there, warehouse.destination.dialect)
    parts = warehouse.staging.stage(numbered([1]))
    with pytest.raises(TransientError, match="PEN-DST-053"):
        load_table(BatchWrite(session, TableRules(), batch(0), NULL_TABLE_BOOK), "events", parts)
    assert warehouse.ask("SELECT id FROM shop.events") == [(1,)]


def test_a_job_that_failed_does_not_stand_in_the_way(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1})
    parts = warehouse.staging.stage(numbered([2]))
    met = BadRequest("Transaction is aborted due to concurrent update against table shop.events")
    for _ in range(2):
        warehouse.there.broken_script = met
        (table,) = warehouse.destination.write(batch(1), parts).tables
        assert table.unavailable is not None
    assert warehouse.destination.write(batch(1), parts).rows == 1
    assert warehouse.ask("SELECT id FROM shop.events") == [(1,), (2,)]


def test_a_service_that_is_away_is_tried_again(warehouse: Warehouse) -> None:
    warehouse.there.broken = ServiceUnavailable("try later")
    (table,) = warehouse.destination.write(batch(), warehouse.staging.stage(numbered([1]))).tables
    assert isinstance(table.unavailable, TransientError)
    warehouse.there.broken = ServiceUnavailable("try later")
    with pytest.raises(PenstockError, match=r"PEN-DST-052.*try later"):
        warehouse.destination.check()


def test_a_dataset_that_does_not_exist_is_said_so(tmp_path: Path) -> None:
    destination = Simulated(BigqueryConfig(project="my-project", dataset="elsewhere"))
    with pytest.raises(PenstockError, match="PEN-DST-052"):
        destination.check()


class TestBigqueryTables(OwnTablesContract):
    @pytest.fixture(autouse=True)
    def _project(self) -> None:
        self.there = SimulatedBigquery("my-project")

    def make(self, **options: Any) -> AnyDestination:
        found = made(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})
        found.there = self.there
        return found

    def run(self, statement: str) -> None:
        self.there.database.execute(statement.replace("TABLE ", "TABLE shop."))

    def rows(self, table: str, columns: str = "id") -> list[tuple[Any, ...]]:
        return sorted(self.there.database.execute(f"SELECT {columns} FROM shop.{table}").fetchall())
