import traceback
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.destinations.contract import AnyDestination, Part, TableReceipt
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.errors import PenstockError
from penstock.testing.destination import Staging, batch, events, numbered
from penstock.testing.sql_destination import SqlContract
from tests.support.database import Database


def make(database: Database, **options: Any) -> PostgresDestination:
    return PostgresDestination(
        PostgresConfig.model_validate(
            {"url": database.dsn, "database_schema": database.schema, "adopt": ["events"], **options}
        )
    )


class Warehouse:
    """A destination and the batches it was given so far."""

    def __init__(self, database: Database, tmp_path: Path, casts: dict[str, str] | None = None, **options: Any) -> None:
        self.destination = make(database, **options)
        self.staging = Staging(self.destination, tmp_path / "stage", casts)
        self.number = 0

    def load(self, *documents: Any) -> list[TableReceipt]:
        return self.load_raw(events(*documents))

    def load_raw(self, data: list[bytes]) -> list[TableReceipt]:
        receipt = self.destination.write(batch(self.number), self.staging.stage(data))
        self.number += 1
        return list(receipt.tables)


class TestPostgres(SqlContract):
    @pytest.fixture
    def destination(self, database: Database) -> AnyDestination:
        return make(database)

    def ids(self, destination: AnyDestination) -> list[int]:
        database = Database(destination.config.url.get_secret_value(), destination.config.database_schema)
        return [row[0] for row in database.ask("SELECT id FROM events")]


# Tables, types and values


def test_a_table_is_made_with_the_types_of_its_values(database: Database, tmp_path: Path) -> None:
    time = "2024-05-01T10:00:00Z"
    Warehouse(database, tmp_path).load(
        {"a": {"b": {"c": 1}}, "d": "x", "e": 1.5, "f": True, "g": [1], "_timestamp": time}
    )
    assert database.columns() == {
        "a_b_c": "bigint", "d": "text", "e": "numeric(38,18)", "f": "boolean", "g": "text",
        "_timestamp": "timestamp with time zone",
    }  # fmt: skip
    ((c, d, e, f, g, at),) = database.ask("SELECT * FROM events")
    assert (c, d, e, f, g, at.isoformat()) == (1, "x", Decimal("1.5"), True, "[1]", "2024-05-01T10:00:00+00:00")


def test_floats_can_be_doubles(database: Database, tmp_path: Path) -> None:
    Warehouse(database, tmp_path, float="double").load({"e": 1e-30}, {"e": 1e300})
    assert database.columns() == {"e": "double precision"}
    assert database.ask("SELECT e FROM events") == [(1e-30,), (1e300,)]


@pytest.mark.parametrize("value", [1e20, -1e25, 1.7e308, 1e-19])
def test_a_number_that_numeric_cannot_hold_is_kept_aside(database: Database, tmp_path: Path, value: float) -> None:
    Warehouse(database, tmp_path).load({"a": value, "b": 1}, {"a": 0.25})
    (aside, _) = database.ask("SELECT a, (_unmapped->>'a')::float8 FROM events")
    assert aside == (None, value)
    assert database.ask("SELECT a FROM events WHERE _unmapped IS NULL") == [(Decimal("0.25"),)]


def test_text_that_postgresql_cannot_store_loses_only_its_nul_characters(database: Database, tmp_path: Path) -> None:
    Warehouse(database, tmp_path).load_raw([b'{"a":"x\\u0000y","A":"\\u0000"}', b'{"a":1,"A":"\\ud800"}'])
    assert database.ask("SELECT a FROM events") == [("xy",), ("1",)]
    assert database.ask("SELECT _unmapped FROM events") == [({"/A": r"\u0000"},), ({"/A": r"\ud800"},)]


