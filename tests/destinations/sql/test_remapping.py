"""Kept values go back into columns, on DuckDB and on PostgreSQL alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.bigquery.session import BigquerySession
from penstock.destinations.clickhouse.session import ClickhouseSession
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.destinations.redshift.session import RedshiftSession
from penstock.destinations.sql.config import SchemaChanges
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.session import Session
from penstock.destinations.sql.unmapped.remap import Proposal, Remapped, RemapRules, propose, remap, survey
from penstock.destinations.sql.unmapped.unmapped_values import parse_unmapped, without_members
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.errors import PenstockError
from penstock.flatten.casts import parse_cast
from penstock.flatten.inner_types import InnerType
from penstock.testing.destination import Staging, batch, events
from penstock.testing.waiting import eventually
from tests.support.database import Database
from tests.support.duckdb_file import open_file

DEFAULT = RemapRules()


class Asking(Protocol):
    def __call__(self, query: str) -> list[tuple[Any, ...]]: ...


class Warehouse:
    """A destination with its ledger's book, loaded batch by batch."""

    def __init__(self, destination: SqlDestination[Any], ask: Asking, folder: Path) -> None:
        self.destination = destination
        self.ask = ask
        self.book = RouteBook(Ledger.open(sqlite_url(folder / "ledger.db"), "shop"), "shop")
        self._staging = Staging(destination, folder / "stage")
        self._number = 0

    def load(self, *documents: Any, **options: Any) -> None:
        """One batch; ``options`` change the config from here on."""
        if options:
            config = self.destination.config
            self.destination.config = config.model_copy(update=options)
        parts = self._staging.stage(events(*documents))
        receipt = self.destination.write(batch(self._number), parts, self.book)
        assert not receipt.failures
        self._number += 1

    def propose(self, *columns: str, rules: RemapRules = DEFAULT) -> Proposal:
        with self.destination.read_only_session() as session:
            assert session is not None
            return _proposed(session, columns, rules)

    def remap(self, *columns: str, rules: RemapRules = DEFAULT) -> Remapped:
        with self.destination.session() as session:
            shown = _proposed(session, columns, rules)
            return remap(session, "events", rules, columns, shown, self.book)

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        return sorted(self.ask(f"SELECT {columns} FROM events"), key=repr)

    def types(self) -> dict[str, str]:
        with self.destination.read_only_session() as session:
            assert session is not None
            table = session.table("events")
        assert table is not None
        target = self.destination.dialect.target
        return {name: target(column.type).type or "?" for name, column in table.columns.items()}


def _proposed(session: Session, columns: tuple[str, ...], rules: RemapRules) -> Proposal:
    table = session.table("events")
    assert table is not None
    with session.open_unmapped("events") as kept:
        return propose(kept, table, session.dialect, rules, columns)


@pytest.fixture(params=["duckdb", "postgres"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Warehouse]:
    if request.param == "postgres":
        database: Database = request.getfixturevalue("database")
        config = PostgresConfig.model_validate({"url": database.dsn, "database_schema": database.schema})
        yield Warehouse(PostgresDestination(config), database.ask, tmp_path)
        return
    path = tmp_path / "w.duckdb"

    def ask(query: str) -> list[tuple[Any, ...]]:
        with open_file(path) as connection:
            return connection.execute(query).fetchall()

    yield Warehouse(DuckdbDestination(DuckdbConfig(path=path)), ask, tmp_path)


def test_a_conflicting_value_goes_back_and_the_column_becomes_wide_enough(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1, "a": 1})
    warehouse.load({"id": 2, "a": "x"}, {"id": 3, "a": 7})
    assert warehouse.rows("id, a, _unmapped IS NULL") == [(1, 1, True), (2, None, False), (3, 7, True)]
    done = warehouse.remap()
    assert (done.moved, done.rows) == ({"a": 1}, 1)
    assert warehouse.rows("id, a, _unmapped") == [(1, "1", None), (2, "x", None), (3, "7", None)]


