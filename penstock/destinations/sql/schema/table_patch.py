"""Bringing a real table to what a batch needs, under a lock, and only if something is missing.

The table is read, what the batch needs is compared with it, and if there is anything to do the lock is taken and the
table is read again: of two engines that want the same column, one adds it and the other finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from penstock.destinations.contract import TableBook
from penstock.destinations.sql.config import OnTypeConflict, SchemaChanges, SqlConfig
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.fit_rows import Fitting
from penstock.destinations.sql.load.narrow_rows import is_crowded
from penstock.destinations.sql.schema.table_changes import (
    AddColumn,
    CreateTable,
    Operation,
    Table,
    TypedColumn,
    Wanted,
    WidenColumn,
    new_columns,
    our_key,
    patch,
)
from penstock.destinations.sql.session import Session
from penstock.destinations.sql.stage.file_header import merge
from penstock.destinations.sql.stage.staged_rows import StagedFile
from penstock.errors import TableRefusedError
from penstock.flatten.column import Column
from penstock.flatten.unmapped.unmapped_column import UNMAPPED


@dataclass(frozen=True)
class TableRules:
    """What a config says about tables."""

    primary_key: tuple[str, ...] = ()
    version_column: str | None = None
    on_type_conflict: OnTypeConflict = OnTypeConflict.UNMAPPED
    frozen: bool = False
    max_columns: int = 1_000
    one_source: bool = False
    """Whether each table mirrors one namespace, because it bears its name."""
    unwidened: frozenset[str] = frozenset()
    """Columns that keep their type, because a wider one would not hold what they have."""

    @classmethod
    def of(cls, config: SqlConfig) -> TableRules:
        return cls(
            config.primary_key,
            config.version_column,
            config.on_type_conflict,
            config.schema_changes is SchemaChanges.FREEZE,
            config.max_columns,
            config.mirrors and config.table is None,
        )

    def keeping(self, unwidened: frozenset[str], frozen: bool = False) -> TableRules:
        return replace(self, unwidened=unwidened, frozen=self.frozen or frozen)

    def fitting(self, file: StagedFile, table: Table, dialect: Dialect, of_one_type: Collection[str] = ()) -> Fitting:
        key = table.key.columns if table.key else self.primary_key
        fails = self.on_type_conflict is OnTypeConflict.FAIL
        return Fitting(file.header, file.schema, table, dialect, key, fails, of_one_type)


def patched(
    session: Session, rules: TableRules, name: str, files: Sequence[StagedFile], book: TableBook
) -> Table | None:
    """The table, able to take the files. ``None``: it does not exist, and no row has the key it would get."""

    def plan(table: Table | None, unwidened: frozenset[str], frozen: bool) -> list[Operation]:
        return needed(session.dialect, rules.keeping(unwidened, frozen), name, files, table)

    return brought(session, name, plan, book)


Plan = Callable[[Table | None, frozenset[str], bool], list[Operation]]
"""The changes that a table needs as it is. The columns named keep their type: wider, they would lose what they have, or
nobody can change them. If it is to be frozen it gets no new ones, but for the one that keeps what has no place."""


def brought(session: Session, name: str, plan: Plan, book: TableBook) -> Table | None:
    """The table after the changes that it needs. ``None``: it does not exist, and none would make it."""
    table = session.table(name)
    if not plan(table, frozenset(), False):
        return table
    with session.patching(name, book):
        table = session.table(name)
        operations = plan(table, frozenset(), False)
        lossy = [step for step in operations if isinstance(step, WidenColumn) and session.loses(step)]
        if lossy:
            operations = plan(table, _columns(lossy), False)
        statements = _changed(session, plan, table, operations)
    for statement in statements:
        book.changed(name, statement)
    table = session.table(name) if statements else table
    if statements and table is None:
        what = f"what is called '{name}' at the destination is no table."
        raise TableRefusedError("PEN-DST-095", what, "Give it another name, then: penstock failed replay")
    return table


def _changed(session: Session, plan: Plan, table: Table | None, operations: Sequence[Operation]) -> list[str]:
    """Make the changes, or as many of them as the engine lets us: what keeps a column from changing (a view or an index
    that depends on it, say), or from being added, is not the fault of the records. Their values are kept aside then."""
    widened = _columns([step for step in operations if isinstance(step, WidenColumn)])
    refusal: TableRefusedError | None = None
    tried: list[list[str]] = []
    for frozen in (None, False, True):
        steps = operations if frozen is None else plan(table, widened, frozen)
        statements = [session.dialect.render(step) for step in steps]
        if statements in tried:
            continue
        try:
            session.change(statements)
            return statements
        except TableRefusedError as error:
            refusal = refusal or error
            tried.append(statements)
    assert refusal is not None
    raise refusal


def _columns(widenings: Sequence[WidenColumn]) -> frozenset[str]:
    return frozenset(step.column.name.lower() for step in widenings)


def needed(
    dialect: Dialect, rules: TableRules, name: str, files: Sequence[StagedFile], table: Table | None
) -> list[Operation]:
    """The changes that the files ask of the table as it is."""
    header = merge(file.header for file in files)
    homeless = {UNMAPPED, *dialect.reserved, *(table.computed if table else ())}
    columns = [dialect.column(column) for column in header if column.name not in homeless]
    if table is None and not set(rules.primary_key) <= {column.name for column in columns}:
        return []
    # As it will be: a column that is still to be added may not hold every value either.
    there = Table(name, {column.name: column for column in columns} | dict(table.columns if table else {}))
    lossy = _lossy(dialect, rules, files, there, header)
    if table is None or not lossy.keys() <= table.columns.keys():
        # Only what is there can be made wider; a new column has the type that its values gave it.
        known = table.columns if table else {}
        lossy = {column: wider if column in known else None for column, wider in lossy.items()}
    widened = [TypedColumn(column, wider) for column, wider in lossy.items() if wider is not None]
    if widened and UNMAPPED not in there.columns:
        # A wider column may still not hold every value: what it cannot must have its place.
        wide = replace(there, columns={**there.columns, **{column.name: column for column in widened}})
        lossy = dict.fromkeys(_losing(dialect, rules, files, wide))
    kept_aside = any(wider is None for wider in lossy.values()) and rules.on_type_conflict is not OnTypeConflict.FAIL
    wanted = Wanted(
        columns=columns,
        key=our_key(name, rules.primary_key, dialect.max_name) if dialect.has_keys else None,
        widened=widened,
        frozen=rules.frozen,
        max_columns=min(rules.max_columns, dialect.most_columns - 1),
        first=rules.primary_key,
        spare=dialect.spare,
        spare_needed=kept_aside or is_crowded(there, dialect) or any(column.name in homeless for column in header),
    )
    operations = patch(name, wanted, table)
    if rules.on_type_conflict is OnTypeConflict.FAIL:
        return _without_idle_spare(operations, dialect, rules, files, table)
    return operations


def _without_idle_spare(
    operations: Sequence[Operation],
    dialect: Dialect,
    rules: TableRules,
    files: Sequence[StagedFile],
    table: Table | None,
) -> list[Operation]:
    """The changes without a spare column that only rows with a conflict would have filled: those fail."""
    new = {column.name: column for step in operations for column in new_columns(step)}
    after = Table("", {**(table.columns if table else {}), **new})
    if UNMAPPED not in new or len(after.columns) == 1:  # no table is without any column
        return list(operations)
    keyless = replace(rules, primary_key=())  # a row without its key fails too, but is told so in its own words
    if any(_fills_spare(keyless.fitting(file, after, dialect), file) for file in files):
        return list(operations)
    return [
        replace(step, columns=tuple(column for column in step.columns if column.name != UNMAPPED))
        if isinstance(step, CreateTable)
        else step
        for step in operations
        if not (isinstance(step, AddColumn) and step.column.name == UNMAPPED)
    ]


def _fills_spare(fitting: Fitting, file: StagedFile) -> bool:
    """Whether a row that does not fail has something to keep aside."""
    if UNMAPPED not in fitting.names:
        return False
    place = fitting.names.index(UNMAPPED)
    spares = (fitting.fit(rows).rows.column(place) for rows in file.batches())
    return any(spare.null_count < len(spare) for spare in spares)


def _lossy(
    dialect: Dialect, rules: TableRules, files: Sequence[StagedFile], table: Table, header: Sequence[Column]
) -> dict[str, str | None]:
    """Columns that cannot take all their values, each with the wider type it should get, if it should and can."""
    widens = rules.on_type_conflict is OnTypeConflict.WIDEN
    if UNMAPPED in table.columns and not widens:
        return {}  # whatever is lost has its place already
    losing = _losing(dialect, rules, files, table)
    types = {column.name: column.type for column in header}
    return {
        column: dialect.wider(table.columns[column].type, types[column])
        if widens and column not in rules.unwidened
        else None
        for column in sorted(losing)
    }


def _losing(dialect: Dialect, rules: TableRules, files: Sequence[StagedFile], table: Table) -> set[str]:
    """The columns that cannot take all their values as they are."""
    return {
        column
        for file in files
        for fitting in [rules.fitting(file, table, dialect)]
        if fitting.doubtful
        for rows in file.batches()
        for column in fitting.losing(rows)
    }