def test_quotes_commas_newlines_and_empty_text_arrive_as_they_are(database: Database, tmp_path: Path) -> None:
    texts = [
        "",
        '"',
        '""',
        "a,b",
        "a\nb",
        "a\r\nb",
        "\\.",
        "\\N",
        "NULL",
        "\u2028",
        "日本語",
        "'; DROP TABLE events; --",
    ]
    Warehouse(database, tmp_path).load(*({"n": n, "t": text} for n, text in enumerate(texts)), {"n": 99, "t": None})
    assert [row[0] for row in database.ask("SELECT t FROM events ORDER BY n")] == [*texts, None]


def test_a_cast_decides_the_type_of_its_column(database: Database, tmp_path: Path) -> None:
    casts = {"/price": "numeric(12,2)", "/big": "numeric", "/n": "integer", "/u": "uuid", "/doc": "jsonb"}
    warehouse = Warehouse(database, tmp_path, casts)
    warehouse.load({"price": 1.5, "big": 1.25, "n": 7, "u": "00000000-0000-0000-0000-000000000001", "doc": [1]})
    assert database.columns() == {
        "price": "numeric(12,2)", "big": "numeric(38,18)", "n": "integer", "u": "uuid", "doc": "jsonb"
    }  # fmt: skip
    assert database.ask("SELECT price::text, n, u::text, doc->0 FROM events") == [
        ("1.50", 7, "00000000-0000-0000-0000-000000000001", 1)
    ]


def test_text_stays_text_in_a_json_column(database: Database, tmp_path: Path) -> None:
    values = ["7", "true", "null", "1e5", "x", 7, True, [1, "7"], '{"a": "7"}']
    warehouse = Warehouse(database, tmp_path, {"/doc": "jsonb"})
    for value in values:
        warehouse.load({"doc": value})
    warehouse.load(*({"doc": value} for value in values))
    found = [row[0] for row in database.ask("SELECT doc FROM events")]
    assert found == [*values[:-1], {"a": "7"}] * 2


# Types that meet


def test_a_value_of_another_type_is_kept_aside_and_the_row_loads(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path)
    warehouse.load({"a": 1, "b": True})
    warehouse.load({"a": "x", "b": 1}, {"a": "7", "b": 2}, {"a": 9.0, "b": False})
    assert database.ask("SELECT a, b, _unmapped FROM events") == [
        (1, True, None), (None, True, {"a": "x"}), (7, None, {"b": 2}), (9, False, None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "then", "kind", "stored"),
    [
        (1, "x", "text", ["1", "x"]),
        (True, 7, "bigint", [1, 7]),
        (1, 1.5, "numeric(38,18)", [Decimal(1), Decimal("1.5")]),
        (1.5, "x", "text", ["1.5", "x"]),
        (True, "x", "text", ["true", "x"]),
    ],
)
def test_a_column_is_widened_to_what_comes(
    database: Database, tmp_path: Path, first: Any, then: Any, kind: str, stored: list[Any]
) -> None:
    warehouse = Warehouse(database, tmp_path, on_type_conflict="widen")
    warehouse.load({"a": first})
    warehouse.load({"a": then})
    assert database.columns() == {"a": kind}
    assert [row[0] for row in database.ask("SELECT a FROM events")] == stored


def test_a_column_is_not_widened_to_what_would_round_its_values(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, on_type_conflict="widen", float="double")
    warehouse.load({"a": 9007199254740993})
    warehouse.load({"a": 1.5})
    assert database.columns() == {"a": "bigint", "_unmapped": "jsonb"}
    assert database.ask("SELECT a, _unmapped FROM events") == [(9007199254740993, None), (None, {"a": 1.5})]


def test_a_conflict_can_fail_the_record_with_both_types(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, on_type_conflict="fail")
    warehouse.load({"a": 1})
    (receipt,) = warehouse.load({"a": "x"}, {"a": 2})
    assert receipt.rows == 1
    assert receipt.failures is not None
    (message,) = receipt.failures.column("message").to_pylist()
    assert "bigint" in message
    assert "string" in message
    assert database.ask("SELECT a FROM events") == [(1,), (2,)]


