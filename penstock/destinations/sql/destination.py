"""What all SQL destinations are: a config, a dialect, and a session per batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from penstock.destinations.contract import (
    UNRECORDED,
    Batch,
    Destination,
    Loaded,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.destinations.sql.config import SqlConfig
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.all_or_nothing import write_whole
from penstock.destinations.sql.load.loader import (
    all_failing,
    from_text,
    load_table,
    meant_for_in,
    waiting_as_in,
    waiting_in,
)
from penstock.destinations.sql.mirror.mirror_loader import mirror_table, schema_changes
from penstock.destinations.sql.mirror.mirror_marks import SIGN, mirrored_loads
from penstock.destinations.sql.mirror.stage.change_stager import MirrorStager
from penstock.destinations.sql.mirror.stage.mirror_names import MirrorNames
from penstock.destinations.sql.mirror.stage.staged_changes import stretches
from penstock.destinations.sql.schema.ownership import (
    NOT_OURS,
    Limits,
    OwnTables,
    Placement,
    not_ours,
    overflow_table,
    remarks,
)
from penstock.destinations.sql.schema.table_patch import TableRules, needed
from penstock.destinations.sql.session import Comments, Mark, Session
from penstock.destinations.sql.stage.allowed_tables import AllowedTables
from penstock.destinations.sql.stage.staged_rows import MEANT_FOR, staged_files
from penstock.destinations.sql.stage.stager import TypedStager
from penstock.destinations.sql.stage.table_name import TableNames
from penstock.errors import TableRefusedError, TransientError

SqlConfigT = TypeVar("SqlConfigT", bound=SqlConfig)


class SqlDestination(Destination[SqlConfigT]):
    """Tables are loaded one after the other, each in its own transaction with its own mark: one that cannot be loaded
    now does not keep the others, and is tried again without them."""

    @property
    @abstractmethod
    def dialect(self) -> Dialect: ...

    @abstractmethod
    def session(self) -> AbstractContextManager[Session]:
        """A connection for one batch; raises ``TransientError`` if there is none to be had."""

    @contextmanager
    def looking(self) -> Iterator[Session | None]:
        """A session to look through, that makes nothing at the target, not even what a first batch finds or makes.
        ``None``: there is nothing yet to look at."""
        with self.session() as session:
            yield session

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        for asked in casts.values():
            self.dialect.cast_type(asked)  # a type that the engine does not have stops the task, before any record
        allowed = AllowedTables.of(self.config.tables)
        if self.config.mirrors:
            mirrored = MirrorNames(self.config.table_template, self.dialect.max_name, allowed)
            return MirrorStager(directory, mirrored, casts)
        names = TableNames(self.config.table_template, self.dialect.max_name, allowed)
        return TypedStager(
            directory, names, casts, self.dialect.max_name, infer_timestamps=self.config.infer_timestamps
        )

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        if not parts:
            return Receipt()
        rules, tables = TableRules.of(self.config), by_table(parts)
        load = mirror_table if self.config.mirrors else load_table
        with self.session() as session:
            placed = self._own_tables.place(session, self._limits, batch, tables, book)
            receipts = []
            for table, files in tables.items():
                if table in placed.overflowing:
                    continue
                if table in placed.foreign:
                    receipts.append(self._not_ours(table, files))
                    continue
                receipts.append(_tried(table, partial(load, session, rules, batch, table, files, book)))
            if placed.overflowing:
                beyond = [part for part in parts if part.table in placed.overflowing]
                receipts.append(self._overflow(session, rules, batch, beyond, book))
        return Receipt(receipts)

    @cached_property
    def _own_tables(self) -> OwnTables:
        return OwnTables()

    @property
    def _limits(self) -> Limits:
        return Limits(frozenset(self.config.adopt), None if self.config.mirrors else self.config.max_tables)

    def _not_ours(self, table: str, parts: Sequence[Part]) -> TableReceipt:
        if self.config.mirrors:
            # Changes that failed would come too late once others were applied without them: they wait.
            fix = "Or move that table away; the changes wait until then."
            return TableReceipt(table, 0, away=TransientError("PEN-DST-092", f"{not_ours(table)}.", fix))
        return TableReceipt(table, 0, all_failing(staged_files(parts), NOT_OURS, not_ours(table)))

    def _overflow(
        self, session: Session, rules: TableRules, batch: Batch, parts: Sequence[Part], book: TableBook
    ) -> TableReceipt:
        """Rows of several tables in one, told apart by the table that they were meant for, also in its key."""
        into = overflow_table(batch.route, self.dialect.max_name)
        apart = replace(rules, primary_key=(MEANT_FOR, *rules.primary_key) if rules.primary_key else ())
        found = _tried(into, lambda: load_table(session, apart, batch, into, parts, book, say_table=True))
        return replace(found, meant_for=tuple(dict.fromkeys(part.table for part in parts)))

    def write_whole(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        return write_whole(self, batch, parts, book)

    def newest_loads(self) -> Sequence[Loaded]:
        with self.looking() as session:
            return [] if session is None else [_loaded(mark) for mark in session.newest_marks()]

    def loads(self, scope: str, route: str) -> Sequence[Loaded]:
        with self.looking() as session:
            marks = [] if session is None else session.marks(scope, route)
        return mirrored_loads(marks) if self.config.mirrors else [_loaded(mark) for mark in marks]

    def plan(self, parts: Sequence[Part], offline: bool = False, route: str = "") -> Sequence[str]:
        rules, tables = TableRules.of(self.config), by_table(parts)
        statements: list[str] = []
        with nullcontext() if offline else self.looking() as session:
            placed = Placement() if session is None else self._own_tables.look(session, self._limits, route, [*tables])
            statements += remarks(placed, route, self.config.max_tables, self.dialect.max_name)
            for name, files in tables.items():
                if name in placed.foreign | placed.overflowing:
                    continue
                table = None if session is None else session.table(name)
                if self.config.mirrors:
                    comments = Comments() if session is None else session.comments(name)
                    for staged in stretches(files):
                        changes = schema_changes(self.dialect, rules, name, staged, table, comments)
                        statements += map(self.dialect.render, changes)
                else:
                    changes = needed(self.dialect, rules, name, staged_files(files), table)
                    statements += map(self.dialect.render, changes)
        return statements


def _tried(table: str, load: Callable[[], TableReceipt]) -> TableReceipt:
    try:
        return load()
    except TransientError as error:
        return TableReceipt(table, 0, away=error)
    except TableRefusedError as error:
        # Of a mirror: its changes are in order, so they wait until somebody has mended the table.
        return TableReceipt(table, 0, away=TransientError(error.code, error.what, "Mend the table; it is tried again."))


def _loaded(mark: Mark) -> Loaded:
    table, said = mark.table.partition(SIGN)[0], mark.failures
    return Loaded(
        mark.batch, table, mark.rows, from_text(said), meant_for_in(said), waiting_in(said), waiting_as_in(said)
    )


def by_table(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """The parts of each table, tables in order of their first row."""
    tables: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        tables.setdefault(part.table, []).append(part)
    return tables