def test_new_fields_of_a_frozen_table_get_columns(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1})
    warehouse.load(
        {"id": 2, "n": 5, "f": 1.5, "b": True, "s": "x", "l": [1, 2.50]},
        {"id": 3, "n": True, "f": 2},
        schema_changes=SchemaChanges.FREEZE,
    )
    done = warehouse.remap()
    assert done.moved == {"n": 2, "f": 2, "b": 1, "s": 1, "l": 1}
    assert warehouse.types() == {
        "id": "INT64", "_unmapped": "?", "n": "INT64", "f": "FLOAT64", "b": "BOOL", "s": "STRING", "l": "STRING",
    }  # fmt: skip
    (_, row, other) = warehouse.rows("id, n, f, b, s, l, _unmapped")
    assert row[:5] == (2, 5, Decimal("1.5"), True, "x")
    assert json.loads(row[5]) == [1, 2.5]
    assert row[6] is None
    assert other == (3, 1, 2, None, None, None, None)


def test_only_the_named_columns_are_moved(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1, "a": 1, "b": 1})
    warehouse.load({"id": 2, "a": "x", "b": "y"})
    assert warehouse.remap("a").moved == {"a": 1}
    ((_, kept),) = [row for row in warehouse.rows("id, CAST(_unmapped AS VARCHAR)") if row[0] == 2]
    assert json.loads(kept) == {"b": "y"}


def test_what_the_column_can_hold_is_moved_without_changing_it(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1})
    warehouse.load({"id": 2, "a": 7}, {"id": 3, "a": "8"}, schema_changes=SchemaChanges.FREEZE)
    warehouse.ask("ALTER TABLE events ADD COLUMN a BIGINT")
    assert len(warehouse.propose().statements) == 1
    assert warehouse.remap().moved == {"a": 2}
    assert warehouse.rows("id, a") == [(1, None), (2, 7), (3, 8)]


def test_a_value_whose_column_is_filled_stays(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1}, {"id": 2})
    warehouse.load({"id": 3, "a": "late"}, {"id": 4, "a": "free"}, schema_changes=SchemaChanges.FREEZE)
    warehouse.ask("ALTER TABLE events ADD COLUMN a VARCHAR")
    warehouse.ask("UPDATE events SET a = 'mine' WHERE id = 3")
    done = warehouse.remap()
    assert (done.moved, done.occupied) == ({"a": 1}, {"a": 1})
    assert warehouse.rows("id, a, _unmapped IS NULL") == [
        (1, None, True), (2, None, True), (3, "mine", False), (4, "free", True),
    ]  # fmt: skip


def test_what_still_does_not_fit_stays_and_is_counted(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1})
    warehouse.load({"id": 2, "a": 7}, {"id": 3, "a": 3_000_000_000}, schema_changes=SchemaChanges.FREEZE)
    warehouse.ask("ALTER TABLE events ADD COLUMN a INTEGER")
    done = warehouse.remap()
    assert (done.moved, done.unfit) == ({"a": 1}, {"a": 1})
    assert warehouse.rows("id, a, _unmapped IS NULL") == [(1, None, True), (2, 7, True), (3, None, False)]


def test_paths_that_lost_their_name_are_left_alone_and_named(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1, "a_b": 1, "a": {"b": 2}})
    proposal = warehouse.propose()
    assert proposal.statements == ()
    assert [(left.key, left.values) for left in proposal.left] == [("/a/b", 1)]
    assert "path" in proposal.left[0].reason


def test_no_more_columns_than_the_table_may_have(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1})
    warehouse.load({"id": 2, "a": 1, "b": 2}, schema_changes=SchemaChanges.FREEZE)
    proposal = warehouse.propose(rules=RemapRules(max_columns=2))
    assert (proposal.columns, [left.key for left in proposal.left]) == (("a",), ["b"])


def test_a_new_column_has_the_type_that_a_step_asks_for(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1})
    warehouse.load({"id": 2, "price": 7}, {"id": 3, "price": "x"}, schema_changes=SchemaChanges.FREEZE)
    rules = RemapRules(asked={"price": "numeric(12,2)"})
    done = warehouse.remap(rules=rules)
    assert "(12,2)" in done.proposal.statements[0]
    assert (done.moved, done.unfit) == ({"price": 1}, {"price": 1})