def test_a_frozen_table_keeps_new_fields_aside(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, schema="freeze")
    warehouse.load({"a": 1})
    warehouse.load({"a": 2, "b": {"c": "x"}, "d": 1.5})
    assert list(database.columns()) == ["a", "_unmapped"]
    assert database.ask("SELECT a, _unmapped FROM events") == [(1, None), (2, {"b_c": "x", "d": 1.5})]


def test_fields_beyond_the_most_columns_are_kept_aside(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, max_columns=3)
    warehouse.load({f"f{n}": n for n in range(5)})
    warehouse.load({"f0": 7, "new": True})
    assert list(database.columns()) == ["f0", "f1", "f2", "_unmapped"]
    assert [row[0] for row in database.ask("SELECT _unmapped FROM events")] == [{"f3": 3, "f4": 4}, {"new": True}]


# Keys


def test_a_key_makes_loading_an_update(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, primary_key=["id"])
    warehouse.load({"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1}, {"id": 1, "a": 2})
    (receipt,) = warehouse.load({"id": 2, "b": 5, "c": "new"}, {"id": 3})
    assert receipt.rows == 2
    assert database.ask("SELECT id, a, b, c FROM events ORDER BY id") == [
        (1, 2, 1, None), (2, 1, 5, "new"), (3, None, None, None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("uuid", "00000000-0000-0000-0000-00000000000A", "00000000-0000-0000-0000-00000000000a"),
        ("character(5)", "ab", "ab   "),
        ("double precision", -0.0, 0.0),
    ],
)
def test_keys_that_are_equal_to_the_database_are_one_row(
    database: Database, tmp_path: Path, kind: str, one: Any, other: Any
) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask(f"CREATE TABLE events (id {kind} PRIMARY KEY, a bigint, b bigint)")
    (receipt,) = Warehouse(database, tmp_path, float="double").load({"id": one, "a": 1}, {"id": other, "b": 2})
    assert receipt.rows == 2
    assert database.ask("SELECT a, b FROM events") == [(1, 2)]


def test_the_first_rows_of_a_keyed_table_are_what_later_ones_would_be(database: Database, tmp_path: Path) -> None:
    """Into an empty table rows go another way: what they do not carry is NULL all the same, whatever its default."""
    database.ask(f"CREATE SCHEMA {database.schema}")
    database.ask("CREATE TABLE events (id bigint PRIMARY KEY, a text DEFAULT 'none', b text, own int DEFAULT 7)")
    warehouse = Warehouse(database, tmp_path, primary_key=["id"])
    rows = [{"id": 1, "a": "x"}, {"id": 2, "b": "y"}, {"id": 1, "b": "z"}]
    warehouse.load(*rows)
    warehouse.load(*({**row, "id": int(row["id"]) + 10} for row in rows))
    first, then = (database.ask(f"SELECT a, b, own FROM events WHERE id {sign} 10 ORDER BY id") for sign in ("<", ">"))
    assert first == then == [("x", "z", 7), (None, "y", 7)]


def test_a_keyed_table_whose_rows_are_secured_by_policies_is_merged_into(database: Database, tmp_path: Path) -> None:
    role = f"writer_{database.schema}"
    for statement in (
        f"CREATE ROLE {role} LOGIN",
        f"CREATE SCHEMA {database.schema}",
        f"GRANT USAGE, CREATE ON SCHEMA {database.schema} TO {role}",
        "CREATE TABLE events (id bigint PRIMARY KEY, a text)",
        "ALTER TABLE events ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY anybody ON events USING (true) WITH CHECK (true)",
        f"GRANT SELECT, INSERT, UPDATE ON events TO {role}",
    ):
        database.ask(statement)
    try:
        as_writer = Database(database.dsn.replace("penstock@", f"{role}@"), database.schema)
        warehouse = Warehouse(as_writer, tmp_path, primary_key=["id"])
        warehouse.load({"id": 1, "a": "x"}, {"id": 2, "a": "y"})
        warehouse.load({"id": 1, "a": "z"})
        assert database.ask("SELECT id, a FROM events ORDER BY id") == [(1, "z"), (2, "y")]
    finally:
        database.ask(f"DROP OWNED BY {role}")
        database.ask(f"DROP ROLE {role}")


def test_the_highest_version_wins_in_one_batch_and_over_many(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, primary_key=["id"], version_column="v")
    warehouse.load({"id": 1, "v": 3, "a": "three"}, {"id": 1, "v": 2, "a": "two", "late": True})
    warehouse.load({"id": 1, "v": 1, "a": "one"})
    assert database.ask("SELECT v, a FROM events") == [(3, "three")]
    warehouse.load({"id": 1, "v": 3, "a": "three again"})
    assert database.ask("SELECT v, a FROM events") == [(3, "three again")]


def test_a_record_without_its_key_fails_and_says_so(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, primary_key=["id"])
    (none_at_all,) = warehouse.load({"a": 1})
    (receipt,) = warehouse.load({"id": 1}, {"a": 1})
    assert (none_at_all.rows, receipt.rows) == (0, 1)
    assert receipt.failures is not None
    assert "key column 'id'" in receipt.failures.column("message")[0].as_py()


def test_our_key_follows_the_config_and_others_are_left_alone(database: Database, tmp_path: Path) -> None:
    def keys() -> list[tuple[str, str]]:
        return database.ask(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            f" WHERE conrelid = '{database.schema}.events'::regclass AND contype = 'p'"
        )

    Warehouse(database, tmp_path, primary_key=["id"]).load({"id": 1, "b": 1})
    assert keys() == [("events_penstock_key", "PRIMARY KEY (id)")]
    changed = Warehouse(database, tmp_path, primary_key=["id", "b"])
    changed.number = 1
    changed.load({"id": 1, "b": 2})
    assert keys() == [("events_penstock_key", "PRIMARY KEY (id, b)")]
    dropped = Warehouse(database, tmp_path)
    dropped.number = 2
    dropped.load({"id": 1, "b": 2})
    assert keys() == []
    database.ask('DELETE FROM events; ALTER TABLE events ADD CONSTRAINT "theirs" PRIMARY KEY (id)')
    foreign = Warehouse(database, tmp_path, primary_key=["b"])
    foreign.number = 3
    foreign.load({"id": 1, "b": 1}, {"id": 1, "b": 2})
    assert keys() == [("theirs", "PRIMARY KEY (id)")]
    assert database.ask("SELECT id, b FROM events") == [(1, 2)]


# Delivery


def test_one_poison_value_in_ten_thousand_rows_fails_alone(database: Database, tmp_path: Path) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask("CREATE TABLE events (id bigint, address inet)")
    documents = [{"id": n, "address": f"10.0.{n // 256}.{n % 256}"} for n in range(10_000)]
    documents[6_543]["address"] = "not an address"
    warehouse = Warehouse(database, tmp_path)
    parts = warehouse.staging.stage(events(*documents))
    (receipt,) = warehouse.destination.write(batch(), parts).tables
    assert receipt.rows == 9_999
    assert receipt.failures is not None
    assert receipt.failures.column("offset").to_pylist() == [6_543]
    assert receipt.failures.column("message").to_pylist() == [
        'PostgreSQL says: invalid input syntax for type inet: "not an address"'
    ]
    assert database.ask("SELECT count(*), count(DISTINCT id) FROM events") == [(9_999, 9_999)]
    (again,) = warehouse.destination.write(batch(), parts).tables
    assert (again.repeated, again.rows, again.failures) == (True, 9_999, receipt.failures)


def test_many_poison_values_take_no_good_row_with_them(database: Database, tmp_path: Path) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask("CREATE TABLE events (id bigint, address inet)")
    documents = [{"id": n, "address": "bad" if n % 50 == 7 else "10.0.0.1"} for n in range(5_000)]
    (receipt,) = Warehouse(database, tmp_path).load(*documents)
    assert receipt.rows == 4_900
    assert receipt.failures is not None
    assert {offset % 50 for offset in receipt.failures.column("offset").to_pylist()} == {7}


@pytest.mark.parametrize("number", ["1e200000", "1e-200000", "9" * 140_000])
def test_a_number_that_jsonb_cannot_hold_is_kept_as_text(database: Database, tmp_path: Path, number: str) -> None:
    warehouse = Warehouse(database, tmp_path)
    warehouse.load({"a": 1})
    (receipt,) = warehouse.load_raw([b'{"a": %s}' % number.encode()])
    assert receipt.failures is None
    ((kept,),) = database.ask("SELECT _unmapped -> 'a' FROM events WHERE _unmapped IS NOT NULL")
    assert kept == number


def test_a_row_that_a_trigger_of_the_table_forbids_fails_alone(database: Database, tmp_path: Path) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask(
        "CREATE TABLE events (id bigint);"
        "CREATE FUNCTION no_threes() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.id = 3 THEN RAISE EXCEPTION 'three is unlucky'; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER no_threes BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no_threes()"
    )
    (receipt,) = Warehouse(database, tmp_path).load(*({"id": n} for n in range(6)))
    assert receipt.rows == 5
    assert receipt.failures is not None
    assert receipt.failures.column("message").to_pylist() == ["PostgreSQL says: three is unlucky"]


@pytest.mark.parametrize(
    ("options", "key", "event", "before"),
    [
        ({}, "", "INSERT", 0),
        ({"primary_key": ["id"]}, "PRIMARY KEY", "INSERT", 0),
        ({"primary_key": ["id"]}, "PRIMARY KEY", "INSERT", 2),
        ({"primary_key": ["id"]}, "PRIMARY KEY", "UPDATE", 6),
        ({"primary_key": ["id"], "version_column": "v"}, "PRIMARY KEY", "INSERT", 2),
        ({"primary_key": ["id"], "version_column": "v"}, "PRIMARY KEY", "UPDATE", 6),
    ],
)
def test_a_row_that_a_trigger_drops_without_a_word_fails_alone(
    database: Database, tmp_path: Path, options: dict[str, object], key: str, event: str, before: int
) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask(
        f"CREATE TABLE events (id bigint {key}, v bigint);"
        f"INSERT INTO events SELECT n, 0 FROM generate_series(0, {before - 1}) n;"
        "CREATE FUNCTION no_threes() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.id = 3 THEN RETURN NULL; END IF; RETURN NEW; END $$;"
        f"CREATE TRIGGER no_threes BEFORE {event} ON events FOR EACH ROW EXECUTE FUNCTION no_threes()"
    )
    (receipt,) = Warehouse(database, tmp_path, **options).load(*({"id": n, "v": 1} for n in range(6)))
    assert receipt.rows == 5
    assert receipt.failures is not None
    assert receipt.failures.column("offset").to_pylist() == [3]
    assert "a trigger of the table drops it" in receipt.failures.column("message")[0].as_py()
    assert database.ask("SELECT count(*) FROM events WHERE v = 1") == [(5,)]


def test_so_does_one_that_a_view_drops_without_a_word(database: Database, tmp_path: Path) -> None:
    """COPY does not write through a view: its rows take another way."""
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask(
        "CREATE TABLE kept (id bigint, v bigint);"
        "CREATE VIEW events AS SELECT * FROM kept;"
        "CREATE FUNCTION no_threes() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.id = 3 THEN RETURN NULL; END IF;"
        f' INSERT INTO "{database.schema}".kept VALUES (NEW.id, NEW.v); RETURN NEW; END $$;'
        "CREATE TRIGGER no_threes INSTEAD OF INSERT ON events FOR EACH ROW EXECUTE FUNCTION no_threes()"
    )
    (receipt,) = Warehouse(database, tmp_path, adopt=["events"]).load(*({"id": n, "v": 1} for n in range(6)))
    assert receipt.rows == 5
    assert receipt.failures is not None
    assert receipt.failures.column("offset").to_pylist() == [3]
    assert database.ask("SELECT count(*) FROM kept") == [(5,)]


def test_rows_that_are_older_than_those_of_a_table_with_a_trigger_are_not_taken_for_dropped(
    database: Database, tmp_path: Path
) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask(
        "CREATE TABLE events (id bigint PRIMARY KEY, v bigint); INSERT INTO events VALUES (1, 9), (2, 1);"
        "CREATE FUNCTION same() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;"
        "CREATE TRIGGER same BEFORE INSERT OR UPDATE ON events FOR EACH ROW EXECUTE FUNCTION same()"
    )
    warehouse = Warehouse(database, tmp_path, primary_key=["id"], version_column="v")
    (receipt,) = warehouse.load({"id": 1, "v": 5}, {"id": 2, "v": 5}, {"id": 3, "v": 5}, {"id": 3, "v": 4})
    assert (receipt.rows, receipt.failures) == (4, None)
    assert database.ask("SELECT id, v FROM events ORDER BY id") == [(1, 9), (2, 5), (3, 5)]


def test_rows_that_clash_with_each_other_fail_and_the_others_load(database: Database, tmp_path: Path) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask("CREATE TABLE events (id bigint, email text UNIQUE)")
    documents = [{"id": n, "email": f"{n}@x"} for n in range(100)]
    documents[70]["email"], documents[90]["email"] = "3@x", "5@x"
    (receipt,) = Warehouse(database, tmp_path).load(*documents)
    assert receipt.rows == 98
    assert receipt.failures is not None
    assert sorted(receipt.failures.column("offset").to_pylist()) == [70, 90]
    assert "duplicate key" in receipt.failures.column("message")[0].as_py()


def test_a_column_that_the_database_computes_is_left_to_it(database: Database, tmp_path: Path) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask("CREATE TABLE events (a bigint, twice bigint GENERATED ALWAYS AS (a * 2) STORED)")
    (receipt,) = Warehouse(database, tmp_path).load({"a": 4, "twice": 99})
    assert receipt.rows == 1
    assert database.ask("SELECT a, twice, _unmapped FROM events") == [(4, 8, {"twice": 99})]


def test_a_number_that_a_single_would_change_is_kept_aside(database: Database, tmp_path: Path) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    database.ask("CREATE TABLE events (n bigint, a real)")
    Warehouse(database, tmp_path).load({"n": 1, "a": 16777217}, {"n": 2, "a": 16777216}, {"n": 3, "a": 0.25})
    assert database.ask("SELECT a, _unmapped FROM events ORDER BY n") == [
        (None, {"a": 16777217}), (16777216.0, None), (0.25, None)
    ]  # fmt: skip


def test_a_table_that_has_become_a_view_fails_its_rows_and_its_neighbour_loads(
    database: Database, tmp_path: Path
) -> None:
    warehouse = Warehouse(database, tmp_path, table="{{ kind }}")
    warehouse.load({"kind": "a"}, {"kind": "b"})
    database.ask("ALTER TABLE b RENAME TO moved; CREATE VIEW b AS SELECT kind || '' AS kind FROM moved")
    parts = warehouse.staging.stage(events({"kind": "a"}, {"kind": "b"}))
    first = {table.table: table for table in warehouse.destination.write(batch(1), parts).tables}
    assert (first["a"].rows, first["a"].unavailable) == (1, None)
    assert first["b"].failures is not None
    assert "view" in first["b"].failures.column("message")[0].as_py()
    database.ask("DROP VIEW b; ALTER TABLE moved RENAME TO b")
    second = {table.table: table for table in warehouse.destination.write(batch(1), parts).tables}
    assert second["a"].repeated
    assert not second["b"].repeated
    assert database.ask("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)") == [(2, 2)]


def test_two_engines_add_the_same_columns_once(database: Database, tmp_path: Path) -> None:
    """Each has its own ledger and connection; every column is added by one of them."""
    Warehouse(database, tmp_path).load({"id": 0})
    wide = {f"new_{n}": n for n in range(50)}

    def engine(name: str) -> tuple[int, int]:
        destination = make(database)
        (tmp_path / name).mkdir()
        staging = Staging(destination, tmp_path / name)
        book = RouteBook(Ledger.open(sqlite_url(tmp_path / f"{name}.db"), name), "shop")
        parts = staging.stage(events(*({"id": n, **wide} for n in range(200))))
        receipt = destination.write(batch(1, scope=name), parts, book)
        return receipt.rows, len(book.changes())

    with ThreadPoolExecutor(2) as pool:
        (one, his), (other, hers) = pool.map(engine, ["one", "other"])
    assert (one, other) == (200, 200)
    assert his + hers == 50
    assert database.ask("SELECT count(*), count(new_49) FROM events") == [(401, 400)]


def test_a_server_that_is_not_there_is_away(tmp_path: Path) -> None:
    destination = PostgresDestination(PostgresConfig(url="postgresql://nobody:secret@127.0.0.1:1/x"))
    staging = Staging(destination, tmp_path)
    with pytest.raises(PenstockError, match="PEN-DST-027") as caught:
        destination.write(batch(), staging.stage(numbered([1])))
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(destination.config)


def test_what_the_driver_cannot_read_of_an_address_is_not_repeated() -> None:
    destination = PostgresDestination(PostgresConfig(url="host=db password=my secret=word"))
    with pytest.raises(PenstockError, match="PEN-DST-026") as caught:
        destination.check()
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_connection_that_is_cut_leaves_nothing_half_done(database: Database, tmp_path: Path) -> None:
    """The server ends our connection in the middle of the load, as a restart would."""
    warehouse = Warehouse(database, tmp_path)
    warehouse.load({"id": 0})
    database.ask(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.id = 2 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER cut BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION cut()"
    )
    parts: list[Part] = warehouse.staging.stage(numbered([1, 2, 3]))
    (receipt,) = warehouse.destination.write(batch(1), parts).tables
    assert receipt.unavailable is not None
    assert database.ask("SELECT id FROM events") == [(0,)]
    database.ask("DROP TRIGGER cut ON events")
    (receipt,) = warehouse.destination.write(batch(1), parts).tables
    assert receipt.rows == 3
    assert database.ask("SELECT id FROM events ORDER BY id") == [(0,), (1,), (2,), (3,)]


def test_a_user_who_may_not_create_tables_is_told_so(database: Database) -> None:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    name = f"reader_{database.schema}"
    database.ask(f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {database.schema} TO {name}")
    host = database.dsn.partition("@")[2]
    destination = make(Database(f"postgresql://{name}@{host}", database.schema))
    with pytest.raises(PenstockError, match=r"PEN-DST-028.*GRANT CREATE"):
        destination.check()


def test_the_address_is_checked_with_the_config() -> None:
    with pytest.raises(ValueError, match="not a PostgreSQL address"):
        PostgresConfig(url="mysql://root:hunter2@db")


def test_ddl_waits_for_nobody_but_its_table(database: Database, tmp_path: Path) -> None:
    """While one table's lock is held by another engine, other tables load."""
    warehouse = Warehouse(database, tmp_path, table="{{ kind }}")
    with psycopg.connect(database.dsn) as other:
        relation = f'penstock "{database.schema}"."held"'
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (relation,))
        (receipt,) = warehouse.load({"kind": "free"})
        assert receipt.rows == 1
