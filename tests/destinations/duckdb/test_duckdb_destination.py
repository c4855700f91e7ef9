import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.destinations.contract import AnyDestination, Part
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.sql.marks import KEPT_MARKS as KEPT
from penstock.errors import PenstockError, TransientError
from penstock.record import Mode, Op, Record, entries, placed
from penstock.testing.destination import Staging, batch, delivered_rows, events, numbered
from penstock.testing.large_batch import LARGE
from penstock.testing.sql_destination import SqlContract
from tests.support.duckdb_file import open_file
from tests.support.small_disk import fill, small_disk


def ask(tmp_path: Path, query: str) -> list[tuple[Any, ...]]:
    with open_file(tmp_path / "warehouse.duckdb") as connection:
        return connection.execute(query).fetchall()


def columns(tmp_path: Path, table: str = "events") -> dict[str, str]:
    return dict(ask(tmp_path, f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}'"))


class Warehouse:
    """A destination and the batches it was given so far."""

    def __init__(self, tmp_path: Path, casts: dict[str, str] | None = None, **options: Any) -> None:
        self.destination = DuckdbDestination(
            DuckdbConfig.model_validate({"path": tmp_path / "warehouse.duckdb", "adopt": ["events", "b"], **options})
        )
        self.staging = Staging(self.destination, tmp_path / "stage", casts)
        self.number = 0

    def load(self, *documents: Any, size: int = 10_000) -> list[Part]:
        parts = self.staging.stage(events(*documents), size=size)
        self.destination.write(batch(self.number), parts)
        self.number += 1
        return parts


class TestDuckdb(SqlContract):
    most_memory_to_write = 10 * LARGE  # the engine is a part of this process

    def make(self, tmp_path: Path) -> DuckdbDestination:
        return DuckdbDestination(DuckdbConfig(path=tmp_path / "new" / "warehouse.duckdb"))

    def ids(self, destination: AnyDestination) -> list[int]:
        with open_file(destination.config.path, read_only=True) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM events").fetchall()]


# Tables and columns


def test_a_table_is_made_with_the_types_of_its_values(tmp_path: Path) -> None:
    time = "2024-05-01T10:00:00Z"
    Warehouse(tmp_path).load({"a": {"b": {"c": 1}}, "d": "x", "e": 1.5, "f": True, "g": [1], "_timestamp": time})
    assert columns(tmp_path) == {
        "a_b_c": "BIGINT", "d": "VARCHAR", "e": "DOUBLE", "f": "BOOLEAN", "g": "VARCHAR",
        "_timestamp": "TIMESTAMP WITH TIME ZONE",
    }  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"primary_key": ("id",)}])
def test_records_that_are_no_rows_are_skipped(tmp_path: Path, options: dict[str, Any]) -> None:
    destination = DuckdbDestination(DuckdbConfig(path=tmp_path / "warehouse.duckdb", **options))
    stager = destination.stager(tmp_path, {})
    changes = [
        Record(b'{"rows":2}', "public.t", Op.NOOP, Mode.COMPLETE),
        Record(b'{"id":1,"v":"a"}', "public.t"),
        Record(b'{"id":2,"v":"b"}', "public.t", Op.UPDATE),
        Record(b'{"id":1}', "public.t", Op.DELETE),
        Record(b'{"truncate":true}', "public.t", Op.COMMAND),
    ]
    outcome = stager.add(placed(entries(changes), 0, 0))
    assert (outcome.kept.num_rows, outcome.skipped, outcome.failures.num_rows) == (2, 3, 0)
    destination.write(batch(), stager.finish())
    assert ask(tmp_path, "SELECT * FROM events ORDER BY id") == [(1, "a"), (2, "b")]


