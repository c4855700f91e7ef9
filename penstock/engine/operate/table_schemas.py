"""The schemas of a pipeline's tables: what the ledger knows, what the targets have, and what is kept in ``_unmapped``.

Looking changes nothing. ``remap`` changes a target, in one transaction, and the ledger's log of schema changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.schema.table_changes import Table
from penstock.destinations.sql.session import Session
from penstock.destinations.sql.unmapped.remap import KeptKey, Proposal, Remapped, RemapRules, propose, remap, survey
from penstock.engine.ledger.table_book import KnownColumn, RouteBook, SchemaChange
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_plan import RoutePlan
from penstock.errors import PenstockError, RefusedError, TableRefusedError, TransientError
from penstock.flatten.casts import DEFAULT_CASTS
from penstock.flatten.unmapped.unmapped_column import UNMAPPED
from penstock.json.paths import format_path, parse_path


@dataclass(frozen=True)
class TableSchema:
    """A table that a route has filled."""

    route: str
    name: str
    known: Sequence[KnownColumn]
    real: Table | None = None
    """As it is at the target; ``None`` if it is not there, or was not looked at."""
    kept: Sequence[KeptKey] = ()

    @property
    def missing(self) -> list[KnownColumn]:
        """Columns that the ledger knows and the table lacks. What would fill them is in ``_unmapped``."""
        return [column for column in self.known if self.real is None or column.name not in self.real.columns]

    @property
    def foreign(self) -> list[str]:
        """Columns that the table has and no event has filled."""
        known = {column.name for column in self.known} | {UNMAPPED}
        return [] if self.real is None else [name for name in self.real.columns if name not in known]


@dataclass(frozen=True)
class RouteSchema:
    """``problem``: why its target was not, or not wholly, looked at."""

    route: str
    tables: Sequence[TableSchema] = field(default_factory=list)
    problem: PenstockError | None = None


def recorded(pipeline: Pipeline, route: str, table: str | None = None) -> list[TableSchema]:
    """What the ledger knows, table by table."""
    pipeline.sources_of(route)
    tables: dict[str, list[KnownColumn]] = {}
    for column in RouteBook(pipeline.ledger, route).columns(table):
        tables.setdefault(column.table, []).append(column)
    return [TableSchema(route, name, columns) for name, columns in tables.items()]


def look(pipeline: Pipeline, route: str, table: str | None = None, into_unmapped: bool = False) -> RouteSchema:
    """What the ledger knows beside what the target has; with ``into_unmapped`` also what rows keep there."""
    tables = recorded(pipeline, route, table)
    found: list[TableSchema] = []
    problem: PenstockError | None = None
    try:
        destination = _sql(pipeline.plan(route))
        with destination.looking() as session:
            for known in tables:
                real = session.table(known.name) if session is not None else None
                kept: Sequence[KeptKey] = ()
                if into_unmapped and session is not None and real is not None and problem is None:
                    try:
                        kept = _survey(session, destination, real)
                    except (TransientError, RefusedError):
                        raise
                    except PenstockError as error:
                        problem = error
                found.append(TableSchema(route, known.name, known.known, real, kept))
    except PenstockError as error:
        return RouteSchema(route, tables, error)
    return RouteSchema(route, found, problem)


def changes(pipeline: Pipeline, route: str, last: int | None = None) -> list[SchemaChange]:
    """The schema changes that a route has made, oldest first."""
    pipeline.sources_of(route)
    return RouteBook(pipeline.ledger, route).changes(last)


@dataclass(frozen=True)
class Remapping:
    """A move of kept values at one table: what it would do, and the doing."""

    destination: SqlDestination[Any]
    table: str
    rules: RemapRules
    columns: Collection[str]
    book: RouteBook
    proposal: Proposal

    def apply(self) -> Remapped:
        with _all_or_nothing(), self.destination.session() as session:
            return remap(session, self.table, self.rules, self.columns, self.proposal, self.book)


def remapping(pipeline: Pipeline, route: str, table: str, columns: Collection[str] = ()) -> Remapping:
    """Look at what a table keeps and say what it takes to move it. Between this and ``apply`` nothing is locked."""
    plan = pipeline.plan(route)
    destination = _sql(plan)
    book = RouteBook(pipeline.ledger, route)
    asked = _asked(plan, book.columns(table))
    rules = RemapRules(destination.config.max_columns, destination.config.infer_timestamps, asked)
    with _all_or_nothing(), destination.looking() as session:
        real = None if session is None else session.table(table)
        if session is None or real is None:
            known = ", ".join(each.name for each in recorded(pipeline, route)) or "none yet"
            raise PenstockError("PEN-ENG-011", f"there is no table '{table}'.", f"Tables of '{route}': {known}.")
        with session.kept_values(table) as kept:
            proposal = propose(kept, real, session.dialect, rules, columns)
    return Remapping(destination, table, rules, columns, book, proposal)


@contextmanager
def _all_or_nothing() -> Iterator[None]:
    """Nobody tries again here, so an engine that says no says so to a person."""
    try:
        yield
    except (TransientError, RefusedError, TableRefusedError) as error:
        raise PenstockError(error.code, error.what, "Nothing was changed.") from error


def _survey(session: Session, destination: SqlDestination[Any], table: Table) -> list[KeptKey]:
    with session.kept_values(table.name) as kept:
        return survey(kept, table, session.dialect, destination.config.infer_timestamps)


def _sql(plan: RoutePlan) -> SqlDestination[Any]:
    destination = plan.destination()
    if not isinstance(destination, SqlDestination):
        raise PenstockError(
            "PEN-ENG-012",
            f"route '{plan.name}' goes to '{plan.destination_name}', which has no tables.",
            "Schemas are of SQL destinations.",
        )
    return destination


def _asked(plan: RoutePlan, known: Sequence[KnownColumn]) -> dict[str, str]:
    """The types that casts give to columns: by the steps' paths, and by our own for the collector's times."""
    casts = {format_path(parse_path(path)): asked for path, asked in plan.casts.items()}
    ours = {format_path(path): "timestamp with time zone" for path in DEFAULT_CASTS}
    both = ours | casts
    return {column.name: both[path] for column in known for path in reversed(column.paths) if path in both}
