"""What all SQL destinations are: a config, a dialect, and a session per batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Destination,
    LoadedTable,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.destinations.sql.config import SqlConfig
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.all_or_nothing import write_all_or_nothing
from penstock.destinations.sql.load.attempt import Attempt, BatchWrite
from penstock.destinations.sql.load.loader import all_rows_failed, load_table
from penstock.destinations.sql.marks import Mark, failures_in, meant_for_in, waiting_as_in, waiting_in
from penstock.destinations.sql.mirror.mirror_loader import mirror_table, plan_stretch_changes
from penstock.destinations.sql.mirror.mirror_marks import STRETCH_SIGN, mirrored_loads
from penstock.destinations.sql.mirror.stage.change_stager import MirrorStager
from penstock.destinations.sql.mirror.stage.mirror_names import MirrorTableChooser
from penstock.destinations.sql.mirror.stage.staged_changes import stretches
from penstock.destinations.sql.schema.alter_table import TableRules, plan_table_changes
from penstock.destinations.sql.schema.ownership import (
    NOT_OURS,
    Limits,
    OwnTables,
    Placement,
    overflow_table,
    placement_remarks,
)
from penstock.destinations.sql.session import Comments, Session, require_followed
from penstock.destinations.sql.stage.allowed_tables import AllowedTables
from penstock.destinations.sql.stage.staged_rows import MEANT_FOR, staged_files
from penstock.destinations.sql.stage.stager import TypedStager
from penstock.destinations.sql.stage.table_name import TableChooser
from penstock.errors import TableRefusedError, TransientError

SqlConfigT = TypeVar("SqlConfigT", bound=SqlConfig)


class SqlDestination(Destination[SqlConfigT]):
    """Loads tables one after the other, each in its own transaction with its own mark: a table that cannot be loaded
    now does not hold up the others, and is tried again without them."""

    @property
    @abstractmethod
    def dialect(self) -> Dialect: ...

    def sql(self) -> SqlDestination[SqlConfigT]:
        return self

    @abstractmethod
    def session(self) -> AbstractContextManager[Session]:
        """A connection for one batch; raises ``TransientError`` if it cannot be opened."""

    @contextmanager
    def read_only_session(self) -> Iterator[Session | None]:
        """A session that creates nothing at the target, not even the schema that a first batch would create. ``None``:
        the target does not exist yet."""
        with self.session() as session:
            yield session

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        for asked in casts.values():
            self.dialect.cast_type(asked)  # a type that the engine does not have stops the task, before any record
        allowed = AllowedTables.of(self.config.tables)
        if self.config.mirrors:
            mirrored = MirrorTableChooser(self.config.table_template, self.dialect.max_name, allowed)
            return MirrorStager(directory, mirrored, casts)
        names = TableChooser(self.config.table_template, self.dialect.max_name, allowed)
        return TypedStager(
            directory, names, casts, self.dialect.max_name, infer_timestamps=self.config.infer_timestamps
        )

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        return self.write_tables(batch, parts, book, Attempt.LENIENT)

    def write_tables(self, batch: Batch, parts: Sequence[Part], book: TableBook, attempt: Attempt) -> Receipt:
        """Raises ``WriteRefused`` if the attempt wants all rows and one is refused."""
        if not parts:
            return Receipt()
        tables = parts_by_table(parts)
        load = mirror_table if self.config.mirrors else load_table
        with self.session() as session:
            require_followed(session, batch)
            write = BatchWrite(session, TableRules.of(self.config), batch, book, attempt)
            placed = self._own_tables.place_tables(session, self._limits, batch, tables, book)
            receipts = []
            for table, files in tables.items():
                if table in placed.overflowing:
                    continue
                if table in placed.foreign:
                    receipts.append(self._reject_foreign(table, files, placed.foreign[table]))
                    continue
                receipts.append(_load_or_defer(table, partial(load, write, table, files)))
            if placed.overflowing:
                beyond = [part for part in parts if part.table in placed.overflowing]
                receipts.append(self._load_overflow(write, beyond))
        return Receipt(receipts)

    @cached_property
    def _own_tables(self) -> OwnTables:
        return OwnTables()

    @property
    def _limits(self) -> Limits:
        most = None if self.config.mirrors else self.config.max_tables
        config = self.config
        return Limits(frozenset(config.adopt), most, config.named_tables, config.tables_of_others)

    def _reject_foreign(self, table: str, parts: Sequence[Part], why: str) -> TableReceipt:
        if self.config.mirrors:
            # They wait instead of failing: a failed change could not be applied after later ones.
            fix = "Or move that table away; the changes wait until then."
            return TableReceipt(table, 0, unavailable=TransientError("PEN-DST-092", f"{why}.", fix))
        return TableReceipt(table, 0, all_rows_failed(staged_files(parts), NOT_OURS, why))

    def _load_overflow(self, write: BatchWrite, parts: Sequence[Part]) -> TableReceipt:
        """Load the rows of several tables into one. A column, which is also part of the key, names each row's table."""
        into, key = overflow_table(write.batch.route, self.dialect.max_name), write.rules.primary_key
        apart = replace(write, rules=replace(write.rules, primary_key=(MEANT_FOR, *key) if key else ()))
        found = _load_or_defer(into, partial(load_table, apart, into, parts, say_table=True))
        return replace(found, meant_for=tuple(dict.fromkeys(part.table for part in parts)))

    def write_all_or_nothing(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        return write_all_or_nothing(self, batch, parts, book)

    def newest_loads(self) -> Sequence[LoadedTable]:
        with self.read_only_session() as session:
            return [] if session is None else [_loaded_table(mark) for mark in session.newest_marks()]

    def loads(self, scope: str, route: str) -> Sequence[LoadedTable]:
        with self.read_only_session() as session:
            marks = [] if session is None else session.marks(scope, route)
        return mirrored_loads(marks) if self.config.mirrors else [_loaded_table(mark) for mark in marks]

    @property
    def mirrors(self) -> bool:
        return self.config.mirrors

    def lost_tables(self, tables: Collection[str]) -> Collection[str]:
        """Only a mirror promises to be all of its source: any other table may be emptied by who owns it."""
        if not self.mirrors or not tables:
            return ()
        with self.read_only_session() as session:
            return [table for table in tables if session is None or session.table(table) is None]

    def plan(self, parts: Sequence[Part], offline: bool = False, route: str = "") -> Sequence[str]:
        rules, tables = TableRules.of(self.config), parts_by_table(parts)
        statements: list[str] = []
        with nullcontext() if offline else self.read_only_session() as session:
            placed = Placement() if session is None else self._own_tables.peek(session, self._limits, route, [*tables])
            statements += placement_remarks(placed, route, self.config.max_tables, self.dialect.max_name)
            for name, files in tables.items():
                if name in placed.foreign or name in placed.overflowing:
                    continue
                table = None if session is None else session.table(name)
                if self.config.mirrors:
                    comments = Comments() if session is None else session.comments(name)
                    for staged in stretches(files):
                        changes = plan_stretch_changes(self.dialect, rules, name, staged, table, comments)
                        statements += map(self.dialect.render, changes)
                else:
                    changes = plan_table_changes(self.dialect, rules, name, staged_files(files), table)
                    statements += map(self.dialect.render, changes)
        return statements


def _load_or_defer(table: str, load: Callable[[], TableReceipt]) -> TableReceipt:
    try:
        return load()
    except TransientError as error:
        return TableReceipt(table, 0, unavailable=error)
    except TableRefusedError as error:
        # Only a mirror raises this: its changes must stay in order, so they wait until somebody repairs the table.
        return TableReceipt(
            table, 0, unavailable=TransientError(error.code, error.what, "Fix the table; it is tried again.")
        )


def _loaded_table(mark: Mark) -> LoadedTable:
    table, said = mark.table.partition(STRETCH_SIGN)[0], mark.failures
    return LoadedTable(
        mark.batch, table, mark.rows, failures_in(said), meant_for_in(said), waiting_in(said), waiting_as_in(said)
    )


def parts_by_table(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """The parts of each table, tables in order of their first row."""
    tables: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        tables.setdefault(part.table, []).append(part)
    return tables
