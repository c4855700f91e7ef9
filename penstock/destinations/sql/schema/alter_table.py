"""Changes a real table to what a batch needs, under a lock, and only if something is missing.

Reads the table and compares it with what the batch needs; if there is anything to do, takes the lock and reads the
table again: of two engines that want the same column, one adds it and the other finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from penstock.destinations.contract import TableBook
from penstock.destinations.sql.config import OnTypeConflict, SchemaChanges, SqlConfig
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.fit_rows import Fitting
from penstock.destinations.sql.load.oversized_rows import may_exceed_limit
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    CreateTable,
    Operation,
    Table,
    TypedColumn,
    Wanted,
    WidenColumn,
    new_columns,
    our_key,
    plan_patch,
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
    """Whether each table mirrors one namespace, because it has its name."""
    unwidened: frozenset[str] = frozenset()
    """Columns that keep their type, because a wider one would lose values that they have."""

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

    def with_limits(self, unwidened: frozenset[str], frozen: bool = False) -> TableRules:
        return replace(self, unwidened=unwidened, frozen=self.frozen or frozen)

    def fitting(self, file: StagedFile, table: Table, dialect: Dialect, of_one_type: Collection[str] = ()) -> Fitting:
        key = table.key.columns if table.key else self.primary_key
        fails = self.on_type_conflict is OnTypeConflict.FAIL
        return Fitting(file.header, file.schema, table, dialect, key, fails, of_one_type)


def apply_patch(
    session: Session, rules: TableRules, name: str, files: Sequence[StagedFile], book: TableBook
) -> Table | None:
    """Change the table so that it can hold the files, and return it. ``None``: it does not exist, and no row has the
    key that it would get."""

    def plan(table: Table | None, unwidened: frozenset[str], frozen: bool) -> list[Operation]:
        return plan_table_changes(session.dialect, rules.with_limits(unwidened, frozen), name, files, table)

    return ensure_table(session, name, plan, book)


Plan = Callable[[Table | None, frozenset[str], bool], list[Operation]]
"""The changes that a table needs as it is. The named columns keep their type: wider, they would lose values, or nobody
can change them. A frozen table gets no new columns except ``_unmapped``."""


def ensure_table(session: Session, name: str, plan: Plan, book: TableBook) -> Table | None:
    """Make the changes that the table needs, and return it. ``None``: it does not exist, and no change would make
    it."""
    table = session.table(name)
    if not plan(table, frozenset(), False):
        return table
    with session.lock_schema(name, book):
        table = session.table(name)
        operations = plan(table, frozenset(), False)
        lossy = [step for step in operations if isinstance(step, WidenColumn) and session.would_lose_values(step)]
        if lossy:
            operations = plan(table, _columns(lossy), False)
        statements = _run_changes(session, plan, table, operations)
    for statement in statements:
        book.note_change(name, statement)
    if statements and table is None and name in book.filled_tables():
        book.note_made_again(name)
    table = session.table(name) if statements else table
    if statements and table is None:
        what = f"what has the name '{name}' at the destination is not a table."
        raise TableRefusedError("PEN-DST-095", what, "Give it another name, then: penstock failed replay")
    return table


def _run_changes(session: Session, plan: Plan, table: Table | None, operations: Sequence[Operation]) -> list[str]:
    """Make the changes, or as many of them as the engine allows: if something keeps a column from being changed or
    added (a dependent view or index, say), the records are not to blame. Their values then go to ``_unmapped``."""
    widened = _columns([step for step in operations if isinstance(step, WidenColumn)])
    refusal: TableRefusedError | None = None
    tried: list[list[str]] = []
    for frozen in (None, False, True):
        steps = operations if frozen is None else plan(table, widened, frozen)
        statements = [session.dialect.render(step) for step in steps]
        if statements in tried:
            continue
        try:
            session.run_ddl(statements)
            return statements
        except TableRefusedError as error:
            refusal = refusal or error
            tried.append(statements)
    assert refusal is not None
    raise refusal


def _columns(widenings: Sequence[WidenColumn]) -> frozenset[str]:
    return frozenset(step.column.name.lower() for step in widenings)


def plan_table_changes(
    dialect: Dialect, rules: TableRules, name: str, files: Sequence[StagedFile], table: Table | None
) -> list[Operation]:
    """The changes that the files need, given the table as it is."""
    header = merge(file.header for file in files)
    homeless = {UNMAPPED, *dialect.reserved, *(table.computed if table else ())}
    columns = [dialect.typed_column(column) for column in header if column.name not in homeless]
    if table is None and not set(rules.primary_key) <= {column.name for column in columns}:
        return []
    # The table as it will be: a column that is yet to be added may not hold every value either.
    there = Table(name, {column.name: column for column in columns} | dict(table.columns if table else {}))
    lossy = _lossy(dialect, rules, files, there, header)
    if table is None or not lossy.keys() <= table.columns.keys():
        # Only existing columns can be widened; a new column has the type of its values.
        known = table.columns if table else {}
        lossy = {column: wider if column in known else None for column, wider in lossy.items()}
    widened = [TypedColumn(column, wider) for column, wider in lossy.items() if wider is not None]
    if widened and UNMAPPED not in there.columns:
        # A wider column may still not hold every value: the rest needs _unmapped.
        wide = replace(there, columns={**there.columns, **{column.name: column for column in widened}})
        lossy = dict.fromkeys(_lossy_columns(dialect, rules, files, wide))
    kept_aside = any(wider is None for wider in lossy.values()) and rules.on_type_conflict is not OnTypeConflict.FAIL
    wanted = Wanted(
        columns=columns,
        key=our_key(name, rules.primary_key, dialect.max_name) if dialect.has_keys else None,
        widened=widened,
        frozen=rules.frozen,
        max_columns=min(rules.max_columns, dialect.most_columns - 1),
        first=rules.primary_key,
        spare=dialect.unmapped_column,
        spare_needed=kept_aside
        or may_exceed_limit(there, dialect)
        or any(column.name in homeless for column in header),
    )
    operations = plan_patch(name, wanted, table)
    if rules.on_type_conflict is OnTypeConflict.FAIL:
        return _without_unused_unmapped(operations, dialect, rules, files, table)
    return operations


def _without_unused_unmapped(
    operations: Sequence[Operation],
    dialect: Dialect,
    rules: TableRules,
    files: Sequence[StagedFile],
    table: Table | None,
) -> list[Operation]:
    """The changes without a column ``_unmapped`` that only rows with a conflict would fill, because those rows fail."""
    new = {column.name: column for step in operations for column in new_columns(step)}
    after = Table("", {**(table.columns if table else {}), **new})
    if UNMAPPED not in new or len(after.columns) == 1:  # no table is without any column
        return list(operations)
    keyless = replace(rules, primary_key=())  # a row without its key fails too, but with a message of its own
    if any(_fills_unmapped(keyless.fitting(file, after, dialect), file) for file in files):
        return list(operations)
    return [
        replace(step, columns=tuple(column for column in step.columns if column.name != UNMAPPED))
        if isinstance(step, CreateTable)
        else step
        for step in operations
        if not (isinstance(step, AddColumn) and step.column.name == UNMAPPED)
    ]


def _fills_unmapped(fitting: Fitting, file: StagedFile) -> bool:
    """Whether a row that does not fail has something for ``_unmapped``."""
    if UNMAPPED not in fitting.names:
        return False
    place = fitting.names.index(UNMAPPED)
    spares = (fitting.fit(rows).rows.column(place) for rows in file.batches())
    return any(spare.null_count < len(spare) for spare in spares)


def _lossy(
    dialect: Dialect, rules: TableRules, files: Sequence[StagedFile], table: Table, header: Sequence[Column]
) -> dict[str, str | None]:
    """Columns that cannot hold all their values, each with the wider type to change it to, if that is wanted and
    possible."""
    widens = rules.on_type_conflict is OnTypeConflict.WIDEN
    if UNMAPPED in table.columns and not widens:
        return {}  # what they cannot hold goes to _unmapped, which exists
    losing = _lossy_columns(dialect, rules, files, table)
    types = {column.name: column.type for column in header}
    return {
        column: dialect.wider_type(table.columns[column].type, types[column])
        if widens and column not in rules.unwidened
        else None
        for column in sorted(losing)
    }


def _lossy_columns(dialect: Dialect, rules: TableRules, files: Sequence[StagedFile], table: Table) -> set[str]:
    """The columns that cannot hold all their values as they are."""
    return {
        column
        for file in files
        for fitting in [rules.fitting(file, table, dialect)]
        if fitting.doubtful
        for rows in file.batches()
        for column in fitting.lossy_columns(rows)
    }
