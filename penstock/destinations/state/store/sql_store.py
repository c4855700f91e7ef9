"""What a store does besides writing changes: the same on every engine."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from itertools import groupby
from typing import cast

from penstock.conflation.batch_plan import Known
from penstock.conflation.bundle import Place, Processed
from penstock.conflation.unmet_dependency import Parked
from penstock.conflation.version import Version
from penstock.destinations.sql.schema.schema_operations import AddColumn, TypedColumn
from penstock.destinations.state.store import source_rows
from penstock.destinations.state.store.bookkeeping import KindIs
from penstock.destinations.state.store.claim_version import read_version
from penstock.destinations.state.store.contract import (
    INACTIVE_SINCE,
    KindState,
    OnInactive,
    SourceState,
    StateSession,
    StateStore,
)
from penstock.destinations.state.store.fit_state import StateTable, TablePlan
from penstock.destinations.state.store.ignored_rows import check_deleted
from penstock.destinations.state.store.noted_positions import NotedPositions
from penstock.destinations.state.store.state_connection import StateConnection, Statement, Value
from penstock.destinations.state.store.write_state import NUL, SqlStateSession, note_positions
from penstock.errors import TableRefusedError
from penstock.flatten.inner_types import InnerType

_log = logging.getLogger("penstock")


class SqlStateStore(StateStore):
    """Nothing is known of a source whose name has U+0000: not every engine can even be asked for it."""

    def __init__(self) -> None:
        self._noted = NotedPositions()

    @abstractmethod
    def _writer(self) -> AbstractContextManager[StateConnection]:
        """Lend a connection to a writer."""

    @abstractmethod
    def _own(self) -> AbstractContextManager[StateConnection]:
        """Lend the connection for everything else, also while all writers have theirs."""

    @contextmanager
    def session(self) -> Iterator[StateSession]:
        with self._writer() as connection:
            yield SqlStateSession(connection, self._noted)

    def known(self, sources: Collection[str]) -> Known:
        asked = [source for source in sources if NUL not in source]
        given: dict[str, Value] = {"sources": asked}
        with self._own() as connection, connection.transaction():
            books = connection.books
            versions, given_up = connection.ask(
                Statement(books.versions_of_sources, given), Statement(books.parked_of_sources, given)
            )
        processed, parked = {}, {}
        for source, kind, incarnation, generation, state, *where in versions.rows:
            there, said = read_version((incarnation, generation, state))
            is_there = said is not KindIs.DELETED
            place = Place(*map(_int, where)) if is_there else None
            processed[str(source), str(kind)] = Processed(there, place, is_there)
        for source, kind, incarnation, generation, reason in given_up.rows:
            parked[str(source), str(kind)] = Parked(Version(_int(incarnation), _int(generation)), str(reason))
        return Known(processed, parked)

    def note_parked(self, source: str, kind: str, parked: Parked) -> None:
        if NUL in source:
            return
        incarnation, generation = parked.version
        with self._own() as connection, connection.transaction():
            connection.run(
                connection.books.park,
                source=source,
                kind=kind,
                incarnation=incarnation,
                generation=generation,
                reason=parked.why.replace(NUL, ""),
            )

    def sources(self) -> Sequence[SourceState]:
        with self._own() as connection, connection.transaction():
            rows = connection.fetch(connection.books.all_versions)
        found = []
        for source, kinds in groupby(rows, key=lambda row: str(row[0])):
            states = list(kinds)
            listed = [
                KindState(str(kind), Version(_int(incarnation), _int(generation)), str(table), cast(datetime, at))
                for _, kind, incarnation, generation, _, table, at in states
            ]
            active = any(state == KindIs.ACTIVE for *_, state, _, _ in states)
            found.append(SourceState(source, active, max(kind.updated_at for kind in listed), listed))
        return found

    def forget(self, source: str) -> int:
        with self._own() as connection, connection.transaction():
            connection.fetch(connection.books.lock_source, source=source)
            tables = list(_tables_of(connection, source))
            gone = [source_rows.delete(connection.dialect, found, source) for found in tables]
            books = [Statement(text, {"source": source}) for text in connection.books.forget]
            answers = connection.ask(*gone, *books)
            check_deleted(connection, tables, source)
        return sum(answer.affected for answer in answers[: len(gone)])

    def note_seen(self, sources: Collection[str]) -> None:
        # In one order: of two who note the same sources, one waits for the other.
        given: dict[str, Value] = {"sources": sorted({source for source in sources if NUL not in source})}
        with self._own() as connection, connection.transaction():
            books = connection.books
            _, revived = connection.ask(Statement(books.note_seen, given), Statement(books.revive_sources, given))
            for source in sorted({str(source) for (source,) in revived.rows}):
                source_rows.unmark_rows(connection, source)

    def clock(self) -> float:
        with self._own() as connection, connection.transaction():
            ((now,),) = connection.fetch("SELECT CAST(extract(epoch FROM now()) AS double precision)")
        return float(cast(float, now))

    def set_inactive(self, silent_for: timedelta, rule: OnInactive) -> Sequence[str]:
        seconds = silent_for.total_seconds()
        with self._own() as connection:
            with connection.transaction():
                silent = connection.fetch(connection.books.silent_sources(one=False), silent_for=seconds)
            return [str(source) for (source,) in silent if _try_to_silence(connection, str(source), seconds, rule)]

    def positions(self, route: str) -> Mapping[int, int]:
        with self._own() as connection, connection.transaction():
            found = connection.fetch(connection.books.positions, name=route)
        return {_int(partition): _int(offset) for partition, offset in found}

    def note_positions(self, route: str, positions: Mapping[int, int]) -> None:
        grown = self._noted.grown(route, positions)
        if grown:
            with self._own() as connection, connection.transaction():
                connection.ask(*note_positions(connection.books, route, grown))
            self._noted.add(route, grown)


def _try_to_silence(connection: StateConnection, source: str, silent_for: float, rule: OnInactive) -> bool:
    """The same as ``_silence``; a source whose rows a table keeps is left as it is, and others go on."""
    try:
        return _silence(connection, source, silent_for, rule)
    except TableRefusedError as error:
        _log.error("source %s has fallen silent and stays active: %s", source, error)
        return False


def _silence(connection: StateConnection, source: str, silent_for: float, rule: OnInactive) -> bool:
    """Make one source inactive, unless it was written meanwhile."""
    books = connection.books
    if rule is OnInactive.MARK:
        with connection.transaction():
            tables = [str(name) for (name,) in connection.fetch(books.tables_of_source, source=source)]
        for name in tables:
            connection.alter(name, lambda found: _with_mark(connection, found))
    with connection.transaction():
        connection.fetch(books.lock_source, source=source)
        if not connection.fetch(books.silent_sources(one=True), source=source, silent_for=silent_for):
            return False
        has_rows = list(_tables_of(connection, source)) if rule is not OnInactive.KEEP else []
        for found in has_rows:
            if rule is OnInactive.DELETE:
                connection.ask(source_rows.delete(connection.dialect, found, source))
            elif INACTIVE_SINCE in found.table.columns:
                connection.ask(source_rows.mark(connection.dialect, found, source))
        if rule is OnInactive.DELETE:
            check_deleted(connection, has_rows, source)
        connection.run(books.set_state(KindIs.DELETED if rule is OnInactive.DELETE else KindIs.INACTIVE), source=source)
    return True


def _with_mark(connection: StateConnection, found: StateTable | None) -> TablePlan:
    if found is None or INACTIVE_SINCE in found.table.columns:
        return TablePlan()
    time = connection.dialect.types[InnerType.TIMESTAMP]
    return TablePlan([AddColumn(found.name, TypedColumn(INACTIVE_SINCE, time))])


def _tables_of(connection: StateConnection, source: str) -> Iterator[StateTable]:
    for (name,) in connection.fetch(connection.books.tables_of_source, source=source):
        found = connection.state_table(str(name))
        if found is not None:
            yield found


def _int(value: object) -> int:
    return int(cast(int, value))
