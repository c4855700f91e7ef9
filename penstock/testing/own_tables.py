"""What a SQL destination owes to tables: it writes those that it made, those that it is told to, and no other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.destinations.contract import AnyDestination, Batch, Owner, Receipt, TableBook
from penstock.testing.crash import crash_at
from penstock.testing.destination import Staging, batch, events

OVERFLOW = "_penstock_overflow_shop"


class Notebook(TableBook):
    """A book that remembers which tables of a batch overflow, as the ledger does."""

    def __init__(self) -> None:
        self.noted: dict[int, set[str]] = {}
        self.former: list[Owner] = []

    def former_selves(self) -> Collection[Owner]:
        return self.former

    def overflowing(self, batch: Batch) -> Collection[str]:
        return self.noted.get(batch.number, set())

    def note_overflow(self, batch: Batch, tables: Collection[str], limit: int, into: str) -> None:
        self.noted.setdefault(batch.number, set()).update(tables)


class OwnTablesContract(ABC):
    """For destinations built on ``penstock.destinations.sql``.

    Gives: ``make``, ``run``, ``rows``; ``foreign`` if the engine spells it otherwise.
    Asserted: a table of somebody else gets no row unless ``adopt`` names it, and one of another route none unless the
    config names it; tables of our own go on after a restart,
    without a ledger, and if the note of them is lost; what is meant for more than ``max_tables`` of a route goes to one
    table under its name, once, also after a crash or under another limit.
    """

    foreign: ClassVar[str] = "CREATE TABLE customers (id BIGINT)"
    """How somebody else makes a table ``customers``."""
    registry: ClassVar[str] = "_penstock_tables"
    """Where the destination notes which tables are its own."""

    @abstractmethod
    def make(self, **options: Any) -> AnyDestination:
        """The destination with these options, at one target per test. Called again it is a process started again."""

    @abstractmethod
    def run(self, statement: str) -> None:
        """Run a statement at the target."""

    @abstractmethod
    def rows(self, table: str, columns: str = "id") -> list[tuple[Any, ...]]:
        """Rows of a table, sorted."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder, self.book = tmp_path / "stage", Notebook()

    def load(self, number: int, *documents: Mapping[str, Any], **options: Any) -> Receipt:
        """One batch by a process that was just started."""
        destination = self.make(**{"table": "{{ kind }}", "adopt": [], **options})
        parts = Staging(destination, self.folder).stage(events(*documents), first=100 * number)
        receipt = destination.write(batch(number), parts, self.book)
        assert not [table.unavailable for table in receipt.tables if table.unavailable]
        return receipt

    def codes(self, receipt: Receipt) -> list[str]:
        return [code for failures in receipt.failures for code in failures.column("code").to_pylist()]

    def test_a_table_that_somebody_else_made_is_not_written(self) -> None:
        self.run(self.foreign)
        receipt = self.load(1, {"id": 1, "kind": "orders"}, {"id": 2, "kind": "customers"}, {"id": 3, "kind": "orders"})
        assert (receipt.rows, self.codes(receipt)) == (2, ["table_not_ours"])
        assert self.rows("customers") == []
        assert self.rows("orders") == [(1,), (3,)]
        # A record that failed for it is put through once the config says so.
        assert self.load(2, {"id": 2, "kind": "customers"}, adopt=["customers"]).rows == 1
        assert self.rows("customers") == [(2,)]

    def test_tables_of_our_own_go_on_after_a_restart_and_without_a_ledger(self) -> None:
        self.load(1, {"id": 1, "kind": "orders"})
        self.book = Notebook()
        assert self.load(2, {"id": 2, "kind": "orders"}).rows == 1
        assert self.rows("orders") == [(1,), (2,)]

    def test_tables_that_the_release_before_has_loaded_go_on(self) -> None:
        self.load(1, {"id": 1, "kind": "orders"})
        self.run(f"DROP TABLE {self.registry}")
        receipt = self.load(2, {"id": 2, "kind": "orders"}, {"id": 3, "kind": "new"})
        assert (receipt.rows, self.codes(receipt)) == (2, [])
        assert self.rows("orders") == [(1,), (2,)]

    def test_tables_beyond_the_limit_share_one_that_keeps_their_names(self) -> None:
        self.load(1, {"id": 1, "kind": "a"}, max_tables=2)
        receipt = self.load(2, *({"id": n, "kind": k} for n, k in enumerate("bcdacb")), max_tables=2)
        assert receipt.rows == 6
        assert (self.rows("a"), self.rows("b")) == ([(1,), (3,)], [(0,), (5,)])
        named = self.rows(OVERFLOW, "id, _penstock_table")
        assert named == [(1, "c"), (2, "d"), (4, "c")]
        assert {name for table in receipt.tables for name in table.staged_as} == {"a", "b", "c", "d"}

    def test_tables_of_other_routes_do_not_count_for_the_limit(self) -> None:
        others = self.make(table="{{ kind }}", adopt=[])
        parts = Staging(others, self.folder).stage(events(*({"id": 1, "kind": kind} for kind in "xyz")))
        others.write(replace(batch(1), route="other"), parts, self.book)
        receipt = self.load(2, *({"id": n, "kind": kind} for n, kind in enumerate("abc")), max_tables=2)
        assert (receipt.rows, self.codes(receipt)) == (3, [])
        assert (self.rows("a"), self.rows("b")) == ([(0,)], [(1,)])
        assert self.rows(OVERFLOW, "id, _penstock_table") == [(2, "c")]

    def load_as(self, route: str, number: int, *documents: Mapping[str, Any], scope: str = "ledger-a") -> Receipt:
        destination = self.make(table="{{ kind }}", adopt=[])
        parts = Staging(destination, self.folder).stage(events(*documents), first=100 * number)
        return destination.write(batch(number, route, scope), parts, self.book)

    @pytest.mark.parametrize("registered", [True, False], ids=["registered", "by a release before"])
    def test_a_table_of_another_route_is_not_written_unless_the_config_names_it(self, registered: bool) -> None:
        self.load_as("crm", 1, {"id": 1, "kind": "orders"})
        if not registered:
            self.run(f"DROP TABLE {self.registry}")
        receipt = self.load(1, {"id": 2, "kind": "orders"}, {"id": 3, "kind": "own"})
        assert (receipt.rows, self.codes(receipt)) == (1, ["table_not_ours"])
        (message,) = receipt.failures[0].column("message").to_pylist()
        assert "made by another route (crm of ledger ledger-a)" in message
        assert self.rows("orders") == [(1,)]
        # What says so: a list, a pattern, `adopt`, or a name that no record can change.
        shared: list[dict[str, Any]] = [
            {"tables": ["orders"]}, {"tables": ["/ord.*/"]}, {"adopt": ["orders"]}, {"table": "orders"}
        ]  # fmt: skip
        for number, options in enumerate(shared, 2):
            assert self.load(number, {"id": number, "kind": "orders"}, **options).rows == 1
        assert len(self.rows("orders")) == 1 + len(shared)

    def test_a_route_of_another_ledger_is_another_route_whatever_its_name(self) -> None:
        self.load_as("shop", 1, {"id": 1, "kind": "orders"}, scope="ledger-b")
        assert self.codes(self.load(1, {"id": 2, "kind": "orders"})) == ["table_not_ours"]
        self.book.former = [Owner("ledger-b", "shop")]
        assert self.load(2, {"id": 2, "kind": "orders"}).rows == 1
        assert self.rows("orders") == [(1,), (2,)]

    def test_tables_that_were_registered_without_a_ledger_go_on_under_their_name(self) -> None:
        self.load(1, {"id": 1, "kind": "orders"})
        self.run(f"ALTER TABLE {self.registry} DROP COLUMN scope")
        receipt = self.load(2, {"id": 2, "kind": "orders"}, {"id": 3, "kind": "new"})
        assert (receipt.rows, self.codes(receipt)) == (2, [])
        assert self.load(3, {"id": 4, "kind": "orders"}, {"id": 5, "kind": "new"}).rows == 2

    def test_a_route_that_was_renamed_keeps_its_tables(self) -> None:
        self.load_as("old", 1, {"id": 1, "kind": "orders"})
        self.book.former = [Owner("ledger-a", "old")]
        assert self.load(2, {"id": 2, "kind": "orders"}).rows == 1
        # From now on it has them under its own name.
        self.book.former = []
        assert self.load(3, {"id": 3, "kind": "orders"}).rows == 1

    def test_a_batch_that_overflowed_and_is_tried_again_under_a_higher_limit_is_not_doubled(
        self,
    ) -> None:
        both = ({"id": 1, "kind": "a"}, {"id": 2, "kind": "b"})
        self.load(1, *both, max_tables=1)
        again = self.load(1, *both, max_tables=9)
        assert (again.rows, again.repeated) == (2, True)
        assert self.rows(OVERFLOW) == [(2,)]
        assert self.load(2, {"id": 3, "kind": "b"}, max_tables=9).rows == 1
        assert self.rows("b") == [(3,)]

    def test_a_kill_between_the_note_of_a_table_and_the_table_locks_nobody_out(
        self,
    ) -> None:
        with crash_at("destination.tables_placed"):
            self.load(1, {"id": 1, "kind": "a"}, max_tables=1)
        assert self.load(1, {"id": 1, "kind": "a"}, max_tables=1).rows == 1
        assert self.rows("a") == [(1,)]

    def test_rows_with_a_key_stay_rows_of_their_own_table_beyond_the_limit(self) -> None:
        options: dict[str, Any] = {"max_tables": 1, "primary_key": ["id"]}
        self.load(1, {"id": 1, "kind": "a"}, {"id": 1, "kind": "b", "v": 1}, {"id": 1, "kind": "c", "v": 2}, **options)
        self.load(2, {"id": 1, "kind": "b", "v": 3}, **options)
        assert self.rows(OVERFLOW, "_penstock_table, id, v") == [("b", 1, 3), ("c", 1, 2)]

    def test_a_field_that_is_called_like_the_column_for_the_name_is_kept_beside_it(self) -> None:
        self.load(1, {"id": 1, "kind": "a"}, {"id": 2, "kind": "b", "_penstock_table": "x"}, max_tables=1)
        assert self.rows(OVERFLOW, "_penstock_table, _penstock_table_") == [("b", "x")]