def test_new_fields_become_new_columns_and_old_ones_stay(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.load({"a": 1})
    warehouse.load({"b": "x"})
    assert ask(tmp_path, "SELECT a, b FROM events") == [(1, None), (None, "x")]


def test_columns_of_the_owner_are_left_alone_whatever_their_case(tmp_path: Path) -> None:
    ask(tmp_path, 'CREATE TABLE "Events" ("UserID" BIGINT, note VARCHAR DEFAULT \'new\')')
    Warehouse(tmp_path).load({"userId": 7})
    assert ask(tmp_path, "SELECT * FROM events") == [(7, "new")]


@pytest.mark.parametrize("size", [1, 10_000], ids=["in pieces", "at once"])
@pytest.mark.parametrize(
    ("values", "kind", "stored"),
    [
        ([1, 1.5], "DOUBLE", [1.0, 1.5]),
        ([True, 7], "BIGINT", [1, 7]),
        ([True, 7, 2.5], "DOUBLE", [1.0, 7.0, 2.5]),
        ([1, "x"], "VARCHAR", ["1", "x"]),
        ([7, [1, 2]], "VARCHAR", ["7", "[1,2]"]),
    ],
)
def test_values_of_two_types_in_a_batch_meet_in_one_column(
    tmp_path: Path, values: list[Any], kind: str, stored: list[Any], size: int
) -> None:
    Warehouse(tmp_path).load(*({"v": value} for value in values), size=size)
    assert columns(tmp_path) == {"v": kind}
    assert [row[0] for row in ask(tmp_path, "SELECT v FROM events")] == stored


def test_each_kind_of_event_can_have_its_table(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path, table="{{ kind }}")
    warehouse.load(
        {"kind": "Page View", "v": 1}, {"kind": "order", "v": "a"}, {"v": 9}, {"kind": "order", "v": "b"}, {"kind": [1]}
    )
    assert ask(tmp_path, "SELECT v FROM page_view") == [(1,)]
    assert ask(tmp_path, 'SELECT v FROM "order"') == [("a",), ("b",)]
    (outcome,) = warehouse.staging.outcomes
    assert outcome.skipped == 1
    assert outcome.failures.column("code").to_pylist() == ["table_name"]
    assert outcome.failures.column("offset").to_pylist() == [4]


def test_data_that_is_no_object_fails_and_says_why(tmp_path: Path) -> None:
    staging = Warehouse(tmp_path).staging
    staging.stage([b'{"a":1}', b'{"a":', b"[1]", b"{}", None], first=10)
    (outcome,) = staging.outcomes
    assert outcome.failures.column("offset").to_pylist()[:2] == [11, 12]
    assert outcome.failures.column("code").to_pylist()[:2] == ["not_json", "not_an_object"]
    assert outcome.kept.column("offset").to_pylist() == [10]


def test_a_cast_decides_the_type_of_its_column(tmp_path: Path) -> None:
    casts = {"/price": "numeric(12,2)", "/big": "numeric", "/when": "timestamp", "/day": "date", "/n": "integer"}
    warehouse = Warehouse(tmp_path, casts)
    warehouse.load({"price": 1.5, "big": 1.123456789, "when": "2024-05-01T10:00:00+02:00", "day": "2024-05-01", "n": 7})
    assert columns(tmp_path) == {
        "price": "DECIMAL(12,2)", "big": "DECIMAL(38,18)", "when": "TIMESTAMP", "day": "DATE", "n": "INTEGER"
    }  # fmt: skip
    assert ask(tmp_path, 'SELECT price::VARCHAR, "when"::VARCHAR, day::VARCHAR, n FROM events') == [
        ("1.50", "2024-05-01 08:00:00", "2024-05-01", 7)
    ]
    warehouse.load({"price": "cheap", "day": "soon", "n": 3_000_000_000})
    ((price, day, n, unmapped),) = ask(tmp_path, "SELECT price, day, n, _unmapped FROM events WHERE day IS NULL")
    assert (price, day, n) == (None, None, None)
    assert json.loads(unmapped) == {"price": "cheap", "day": "soon", "n": 3_000_000_000}


@pytest.mark.parametrize("asked", ["int); DROP TABLE events; --", "no_such_type"])
def test_a_cast_to_what_is_no_type_takes_no_records(tmp_path: Path, asked: str) -> None:
    with pytest.raises(PenstockError, match="PEN-DST-020"):
        Warehouse(tmp_path, {"/a": asked}).load({"a": 1})


@pytest.mark.parametrize("made", [True, False])
def test_text_stays_text_in_a_json_column(tmp_path: Path, made: bool) -> None:
    """Also in a table that somebody else has made. Only an object or array in a text is what it says."""
    values = ["7", "true", "null", "1e5", "0123", "x", 7, 1.5, True, [1, "7"], '{"a": "7"}']
    if made:
        with open_file(tmp_path / "warehouse.duckdb") as connection:
            connection.execute("CREATE TABLE events (doc JSON)")
    warehouse = Warehouse(tmp_path, None if made else {"/doc": "json"})
    for value in values:
        warehouse.load({"doc": value})
    warehouse.load(*({"doc": value} for value in values))
    found = [json.loads(text) for (text,) in ask(tmp_path, "SELECT doc::VARCHAR FROM events ORDER BY rowid")]
    assert found == [*values[:-1], {"a": "7"}] * 2


# Values that their column cannot take


def test_a_value_of_another_type_is_kept_aside_and_the_row_loads(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.load({"a": 1, "b": True})
    warehouse.load({"a": "x", "b": 1}, {"a": "7", "b": 2}, {"b": False})
    found = ask(tmp_path, "SELECT a, b, _unmapped FROM events")
    assert [(a, b, json.loads(kept) if kept else None) for a, b, kept in found] == [
        (1, True, None), (None, True, {"a": "x"}), (7, None, {"b": 2}), (None, False, None)
    ]  # fmt: skip


@pytest.mark.parametrize(("first", "kind"), [(9007199254740992, "DOUBLE"), (9007199254740993, "BIGINT")])
def test_a_column_is_widened_unless_that_would_round_its_values(tmp_path: Path, first: int, kind: str) -> None:
    warehouse = Warehouse(tmp_path, on_type_conflict="widen")
    warehouse.load({"a": first})
    warehouse.load({"a": 1.5})
    assert columns(tmp_path)["a"] == kind
    assert ask(tmp_path, "SELECT CAST(a AS BIGINT) FROM events LIMIT 1") == [(first,)]


def test_nothing_is_added_while_everything_fits(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.load({"a": 1})
    warehouse.load({"a": "7"}, {"a": "8"})
    assert columns(tmp_path) == {"a": "BIGINT"}


def test_all_that_was_kept_aside_of_a_row_is_in_one_object(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.load({"a_b": 1, "c": 1})
    warehouse.load({"a_b": "x", "a": {"b": {"deep": None, "n": [12345678901234567890123, None]}}, "A_B": 5, "c": 1.5})
    ((kept,),) = ask(tmp_path, "SELECT _unmapped FROM events WHERE _unmapped IS NOT NULL")
    assert json.loads(kept) == {"a_b": "x", "c": 1.5, "/A_B": 5}
    assert ask(tmp_path, "SELECT a_b_n FROM events WHERE a_b_n IS NOT NULL") == [("[12345678901234567890123,null]",)]


def test_json_that_the_engine_cannot_read_is_kept_as_text(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    raw = b'{"a":1,"A":"\\ud800"}'
    warehouse.destination.write(batch(), warehouse.staging.stage([raw]))
    ((kept,),) = ask(tmp_path, "SELECT _unmapped FROM events")
    assert json.loads(kept) == {"/A": r"\ud800"}


def test_text_with_a_nul_character_is_stored_as_it_is(tmp_path: Path) -> None:
    Warehouse(tmp_path).load({"a": "x\0y"})
    assert ask(tmp_path, "SELECT a FROM events") == [("x\0y",)]


# Delivery


def test_only_the_newest_marks_are_kept(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    for number in (0, 1, KEPT, KEPT + 1):
        warehouse.destination.write(batch(number), warehouse.staging.stage(numbered([number])))
    warehouse.destination.write(batch(1, route="other"), warehouse.staging.stage(numbered([1])))
    marks = ask(tmp_path, "SELECT route, batch FROM _penstock_loads ORDER BY ALL")
    assert marks == [("other", 1), ("shop", KEPT), ("shop", KEPT + 1)]


@pytest.mark.parametrize(("point", "there"), [("destination.writing", []), ("destination.committed", [(1,), (2,)])])
def test_a_killed_write_is_there_whole_or_not_at_all(tmp_path: Path, point: str, there: list[Any]) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.load({"id": 0})
    parts = warehouse.staging.stage(numbered([1, 2]))
    script = (
        "import sys, json\n"
        "from penstock.destinations.contract import Batch, Part\n"
        "from penstock.destinations.duckdb.config import DuckdbConfig\n"
        "from penstock.destinations.duckdb.destination import DuckdbDestination\n"
        "path, parts = json.loads(sys.argv[1])\n"
        "destination = DuckdbDestination(DuckdbConfig(path=path))\n"
        "destination.write(Batch('ledger-a', 'shop', 1, {}), [Part(**part) for part in parts])\n"
    )
    argument = json.dumps([str(tmp_path / "warehouse.duckdb"), [vars(part) for part in parts]])
    environment = {**os.environ, "PENSTOCK_FAULTS": f"{point}=kill"}
    assert subprocess.run([sys.executable, "-c", script, argument], env=environment).returncode == -signal.SIGKILL
    assert ask(tmp_path, "SELECT id FROM events WHERE id > 0") == there
    receipt = warehouse.destination.write(batch(1), parts)
    assert receipt.repeated == bool(there)
    assert delivered_rows(receipt) == 2
    assert ask(tmp_path, "SELECT id FROM events") == [(0,), (1,), (2,)]


def test_routes_of_one_process_share_a_file(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path, table="{{ kind }}")
    writes = [
        (batch(number, route=route), warehouse.staging.stage(events({"kind": f"t{number % 2}", f"{route}{number}": 1})))
        for route in ("a", "b", "c")
        for number in range(4)
    ]
    with ThreadPoolExecutor(3) as routes:
        receipts = list(routes.map(lambda write: warehouse.destination.write(*write), writes))
    assert not any(receipt.repeated for receipt in receipts)
    assert ask(tmp_path, "SELECT (SELECT count(*) FROM t0) + (SELECT count(*) FROM t1)") == [(12,)]


@pytest.mark.parametrize("name", ["rowid", "select", "sqlite_master", "pg_class", "duckdb_tables", "main", "1"])
def test_names_that_mean_something_to_the_engine_are_names_like_others(tmp_path: Path, name: str) -> None:
    Warehouse(tmp_path, table="{{ kind }}").load({"kind": name, name: 5})
    assert ask(tmp_path, f'SELECT "{name}" FROM "{name}"') == [(5,)]


def test_a_file_that_somebody_else_has_open_is_tried_again(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.load({"id": 0})
    parts = warehouse.staging.stage(numbered([1]))
    script = "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(tmp_path / "warehouse.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(TransientError, match=r"PEN-DST-021: .*warehouse.duckdb is locked by another process"):
            warehouse.destination.write(batch(1), parts)
        with pytest.raises(PenstockError, match="PEN-DST-021"):
            warehouse.destination.check()
        other.communicate()
    assert not warehouse.destination.write(batch(1), parts).repeated
    assert ask(tmp_path, "SELECT id FROM events") == [(0,), (1,)]


def test_a_row_that_a_constraint_forbids_fails_and_the_others_load(tmp_path: Path) -> None:
    ask(tmp_path, "CREATE TABLE events (id BIGINT CHECK (id < 100))")
    warehouse = Warehouse(tmp_path)
    parts = warehouse.staging.stage(numbered([1, 2, 200, 3]), first=40)
    (receipt,) = warehouse.destination.write(batch(), parts).tables
    assert receipt.rows == 3
    assert receipt.failures is not None
    ((place, message),) = zip(
        receipt.failures.column("offset").to_pylist(), receipt.failures.column("message").to_pylist(), strict=True
    )
    assert place == 42
    assert "CHECK constraint failed" in message
    assert ask(tmp_path, "SELECT id FROM events ORDER BY id") == [(1,), (2,), (3,)]
    (again,) = warehouse.destination.write(batch(), parts).tables
    assert (again.rows, again.repeated, again.failures) == (3, True, receipt.failures)


def test_what_is_no_table_fails_its_rows_and_its_neighbours_load(tmp_path: Path) -> None:
    ask(tmp_path, "CREATE VIEW b AS SELECT 1 AS id, 'b' AS kind")
    warehouse = Warehouse(tmp_path, table="{{ kind }}")
    parts = warehouse.staging.stage(events(*({"id": n, "kind": kind} for n, kind in enumerate("abc"))))
    receipts = {table.table: table for table in warehouse.destination.write(batch(), parts).tables}
    assert [receipts[kind].rows for kind in "abc"] == [1, 0, 1]
    assert receipts["b"].failures is not None
    ask(tmp_path, "DROP VIEW b")
    receipts = {table.table: table for table in warehouse.destination.write(batch(), parts).tables}
    assert [(receipts[kind].rows, receipts[kind].repeated) for kind in "abc"] == [(1, True), (1, False), (1, True)]
    assert ask(tmp_path, "SELECT id FROM a UNION ALL SELECT id FROM b UNION ALL SELECT id FROM c") == [(0,), (1,), (2,)]


def test_a_merge_of_more_rows_than_a_row_group_takes_all_of_them(tmp_path: Path) -> None:
    count = 250_000
    warehouse = Warehouse(tmp_path, primary_key=["id"])
    for version in (1, 2):
        warehouse.load(*({"id": n, "v": version} for n in range(count)), size=count)
        assert ask(tmp_path, "SELECT count(DISTINCT id), sum(v) FROM events") == [(count, count * version)]


def test_a_version_is_a_column(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'V' is no column; its name would be 'v'"):
        DuckdbConfig.model_validate({"path": tmp_path, "primary_key": ["id"], "version_column": "V"})


def test_a_key_of_the_tables_owner_is_merged_by(tmp_path: Path) -> None:
    ask(tmp_path, "CREATE TABLE events (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT)")
    Warehouse(tmp_path).load({"id": 1, "a": 1}, {"id": 2, "a": 1}, {"id": 1, "b": 2})
    assert ask(tmp_path, "SELECT * FROM events ORDER BY id") == [(1, 1, 2), (2, 1, None)]


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "warehouse.duckdb").write_bytes(b"something else " * 500)
    with pytest.raises(PenstockError, match="PEN-DST-022"):
        Warehouse(tmp_path).destination.check()


def test_a_check_says_that_the_disk_is_full_and_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, 8) as disk:
        warehouse = Warehouse(disk)
        warehouse.load({"id": 1})
        before = sorted(disk.rglob("*.duckdb*"))
        assert "can be written" in warehouse.destination.check()
        ballast = fill(disk)
        with pytest.raises(PenstockError, match=r"PEN-DST-023: .*No space left on device.*Make room"):
            warehouse.destination.check()
        ballast.unlink()
        assert "can be written" in warehouse.destination.check()
        assert sorted(disk.rglob("*.duckdb*")) == before


def test_a_template_that_reaches_where_it_must_not_fails_the_record(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path, table="t_{{ a.__class__ }}")
    warehouse.load({"a": "x"})
    (outcome,) = warehouse.staging.outcomes
    assert outcome.failures.column("code").to_pylist() == ["table_name"]
    assert "__class__" in outcome.failures.column("message")[0].as_py()


def test_a_key_must_find_room_in_its_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the key alone has 2 columns"):
        DuckdbConfig.model_validate({"path": tmp_path, "primary_key": ["a", "b"], "max_columns": 1})


@pytest.mark.parametrize("table", ["{{ a", "", "{% for %}"])
def test_a_table_that_is_no_template_is_refused_with_the_config(tmp_path: Path, table: str) -> None:
    with pytest.raises(ValueError, match=r"template|name"):
        DuckdbConfig(path=tmp_path, table=table)
