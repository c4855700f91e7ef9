"""What all SQL destinations are: a config, a dialect, and a session per batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from penstock.destinations.sql.loading import from_text, load_table
from penstock.destinations.sql.mirror.loading import mirror_table, schema_changes
from penstock.destinations.sql.mirror.naming import MirrorNames
from penstock.destinations.sql.mirror.staged import stretches
from penstock.destinations.sql.mirror.staging import MirrorStager
from penstock.destinations.sql.naming import TableNames
from penstock.destinations.sql.patching import TableRules, needed
from penstock.destinations.sql.session import Comments, Mark, Session
from penstock.destinations.sql.staged import staged_files
from penstock.destinations.sql.staging import TypedStager
from penstock.destinations.sql.whole import write_whole
from penstock.errors import TransientError

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
        if self.config.mirrors:
            mirrored = MirrorNames(self.config.table_template, self.dialect.max_name)
            return MirrorStager(directory, mirrored, casts)
        names = TableNames(self.config.table_template, self.dialect.max_name)
        return TypedStager(
            directory, names, casts, self.dialect.max_name, infer_timestamps=self.config.infer_timestamps
        )

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        if not parts:
            return Receipt()
        rules = TableRules.of(self.config)
        receipts = []
        with self.session() as session:
            for table, files in by_table(parts).items():
                try:
                    load = mirror_table if self.config.mirrors else load_table
                    receipts.append(load(session, rules, batch, table, files, book))
                except TransientError as error:
                    receipts.append(TableReceipt(table, 0, away=error))
        return Receipt(receipts)

    def write_whole(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        return write_whole(self, batch, parts, book)

    def newest_loads(self) -> Sequence[Loaded]:
        with self.looking() as session:
            return [] if session is None else [_loaded(mark) for mark in session.newest_marks()]

    def loads(self, scope: str, route: str) -> Sequence[Loaded]:
        with self.looking() as session:
            found = [] if session is None else [_loaded(mark) for mark in session.marks(scope, route)]
        if not self.config.mirrors:
            return found
        # A table's changes may lie in several stretches with a mark each. Of all batches but the newest every one was
        # applied; the newest is to be applied again, which changes nothing where it was.
        newest = max((each.batch.number for each in found), default=0)
        return [each for each in found if each.batch.number < newest]

    def plan(self, parts: Sequence[Part], offline: bool = False) -> Sequence[str]:
        rules = TableRules.of(self.config)
        statements: list[str] = []
        with nullcontext() if offline else self.looking() as session:
            for name, files in by_table(parts).items():
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


def _loaded(mark: Mark) -> Loaded:
    # A mirror marks the further stretches of a table's changes by a number behind such a sign.
    return Loaded(mark.batch, mark.table.partition("#")[0], mark.rows, from_text(mark.failures))


def by_table(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """The parts of each table, tables in order of their first row."""
    tables: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        tables.setdefault(part.table, []).append(part)
    return tables
