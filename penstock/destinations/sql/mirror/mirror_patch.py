"""What a table needs to mirror its source: the source's new columns, wider types, its key.

A column is widened if the type that the source declares now holds everything that the column's type holds. If neither
type holds the other, the column stays and ``on_type_conflict`` decides. A column that the source has dropped stays as
well: nothing is ever removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from penstock.destinations.sql.config import OnTypeConflict
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.mirror.stage.change_header import MirrorHeader
from penstock.destinations.sql.schema.alter_table import TableRules
from penstock.destinations.sql.schema.schema_operations import (
    Operation,
    Table,
    TypedColumn,
    Wanted,
    our_key,
    plan_patch,
)
from penstock.flatten.inner_types import InnerType
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

Losing = Callable[[Table], Collection[str]]
"""The columns of a table that cannot hold all incoming values."""


def plan_mirror_changes(
    dialect: Dialect, rules: TableRules, name: str, header: MirrorHeader, losing: Losing, table: Table | None
) -> list[Operation]:
    """The changes that rows with this header need, given the table as it is."""
    homeless = {UNMAPPED, *dialect.reserved, *(table.computed if table else ())}
    types = {column.name: column.type(dialect) for column in header.columns if column.name not in homeless}
    columns = [TypedColumn(column, kind) for column, kind in types.items() if kind is not None]
    known = [column for column in columns if column.name in {c.name for c in header.columns if c.is_known(dialect)}]
    if table is None and (not columns or not set(header.key) <= {column.name for column in columns}):
        return []
    there = table or Table(name, {})
    after = Table(name, {column.name: column for column in columns} | dict(there.columns))
    widened = {} if rules.frozen else _wider(dialect, rules, known, there)
    lost: Collection[str] = ()
    if UNMAPPED not in there.columns or rules.on_type_conflict is OnTypeConflict.WIDEN:
        lost = losing(_with(after, widened))
    if rules.on_type_conflict is OnTypeConflict.WIDEN and not rules.frozen:
        more = {
            column: wider
            for column in lost
            if column in there.columns and column not in rules.unwidened
            if (wider := dialect.wider_type(there.columns[column].type, _inner(dialect, types[column])))
        }
        if more:
            widened = {**widened, **more}
            lost = losing(_with(after, widened))
    wanted = Wanted(
        columns=columns,
        key=our_key(name, header.key, dialect.max_name) if dialect.has_keys else None,
        widened=[TypedColumn(column, kind) for column, kind in widened.items()],
        frozen=rules.frozen,
        max_columns=min(rules.max_columns, dialect.most_columns - 1),
        first=header.key,
        spare=dialect.unmapped_column,
        spare_needed=bool(lost) and rules.on_type_conflict is not OnTypeConflict.FAIL,
    )
    return plan_patch(name, wanted, table)


def _wider(dialect: Dialect, rules: TableRules, columns: Collection[TypedColumn], there: Table) -> dict[str, str]:
    """Columns whose new type holds everything that their old one does, and more."""
    return {
        column.name: column.type
        for column in columns
        if column.name in there.columns and column.name not in rules.unwidened
        if not dialect.holds(there.columns[column.name].type, column.type)
        if dialect.holds(column.type, there.columns[column.name].type)
    }


def _with(table: Table, types: dict[str, str]) -> Table:
    changed = {name: TypedColumn(table.columns[name].name, kind) for name, kind in types.items()}
    return replace(table, columns={**table.columns, **changed})


def _inner(dialect: Dialect, sql_type: str | None) -> InnerType:
    return (dialect.target(sql_type).type if sql_type else None) or InnerType.STRING
