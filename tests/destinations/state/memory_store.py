"""A store in memory that keeps to the contract strictly, and complains about a destination that does not.

It knows only what the tables must have in the end: of each source and table the objects by their key. Every write is
checked: its unit is written by nobody else at the time, no version goes back, and what it rests on is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.conflation.batch_plan import Known
from penstock.conflation.bundle import Processed
from penstock.conflation.fold_rows import Said
from penstock.conflation.unmet_dependency import Parked
from penstock.destinations.state.config import StateConfig
from penstock.destinations.state.destination import StateDestination
from penstock.destinations.state.store.contract import (
    KindState,
    OnInactive,
    RowsChanged,
    SourceState,
    StateChange,
    StateSession,
    StateStore,
)
from penstock.errors import RefusedError, TransientError

Rows = dict[tuple[Any, ...], dict[str, Any]]


@dataclass
class Database:
    """What is there. ``before_write`` may wait or raise, as a database may."""

    tables: dict[tuple[str, str], Rows] = field(default_factory=dict)
    """By table and source."""
    versions: dict[tuple[str, str], Processed] = field(default_factory=dict)
    parked: dict[tuple[str, str], Parked] = field(default_factory=dict)
    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    written: list[tuple[str, str, str]] = field(default_factory=list)
    """Source, kind and version of every change that was made."""
    changed: list[RowsChanged] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    """How many changes were made in each."""
    inactive: list[str] = field(default_factory=list)
    """Every source that there was, each time that silent ones were looked for."""
    seen: set[str] = field(default_factory=set)
    clock_ahead: float = 0.0
    """Seconds by which its clock was set forward."""
    away: bool = False
    before_write: Callable[[StateChange], None] = lambda change: None
    after_write: Callable[[StateChange], None] = lambda change: None
    writing: set[str] = field(default_factory=set)
    most_sessions: int = 0
    sessions: int = 0
    open_stores: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def position(self, partition: int = 0) -> int:
        """Of the route of ``Bench``."""
        return self.positions.get("state", {}).get(partition, 0)

    @property
    def violations(self) -> list[str]:
        """A write that violates a rule ends the test at once."""
        return []

    def refuse(self, kinds: Collection[str]) -> None:
        """From now on nothing of these kinds is taken."""

        def check(change: StateChange) -> None:
            if change.kind in kinds:
                raise refuse("not this kind.")

        self.before_write = check

    def values(self, table: str, source: str) -> list[str]:
        return [row["v"] for row in self.rows(table, source)]

    def rows(self, table: str, source: str) -> list[dict[str, Any]]:
        return list(self.tables.get((table, source), {}).values())

    def copy(self) -> Callable[[], None]:
        """Copy what it has; what is returned puts the copy in its place."""
        tables, versions, written = dict(self.tables), dict(self.versions), list(self.written)
        positions = {route: dict(each) for route, each in self.positions.items()}

        def put_back() -> None:
            self.tables, self.versions, self.written, self.positions = tables, versions, written, positions

        return put_back

    def check_here(self) -> None:
        if self.away:
            raise TransientError("PEN-TST-001", "the database is away.")


class MemoryDestination(StateDestination):
    def __init__(self, config: StateConfig, database: Database | None = None) -> None:
        super().__init__(config)
        self.database = database or Database()

    def open_database(self, connections: int = 1) -> AbstractContextManager[StateStore]:
        return _open(self.database, connections)


@contextmanager
def _open(database: Database, connections: int) -> Iterator[StateStore]:
    database.check_here()
    database.open_stores += 1
    store = MemoryStore(database, connections)
    try:
        yield store
    finally:
        store.is_closed = True
        database.open_stores -= 1


class MemoryStore(StateStore):
    def __init__(self, database: Database, connections: int) -> None:
        self._database = database
        self._connections = threading.Semaphore(connections)
        self.is_closed = False

    def _check(self) -> None:
        assert not self.is_closed, "used after it was closed"
        self._database.check_here()

    def known(self, sources: Collection[str]) -> Known:
        self._check()
        found = self._database
        with found.lock:
            return Known(
                {key: done for key, done in found.versions.items() if key[0] in sources},
                {key: parked for key, parked in found.parked.items() if key[0] in sources},
            )

    @contextmanager
    def session(self) -> Iterator[StateSession]:
        with self._connections:
            self._check()
            with self._database.lock:
                self._database.sessions += 1
                self._database.most_sessions = max(self._database.sessions, self._database.most_sessions)
            try:
                yield MemorySession(self._database)
            finally:
                with self._database.lock:
                    self._database.sessions -= 1

    def note_parked(self, source: str, kind: str, parked: Parked) -> None:
        self._check()
        self._database.parked[source, kind] = parked

    def sources(self) -> Sequence[SourceState]:
        self._check()
        now = datetime.now(UTC)
        names = sorted({source for source, _ in self._database.versions})
        return [
            SourceState(
                name,
                True,
                now,
                [
                    KindState(kind, done.version, kind, now)
                    for (source, kind), done in sorted(self._database.versions.items())
                    if source == name
                ],
            )
            for name in names
        ]

    def forget(self, source: str) -> int:
        self._check()
        raise NotImplementedError

    def note_seen(self, sources: Collection[str]) -> None:
        self._check()
        self._database.seen.update(sources)

    def clock(self) -> float:
        self._check()
        return time.time() + self._database.clock_ahead

    def set_inactive(self, silent_for: timedelta, rule: OnInactive) -> Sequence[str]:
        self._check()
        self._database.inactive += sorted({source for source, _ in self._database.versions})
        return []

    def positions(self, route: str) -> Mapping[int, int]:
        self._check()
        return dict(self._database.positions.get(route, {}))

    def note_positions(self, route: str, positions: Mapping[int, int]) -> None:
        self._check()
        _note(self._database, route, positions)


class MemorySession(StateSession):
    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, change: StateChange) -> RowsChanged:
        return self.write_together([change], 60.0)[0]

    def write_together(self, changes: Sequence[StateChange], patience: float) -> Sequence[RowsChanged]:
        found, sources = self._database, {change.source for change in changes}
        assert len({change.kind for change in changes}) == 1, "changes of several kinds"
        assert len(sources) == len(changes), "several changes of one source"
        with found.lock:
            assert not sources & found.writing, "two writers of one source at a time"
            found.writing |= sources
        try:
            for change in changes:
                found.before_write(change)
                found.check_here()
            with found.lock:
                found.transactions.append(len(changes))
                return [self._change(change) for change in changes]
        finally:
            with found.lock:
                found.writing -= sources
            for change in changes:
                found.after_write(change)

    def _change(self, change: StateChange) -> RowsChanged:
        found, key = self._database, (change.source, change.kind)
        there = found.versions.get(key)
        if there is not None and there.version >= change.version:
            return RowsChanged(already=True)
        assert not change.adds_up or (there.version if there else None) == change.previous, "a pack follows another"
        if change.rests_on is not None:
            base = found.versions.get((change.source, change.rests_on.kind))
            assert base is not None, "a dependency was violated"
            assert base.version == change.rests_on.version, "a dependency was violated"
        rows = dict(found.tables.get((change.table, change.source), {}))
        given: Rows = {}
        gone = set()
        for row, said in zip(change.rows.table.to_pylist(), change.rows.said.tolist(), strict=True):
            name = tuple(row[column] for column in change.key)
            if said == Said.PUT:
                given[name] = row
            elif said == Said.DELETE:
                gone.add(name)
            else:
                given.setdefault(name, rows.get(name, row))
        if change.rows.prunes:
            gone |= rows.keys() - given.keys()
        changed = RowsChanged(
            len(change.rows.table),
            len(given.keys() - rows.keys()),
            sum(rows[name] != row for name, row in given.items() if name in rows),
            len(gone & rows.keys()),
        )
        rows = {name: row for name, row in {**rows, **given}.items() if name not in gone}
        found.tables[change.table, change.source] = rows
        found.versions[key] = Processed(change.version, change.place)
        found.parked.pop(key, None)
        found.written.append((change.source, change.kind, str(change.version)))
        found.changed.append(changed)
        _note(found, change.route, change.positions)
        return changed


def _note(database: Database, route: str, positions: Mapping[int, int]) -> None:
    there = database.positions.setdefault(route, {})
    for partition, position in positions.items():
        there[partition] = max(position, there.get(partition, 0))


def refuse(what: str) -> RefusedError:
    return RefusedError("PEN-TST-002", what)
