"""One connection to a SQL engine, as the loader uses it: what differs between engines beyond their SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock import faults
from penstock.config.component import Offer, offered_by
from penstock.destinations.contract import Batch, Owner, TableBook
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.table_load import Load, LoadResult
from penstock.destinations.sql.marks import MARKS, Mark
from penstock.destinations.sql.schema.schema_operations import AddColumn, CreateTable, Table, TypedColumn, WidenColumn
from penstock.destinations.sql.unmapped.unmapped_store import UnmappedStore, not_offered
from penstock.errors import ContradictionError, PenstockError
from penstock.flatten.inner_types import InnerType

if TYPE_CHECKING:
    from penstock.destinations.sql.mirror.applier import MirrorTransaction

REGISTRY = "_penstock_tables"
_REGISTRY_COLUMNS = ("table_name", "route", "scope")
"""Lists the tables that Penstock made. A table is listed before it is made: any other is somebody else's."""


@dataclass(frozen=True)
class Comments:
    """The comments on a table and, by our names, on its columns."""

    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


class Session(ABC):
    """Open while one batch is written. Raises ``TransientError`` if the engine cannot do it now, ``RefusedError`` if it
    refuses the rows themselves. After either, nothing of the call was done and the session can be used again, unless
    the connection is lost: then every call raises ``TransientError``."""

    dialect: Dialect
    max_tries: ClassVar[int] = 200
    """How many parts of a refused load are tried to find the bad rows: as many as it takes where a try costs
    milliseconds."""

    @abstractmethod
    def table(self, name: str) -> Table | None:
        """The table as it is now."""

    def is_name_taken(self, name: str) -> bool:
        """Whether something at the target (a table, a view, a type) already has this name."""
        return self.table(name) is not None

    @abstractmethod
    def select(self, query: str, **values: str) -> Sequence[Sequence[object]]:
        """The rows of a query, whose names are quoted. Each of the values is a ``dialect.parameter`` in it."""

    def registered_tables(self) -> Sequence[tuple[str, Owner]]:
        """The tables that Penstock made here, each with the route that made it. One that an older release made has no
        scope."""
        found = self.table(REGISTRY)
        if found is None:
            return []
        columns = self.dialect.names([name for name in _REGISTRY_COLUMNS if name in found.columns])
        rows = self.select(f"SELECT {columns} FROM {self._registry}")
        return [(str(table), Owner(str(scope[0] or "") if scope else "", str(route))) for table, route, *scope in rows]

    def register_tables(self, tables: Collection[str], owner: Owner) -> None:
        """Register tables as a route's own. Call it inside ``lock_schema`` of the registry."""
        text, literal = self.dialect.types[InnerType.STRING], self.dialect.literal
        found, columns = self.table(REGISTRY), [TypedColumn(name, text) for name in _REGISTRY_COLUMNS]
        if found is None:
            made = [self.dialect.render(CreateTable(REGISTRY, tuple(columns)))]
        else:
            lacks = [column for column in columns if column.name not in found.columns]
            made = [self.dialect.render(AddColumn(REGISTRY, column)) for column in lacks]
        rows = ", ".join(f"({literal(table)}, {literal(owner.route)}, {literal(owner.scope)})" for table in tables)
        into = f"{self._registry} ({self.dialect.names(_REGISTRY_COLUMNS)})"
        self.run_ddl([*made, f"INSERT INTO {into} VALUES {rows}"])

    def marked_tables(self) -> Sequence[tuple[str, str, str]]:
        """Scope, route and table of every mark that is kept."""
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
        """The engine's comments on the table and its columns."""
        return Comments()

    def has_rows(self, table: str) -> bool:
        """Whether an existing table has any row. Raises for engines that cannot mirror tables."""
        raise _no_mirrors()

    @abstractmethod
    def run_ddl(self, statements: Sequence[str]) -> None:
        """Run schema changes."""

    def would_lose_values(self, widening: WidenColumn) -> bool:
        """Whether the change would lose values that the column has now. Asked before the change is made."""
        return False

    @abstractmethod
    def lock_schema(self, table: str, book: TableBook) -> AbstractContextManager[object]:
        """Keep everybody else, in any process or machine, from changing the table's schema."""

    @abstractmethod
    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        """The mark that a batch of this number left for this table, if there is one, with the origin of that batch."""

    @abstractmethod
    def newest_marks(self) -> list[Mark]:
        """The marks of the newest batch of every scope and route, without their failures. Creates nothing."""

    @abstractmethod
    def newest_batch(self, scope: str, route: str) -> int:
        """The number of the newest batch that has a mark; 0 if there is none. Creates nothing."""

    @abstractmethod
    def marks(self, scope: str, route: str) -> list[Mark]:
        """All marks of a route, oldest first. Creates nothing."""

    def load(self, load: Load) -> LoadResult:
        """Insert or merge the rows and write the mark of their batch, all or nothing. Without a batch: try the load and
        roll it back."""
        self._load(load)
        if load.batch is not None:
            faults.reach("destination.committed")
        return load.rows.result()

    @abstractmethod
    def _load(self, load: Load) -> None:
        """What the engine has to do for that."""

    def open_mirror(self, keep: bool = True) -> AbstractContextManager[MirrorTransaction]:
        """Open a transaction that applies changes to a table, and rolls them back in the end unless they are to be
        kept. Raises for engines that do not offer it."""
        raise _no_mirrors()

    def open_unmapped(self, table: str, book: TableBook | None = None) -> AbstractContextManager[UnmappedStore]:
        """Open what a table keeps in ``_unmapped``, in a transaction. With a book it may be changed: nobody else can
        then change the table or load into it. Raises for engines that do not offer it."""
        raise not_offered()


def known_load(session: Session, batch: Batch, table: str) -> Mark | None:
    """The mark of exactly this batch. Raises ``ContradictionError`` if another batch has its number, whose rows must
    not be taken for those of this one. For a mark without an origin, from an older release, the number decides."""
    found = session.find_mark(batch, table)
    if found is not None and found.batch.origin and batch.origin and found.batch.origin != batch.origin:
        raise ContradictionError(
            "PEN-DST-110",
            f"table '{table}' has a batch {batch.number} of route '{batch.route}' that was made of other records: an"
            " older copy of the ledger or of the whole `data_dir` was put back. Nothing was written.",
            f"Continue after what the destination has: penstock offset adopt {batch.route}",
        )
    return found


def require_followed(session: Session, batch: Batch) -> None:
    """Raises ``ContradictionError`` if the target has lost the batch that this one follows."""
    if not batch.follows:
        return
    newest = session.newest_batch(batch.scope, batch.route)
    if newest < batch.follows:
        raise ContradictionError(
            "PEN-DST-113",
            f"the destination has batches of route '{batch.route}' up to {newest} only, and batch {batch.follows} was"
            " delivered to it: it was replaced by an older copy or by another. Nothing was written.",
            "See what it lacks, and how to go on: penstock doctor",
        )


def _no_mirrors() -> PenstockError:
    return PenstockError(
        "PEN-DST-082",
        "tables at this kind of destination cannot mirror those of a source.",
        f"load: mirror is offered for {offered_by(Offer.MIRROR)}.",
    )
