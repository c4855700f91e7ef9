"""The schemas of a pipeline's tables: what the ledger knows, what the targets have, and what is kept in ``_unmapped``.

Inspecting changes nothing. ``remap`` changes a target, in one transaction, and the ledger's log of schema changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.schema.schema_operations import Table
from penstock.destinations.sql.session import Session
from penstock.destinations.sql.unmapped.remap import Proposal, Remapped, RemapRules, UnmappedKey, propose, remap, survey
from penstock.engine.ledger.table_mappings import KnownColumn, RouteBook, SchemaChange
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
    """The table at the target; ``None`` if it does not exist or was not inspected."""
    kept: Sequence[UnmappedKey] = ()

    @property
    def missing(self) -> list[KnownColumn]:
        """Columns that the ledger knows and the table lacks. Their values are in ``_unmapped``."""
        return [column for column in self.known if self.real is None or column.name not in self.real.columns]

    @property
    def foreign(self) -> list[str]:
        """Columns that the table has and no event has filled."""
        known = {column.name for column in self.known} | {UNMAPPED}
        return [] if self.real is None else [name for name in self.real.columns if name not in known]


@dataclass(frozen=True)
class RouteSchema:
    """``problem``: why its target was not, or not completely, inspected."""

    route: str
    tables: Sequence[TableSchema] = field(default_factory=list)
    problem: PenstockError | None = None


def recorded_tables(pipeline: Pipeline, route: str, table: str | None = None) -> list[TableSchema]:
    """What the ledger knows, table by table."""
    pipeline.sources_of(route)
    tables: dict[str, list[KnownColumn]] = {}
    for column in RouteBook(pipeline.ledger, route).columns(table):
        tables.setdefault(column.table, []).append(column)
    return [TableSchema(route, name, columns) for name, columns in tables.items()]


def inspect_tables(
    pipeline: Pipeline, route: str, table: str | None = None, into_unmapped: bool = False
) -> RouteSchema:
    """What the ledger knows, and what the target has; with ``into_unmapped`` also what rows keep there."""
    tables = recorded_tables(pipeline, route, table)
    found: list[TableSchema] = []
    problem: PenstockError | None = None
    try:
        destination = _sql(pipeline.plan(route))
        with destination.read_only_session() as session:
            for known in tables:
                real = session.table(known.name) if session is not None else None
                kept: Sequence[UnmappedKey] = ()
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
class RemapPlan:
    """The plan to move kept values into columns at one table; ``apply`` does it."""

    destination: SqlDestination[Any]
    table: str
    rules: RemapRules
    columns: Collection[str]
    book: RouteBook
    proposal: Proposal

    def apply(self) -> Remapped:
        with _report_refusals(), self.destination.session() as session:
            return remap(session, self.table, self.rules, self.columns, self.proposal, self.book)


def plan_remap(pipeline: Pipeline, route: str, table: str, columns: Collection[str] = ()) -> RemapPlan:
    """Plan the move of what a table keeps in ``_unmapped``. Nothing is locked between this and ``apply``."""
    plan = pipeline.plan(route)
    destination = _sql(plan)
    book = RouteBook(pipeline.ledger, route)
    asked = _asked(plan, book.columns(table))
    rules = RemapRules(destination.config.max_columns, destination.config.infer_timestamps, asked)
    with _report_refusals(), destination.read_only_session() as session:
        real = None if session is None else session.table(table)
        if session is None or real is None:
            known = ", ".join(each.name for each in recorded_tables(pipeline, route)) or "none yet"
            raise PenstockError("PEN-ENG-011", f"there is no table '{table}'.", f"Tables of '{route}': {known}.")
        with session.open_unmapped(table) as kept:
            proposal = propose(kept, real, session.dialect, rules, columns)
    return RemapPlan(destination, table, rules, columns, book, proposal)


@contextmanager
def _report_refusals() -> Iterator[None]:
    """Turn refusals of the target into errors for a person: nobody retries here."""
    try:
        yield
    except (TransientError, RefusedError, TableRefusedError) as error:
        raise PenstockError(error.code, error.what, "Nothing was changed.") from error


def _survey(session: Session, destination: SqlDestination[Any], table: Table) -> list[UnmappedKey]:
    with session.open_unmapped(table.name) as kept:
        return survey(kept, table, session.dialect, destination.config.infer_timestamps)


def _sql(plan: RoutePlan) -> SqlDestination[Any]:
    destination = plan.destination().sql()
    if destination is None:
        raise PenstockError(
            "PEN-ENG-012",
            f"route '{plan.name}' goes to '{plan.destination_name}', which has no tables.",
            "Name a route with a SQL destination: --route NAME.",
        )
    return destination


def _asked(plan: RoutePlan, known: Sequence[KnownColumn]) -> dict[str, str]:
    """The types that casts give to columns: those of the steps, and our own for the collector's timestamps."""
    casts = {format_path(parse_path(path)): asked for path, asked in plan.casts.items()}
    ours = {format_path(path): "timestamp with time zone" for path in DEFAULT_CASTS}
    both = ours | casts
    return {column.name: both[path] for column in known for path in reversed(column.paths) if path in both}
