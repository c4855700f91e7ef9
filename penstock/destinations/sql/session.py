"""One connection to a SQL engine, as the loader uses it. What differs between engines beyond spelling is here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa

from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.merge_rows import AFTER, TURN, UPTO, Merge
from penstock.destinations.sql.schema.table_changes import CreateTable, Table, TypedColumn, WidenColumn
from penstock.destinations.sql.unmapped.kept_values import KeptValues, not_offered
from penstock.errors import ContradictionError, PenstockError
from penstock.flatten.inner_types import InnerType

if TYPE_CHECKING:
    from penstock.destinations.sql.mirror.applier import Mirror

MARKS = "_penstock_loads"
"""The table of batches that a target has. A mark is written with its batch, so the two never differ."""
REGISTRY = "_penstock_tables"
"""The table of tables that are ours. A table is noted before it is made: one that is not noted is somebody else's."""
KEPT_MARKS = 1_000
"""Marks per route, and more while one of its tables waits: an older batch is settled and never comes again."""


@dataclass(frozen=True)
class Mark:
    """That a target has its part of a batch: how many rows it took, and which it refused (as text, for later)."""

    batch: Batch
    table: str
    rows: int
    failures: str = ""


@dataclass(frozen=True)
class Comments:
    """What is written about a table and, by our names, about its columns."""

    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


class Rows(Protocol):
    """What a load brings: readers of one schema each. Asked for again after a failure, they start anew."""

    def columns(self) -> Sequence[str]:
        """Every column that any reader has, by our names."""

    def readers(self) -> Iterator[pa.RecordBatchReader]: ...


@dataclass(frozen=True)
class Load:
    """Rows for a table that has all their columns. They are merged into it, or else added to it."""

    table: Table
    rows: Rows
    merge: Merge | None = None

    def staged(self, dialect: Dialect) -> list[TypedColumn]:
        """The columns of the staged rows, as the table and ``merging`` call them."""
        columns = [self.table.columns[name] for name in self.rows.columns()]
        if self.merge is not None and self.merge.in_turns and self.merge.version is not None:
            version = self.table.columns[self.merge.version].type
            columns.append(TypedColumn(TURN, dialect.types[InnerType.INT64]))
            columns += [TypedColumn(AFTER, version), TypedColumn(UPTO, version)]
        return columns