def test_the_statements_are_in_the_change_log(warehouse: Warehouse) -> None:
    warehouse.load({"a": 1})
    warehouse.load({"a": "x"})
    before = len(warehouse.book.changes())
    statements = warehouse.remap().proposal.statements
    assert [change.statement for change in warehouse.book.changes()[before:]] == list(statements)
    assert statements[0].startswith("ALTER TABLE")
    assert statements[1].startswith("UPDATE")


def test_if_the_table_asks_for_something_else_by_now_nothing_is_done(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1, "a": 1})
    warehouse.load({"id": 2, "a": 1.5})
    shown = warehouse.propose()
    warehouse.load({"id": 3, "a": "x"})
    before = warehouse.rows("id, a, CAST(_unmapped AS VARCHAR)")
    with warehouse.destination.session() as session, pytest.raises(PenstockError, match="PEN-DST-081"):
        remap(session, "events", RemapRules(), (), shown, warehouse.book)
    assert warehouse.rows("id, a, CAST(_unmapped AS VARCHAR)") == before
    assert warehouse.types()["a"] == "INT64"


def test_a_move_that_is_cut_short_changes_nothing(warehouse: Warehouse) -> None:
    warehouse.load({"id": 1, "a": 1})
    warehouse.load({"id": 2, "a": "x"})
    before = warehouse.types(), warehouse.rows("id, a, CAST(_unmapped AS VARCHAR)")
    shown = warehouse.propose()

    def interrupted(session: Session) -> None:
        with session.open_unmapped("events", warehouse.book) as kept:
            kept.run_ddl(shown.statements[:-1])
            raise InterruptedError

    with warehouse.destination.session() as session, pytest.raises((InterruptedError, PenstockError)):
        interrupted(session)
    assert (warehouse.types(), warehouse.rows("id, a, CAST(_unmapped AS VARCHAR)")) == before


def test_remapping_again_finds_nothing(warehouse: Warehouse) -> None:
    warehouse.load({"a": 1})
    warehouse.load({"a": "x"})
    warehouse.remap()
    assert warehouse.propose() == Proposal()


