"""All rows or none, on DuckDB and on a real PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

from penstock.destinations.contract import NULL_TABLE_BOOK, AnyDestination, Receipt
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.destinations.sql.mirror.applier import MirrorTransaction
from penstock.destinations.sql.session import Session
from penstock.errors import RefusedError
from penstock.record import Record
from penstock.testing.all_or_nothing import AllOrNothingContract
from penstock.testing.destination import batch, delivered_rows
from penstock.testing.mirror import Replica, Source, Target
from tests.destinations.duckdb.test_duckdb_mirror import DuckdbTarget
from tests.destinations.postgres.test_postgres_mirror import PostgresTarget
from tests.support.database import Database
from tests.support.duckdb_file import open_file

USERS, ORDERS = (
    Source({"id": "bigint", "price": "bigint"}, namespace=f"public.{table}") for table in ("users", "orders")
)
ADOPTED = ["small", "large"]
COLUMNS = "id bigint, kind text, amount bigint, CONSTRAINT positive_{table} CHECK (amount > 0)"


class TestDuckdbWhole(AllOrNothingContract):
    @pytest.fixture(autouse=True)
    def _tables(self, tmp_path: Path) -> None:
        self.path = tmp_path / "warehouse.duckdb"
        with open_file(self.path) as connection:
            for table in ("small", "large"):
                connection.execute(f"CREATE TABLE {table} ({COLUMNS.format(table=table)})")

    def make(self, **options: Any) -> AnyDestination:
        return DuckdbDestination(
            DuckdbConfig.model_validate({"path": self.path, "table": "{{ kind }}", "adopt": ADOPTED, **options})
        )

    def ids(self, table: str) -> list[int]:
        with open_file(self.path, read_only=True) as connection:
            return [row[0] for row in connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()]


class TestPostgresWhole(AllOrNothingContract):
    @pytest.fixture(autouse=True)
    def _tables(self, database: Database) -> None:
        self.database = database
        database.ask(f"CREATE SCHEMA {database.schema}")
        for table in ("small", "large"):
            database.ask(f"CREATE TABLE {table} ({COLUMNS.format(table=table)})")

    def make(self, **options: Any) -> AnyDestination:
        where = {"url": self.database.dsn, "database_schema": self.database.schema, "table": "{{ kind }}"}
        return PostgresDestination(PostgresConfig.model_validate({**where, "adopt": ADOPTED, **options}))

    def ids(self, table: str) -> list[int]:
        return [row[0] for row in self.database.ask(f"SELECT id FROM {table} ORDER BY id")]


class MirrorWholeContract(ABC):
    """All changes or none, for a route that mirrors."""

    @abstractmethod
    def target(self) -> Target: ...

    @pytest.fixture
    def replica(self, tmp_path: Path) -> Replica:
        target = self.target()
        for table in ("users", "orders"):
            target.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, price bigint, CHECK (price > 0))")
        return Replica(target, tmp_path / "mirrored", table="{{ table }}")

    def write(self, replica: Replica, number: int, *records: Record) -> Receipt:
        parts, _ = replica.stage(records)
        return replica.destination.write_all_or_nothing(batch(number), parts, NULL_TABLE_BOOK)

    def prices(self, replica: Replica, table: str) -> dict[int, int]:
        return {row["id"]: row["price"] for row in replica.target.rows(table)}

    def test_changes_that_are_all_fine_are_all_made(self, replica: Replica) -> None:
        self.write(replica, 1, USERS.insert(id=1, price=1), ORDERS.insert(id=9, price=9), USERS.insert(id=2, price=2))
        self.write(replica, 2, USERS.update(id=1, price=5), USERS.delete(id=2), ORDERS.truncate())
        again = self.write(replica, 2, USERS.update(id=1, price=5), USERS.delete(id=2), ORDERS.truncate())
        assert (self.prices(replica, "users"), self.prices(replica, "orders")) == ({1: 5}, {})
        assert delivered_rows(again) == 3

    @pytest.mark.parametrize("other", ["users", "orders"])
    def test_one_refused_change_takes_all_others_back(self, replica: Replica, other: str) -> None:
        self.write(replica, 1, USERS.insert(id=1, price=1))
        bad = (USERS if other == "users" else ORDERS).insert(id=3, price=-3)
        with pytest.raises(RefusedError, match=r"(?i)constraint"):
            self.write(replica, 2, USERS.update(id=1, price=7), bad, USERS.insert(id=4, price=4))
        assert (self.prices(replica, "users"), self.prices(replica, "orders")) == ({1: 1}, {})
        self.write(replica, 2, USERS.update(id=1, price=7))
        assert self.prices(replica, "users") == {1: 7}

    def test_a_key_that_changes_within_a_batch_is_no_way_out(self, replica: Replica) -> None:
        self.write(replica, 1, USERS.insert(id=1, price=1))
        other_key = Source({"id": "bigint", "price": "bigint"}, ("price",), "public.users")
        with pytest.raises(RefusedError):
            self.write(replica, 2, USERS.insert(id=2, price=2), other_key.insert(id=3, price=-3))
        assert self.prices(replica, "users") == {1: 1}


class TestDuckdbMirrorWhole(MirrorWholeContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "mirror.duckdb"

    def target(self) -> Target:
        return DuckdbTarget(self.path)


class TestPostgresMirrorWhole(MirrorWholeContract):
    @pytest.fixture(autouse=True)
    def _place(self, database: Database) -> None:
        self.database = database

    def target(self) -> Target:
        return PostgresTarget(self.database)


READS = {
    "table",
    "is_name_taken",
    "select",
    "registered_tables",
    "marked_tables",
    "newest_batch",
    "comments",
    "has_rows",
}
READS |= {"would_lose_values", "find_mark", "newest_marks", "marks", "lock_schema"}
SCHEMA = {"register_tables", "run_ddl"}
ROWS = {"load", "open_mirror"}
BY_HAND = {"open_unmapped"}


def test_whatever_a_session_can_do_is_watched() -> None:
    """A way to write that is added to sessions must be thought of for all or nothing too: see ``Attempt``."""
    assert {name for name in vars(Session) if not name.startswith("_")} - {"dialect", "max_tries"} == (
        READS | SCHEMA | ROWS | BY_HAND
    )
    assert {name for name in vars(MirrorTransaction) if not name.startswith("_")} == {"apply", "write_mark"}