class Session(ABC):
    """Open while one batch is written. Raises ``TransientError`` if the engine cannot now, ``RefusedError`` if it says
    no to the rows themselves; after either, nothing of the call was done and the session can be used again, unless the
    connection is gone: then every call raises ``TransientError``."""

    dialect: Dialect
    max_tries: ClassVar[int] = 200
    """How often parts of a load that was refused are tried to find the bad rows: as often as it takes where a try is a
    matter of milliseconds."""

    @abstractmethod
    def table(self, name: str) -> Table | None:
        """The table as it is now."""

    def exists(self, name: str) -> bool:
        """Whether anything stands there that keeps a table of this name from being made."""
        return self.table(name) is not None

    @abstractmethod
    def select(self, query: str) -> Sequence[Sequence[object]]:
        """The rows of a query whose names are quoted and which has no values."""

    def registered(self) -> Sequence[tuple[str, str]]:
        """The tables that were made here by Penstock, each with the route that made it."""
        if self.table(REGISTRY) is None:
            return []
        return [(str(table), str(route)) for table, route in self.select(f"SELECT * FROM {self._registry}")]

    def register(self, tables: Collection[str], route: str) -> None:
        """Note that tables are the route's own. Inside ``patching`` of the registry."""
        text = self.dialect.types[InnerType.STRING]
        columns = (TypedColumn("table_name", text), TypedColumn("route", text))
        rows = ", ".join(f"({self.dialect.literal(table)}, {self.dialect.literal(route)})" for table in tables)
        self.change(
            [self.dialect.render(CreateTable(REGISTRY, columns)), f"INSERT INTO {self._registry} VALUES {rows}"]
        )

    def marked(self) -> Sequence[tuple[str, str, str]]:
        """Scope, route and table of every load that is still marked."""
        if self.table(MARKS) is None:
            return []
        names = ", ".join(self.dialect.names([name]) for name in self._mark_names)
        found = self.select(f"SELECT DISTINCT {names} FROM {self.dialect.relation(MARKS)}")
        return [(str(scope), str(route), str(table)) for scope, route, table in found]

    _mark_names: ClassVar[Sequence[str]] = ("scope", "route", "table_name")

    @property
    def _registry(self) -> str:
        return self.dialect.relation(REGISTRY)

    def comments(self, table: str) -> Comments:
        """What is written about the table at the engine."""
        return Comments()

    def has_rows(self, table: str) -> bool:
        """Whether there is any row in a table that is there. Raises for engines that mirror no tables."""
        raise _no_mirrors()

    @abstractmethod
    def change(self, statements: Sequence[str]) -> None:
        """Run schema changes."""

    def loses(self, widening: WidenColumn) -> bool:
        """Whether values that the column has now would not survive its change. Asked before it is made."""
        return False

    @abstractmethod
    def patching(self, table: str, book: TableBook) -> AbstractContextManager[None]:
        """Keep all others from changing the table's schema, over all processes and machines."""

    @abstractmethod
    def mark(self, batch: Batch, table: str) -> Mark | None:
        """The mark that a batch of this number left at this table, if it is there, with the origin of that batch."""

    @abstractmethod
    def newest_marks(self) -> list[Mark]:
        """The marks of the newest batch of every scope and route, without their failures. Makes nothing."""

    @abstractmethod
    def marks(self, scope: str, route: str) -> list[Mark]:
        """All marks of a route, oldest first. Makes nothing."""

    @abstractmethod
    def load(self, load: Load, mark: Callable[[], Mark] | None) -> None:
        """Insert or merge the rows and write the mark, all or nothing. The mark is known once the rows were read.
        Without one: try it, and take it back."""

    def mirroring(self) -> AbstractContextManager[Mirror]:
        """A transaction in which changes are applied to a table. Raises for engines that do not offer it."""
        raise _no_mirrors()

    def kept_values(self, table: str, book: TableBook | None = None) -> AbstractContextManager[KeptValues]:
        """What a table keeps in ``_unmapped``, in a transaction. With a book it is to be changed: all others are kept
        from changing the table, and from loading it. Raises for engines that do not offer it."""
        raise not_offered()


def forgettable(batch: Batch) -> int:
    """Marks up to this number may go: no batch of one is written again, also none of a table that waits."""
    return min([batch.number, *batch.waiting.values()]) - KEPT_MARKS


def listed_mark(row: Sequence[object]) -> Mark:
    """A mark as it was listed: scope, route, number, origin, table, rows and failures."""
    scope, route, number, origin, table, rows, failures = (str(value) for value in row)
    return Mark(Batch(scope, route, int(number), {}, origin), table, int(rows), failures)


def known_load(session: Session, batch: Batch, table: str) -> Mark | None:
    """The mark of this very batch. Raises ``ContradictionError`` if another one has its number: its rows must not be
    taken for those of this one. A mark without an origin, of an older release, is believed by its number."""
    found = session.mark(batch, table)
    if found is not None and found.batch.origin and batch.origin and found.batch.origin != batch.origin:
        raise ContradictionError(
            "PEN-DST-110",
            f"table '{table}' has a batch {batch.number} of route '{batch.route}' that was made of other records: an"
            " older copy of the ledger or of the whole `data_dir` was put back. Nothing was written.",
            f"Go on behind what the destination has: penstock offset adopt {batch.route}",
        )
    return found


def _no_mirrors() -> PenstockError:
    return PenstockError(
        "PEN-DST-082",
        "tables at this kind of destination cannot follow those of a source.",
        "load: mirror is offered for duckdb and postgres.",
    )