def test_more_rows_than_are_read_at_once(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.destinations.duckdb.unmapped_store._ROWS_AT_A_TIME", 10)
    monkeypatch.setattr("penstock.destinations.postgres.unmapped_store._ROWS_AT_A_TIME", 10)
    warehouse.load({"id": 0, "a": 0})
    warehouse.load(*({"id": number, "a": f"x{number}"} for number in range(1, 36)))
    assert warehouse.remap().moved == {"a": 35}
    assert warehouse.rows("count(*), count(_unmapped), max(a)") == [(36, 0, "x9")]


def test_what_is_kept_is_surveyed_by_key(warehouse: Warehouse) -> None:
    warehouse.load({"a": 1, "b": "text"})
    warehouse.load({"a": "x"}, {"a": 1.5}, {"c": True}, schema_changes=SchemaChanges.FREEZE)
    with warehouse.destination.read_only_session() as session:
        assert session is not None
        table = session.table("events")
        assert table is not None
        with session.open_unmapped("events") as kept:
            keys = {key.name: key for key in survey(kept, table, session.dialect)}
    assert set(keys) == {"a", "c"}
    assert (keys["a"].values, keys["a"].type, keys["a"].lossy, keys["a"].needed) == (2, "STRING", 2, "STRING")
    assert (keys["c"].values, keys["c"].type, keys["c"].column) == (1, "BOOL", None)


def test_nobody_loads_while_values_are_moved(database: Database, tmp_path: Path) -> None:
    config = PostgresConfig.model_validate({"url": database.dsn, "database_schema": database.schema})
    warehouse = Warehouse(PostgresDestination(config), database.ask, tmp_path)
    warehouse.load({"id": 1, "a": 1})
    waiting = f"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{database.schema}.events'::regclass"
    with ThreadPoolExecutor(1) as thread, warehouse.destination.session() as session:
        with session.open_unmapped("events", warehouse.book):
            loading = thread.submit(warehouse.load, {"id": 2, "a": 2})
            eventually(lambda: database.ask(waiting) == [(1,)], "the load waits")
            assert not loading.done()
        loading.result()
    assert warehouse.rows("id, a") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("session", [RedshiftSession, ClickhouseSession, BigquerySession])
def test_engines_that_do_not_offer_it_say_so(session: type[Session]) -> None:
    with pytest.raises(PenstockError, match=r"PEN-DST-080.*duckdb and postgres"):
        session.open_unmapped(object.__new__(session), "events")


# The pure part: values out of JSON


@pytest.mark.parametrize(
    ("kept", "column", "value"),
    [
        ("1", "bigint", 1), ("true", "bigint", 1), ("9.0", "bigint", 9), ('"7"', "bigint", 7),
        ("1.5", "bigint", None), ('"x"', "bigint", None), ('"true"', "bigint", None), ("[1]", "bigint", None),
        ("9223372036854775808", "bigint", None), ("3000000000", "integer", None), ("1", "boolean", True),
        ("2", "boolean", None), ('"true"', "boolean", True), ("1.50", "text", "1.50"), ("true", "text", "true"),
        ('"x"', "text", "x"), ("[1, 2]", "text", "[1,2]"), ("1e400", "double", None), ("0.1", "double", 0.1),
        ("1.25", "numeric(12,2)", Decimal("1.25")), ('"1.255"', "numeric(12,2)", None),
        ('"abcdef"', "varchar(5)", None), ("12345678901234567890123", "text", "12345678901234567890123"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("neighbours", [(), ('"z"', "1", "2.5", "false", "[0]")])
def test_a_value_is_taken_whole_or_not_at_all(
    kept: str, column: str, value: object, neighbours: tuple[str, ...]
) -> None:
    texts = pa.array([f'{{"a":{each}}}' for each in (kept, *neighbours)])
    assert parse_unmapped(texts).by_key["a"].as_column(parse_cast(column))[0].as_py() == value


_JSON = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=3,
)
_TARGETS = ["bigint", "integer", "boolean", "double precision", "numeric(38,18)", "text", "timestamptz"]


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "b", "/a", ""]), _JSON, max_size=4), min_size=1, max_size=6),
    st.sampled_from(_TARGETS),
)
def test_every_value_ends_in_its_column_or_stays(rows: list[dict[str, Any]], target: str) -> None:
    texts = pa.array([json.dumps(row, ensure_ascii=False) for row in rows])
    held = parse_unmapped(texts).by_key
    columns = {key: held[key].as_column(parse_cast(target)) for key in ("a", "b") if key in held}
    rest = without_members(
        texts, {key: column.is_valid().to_numpy(zero_copy_only=False) for key, column in columns.items()}
    )
    for place, row in enumerate(rows):
        left = json.loads(rest[place].as_py() or "{}")
        moved = {key for key, column in columns.items() if column[place].is_valid}
        assert left == {key: value for key, value in row.items() if key not in moved}


@pytest.mark.parametrize(
    ("text", "taken", "left"),
    [
        ('{"a":1}', ["a"], None), ('{ "a": 1 }', ["a"], None), ('{"a":1,"b":1.50}', ["a"], '{"b":1.50}'),
        ('{"a":1, "b":2}', ["b"], '{"a":1}'), ('{"a":1,"b":2}', ["a", "b"], None), ('{"a":1}', [], '{"a":1}'),
    ],
)  # fmt: skip
def test_the_rest_of_an_object_stays_as_it_was(text: str, taken: list[str], left: str | None) -> None:
    assert without_members(pa.array([text]), {key: np.array([True]) for key in taken}).to_pylist() == [left]


def test_types_of_unmapped_values() -> None:
    def type_of(*values: str, infer: bool = False) -> InnerType:
        return parse_unmapped(pa.array([f'{{"a":{value}}}' for value in values])).by_key["a"].type(infer)

    assert type_of("true", "7") is InnerType.INT64
    assert type_of("1", "1.5") is InnerType.FLOAT64
    assert type_of("9223372036854775808") is InnerType.STRING
    assert type_of('"2026-01-31T10:00:00Z"') is InnerType.STRING
    assert type_of('"2026-01-31T10:00:00Z"', infer=True) is InnerType.TIMESTAMP
