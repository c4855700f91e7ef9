"""Writes one change in one transaction, or several of one kind together: the same on every engine.

Statements whose answers are not needed before the next one are sent together: many bundles are small, and what they
cost is the way to the database and back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import orjson
import pyarrow as pa

from penstock import faults
from penstock.conflation.fold_rows import Said
from penstock.destinations.state.store import source_rows
from penstock.destinations.state.store.bookkeeping import Bookkeeping, KindIs
from penstock.destinations.state.store.claim_version import (
    add_versions,
    given_versions,
    may_change,
    move_versions,
    questions,
    read_answers,
)
from penstock.destinations.state.store.contract import SOURCE, RowsChanged, StateChange, StateRows, StateSession
from penstock.destinations.state.store.diff_statements import SAID, DiffStatements
from penstock.destinations.state.store.fit_state import FittedState, StateTable, fit_state, plan_table
from penstock.destinations.state.store.ignored_rows import difference_checks, find_kept, ignored
from penstock.destinations.state.store.noted_positions import NotedPositions
from penstock.destinations.state.store.reserved_tables import OWN_TABLES
from penstock.destinations.state.store.state_connection import Answer, StateConnection, Statement, Value
from penstock.errors import PenstockError, RefusedError, TransientError

NUL = "\0"
_MOST_TRIES = 5
"""How often a table may turn out to be another than the one that was just brought in line."""


class SqlStateSession(StateSession):
    def __init__(self, connection: StateConnection, noted: NotedPositions) -> None:
        self._connection = connection
        self._noted = noted

    def write(self, change: StateChange) -> RowsChanged:
        return self._write_all([change])[0]

    def write_together(self, changes: Sequence[StateChange], patience: float) -> Sequence[RowsChanged]:
        return self._write_all(changes, self._connection.limit_statements(patience))

    def _write_all(self, changes: Sequence[StateChange], first: Sequence[Statement] = ()) -> Sequence[RowsChanged]:
        for change in changes:
            _check_names(change, self._connection)
        for _ in range(_MOST_TRIES):
            try:
                with self._connection.transaction(about_rows=True):
                    written = self._write(changes, first)
                    faults.reach("destination.writing")
            except _TableLacks as lacks:
                self._alter(changes[0], lacks.rows)
            except _Overtaken:
                # Looked at once more, the version of the other is there.
                continue
            else:
                faults.reach("destination.committed")
                for change in changes:
                    self._noted.add(change.route, change.positions)
                return written
        raise TransientError(
            "PEN-DST-143",
            f"the table '{changes[0].table}', or what it has of source '{changes[0].source}', is being changed by"
            " others all the time.",
            "Nothing to do: it is tried again.",
        )

    def _alter(self, change: StateChange, rows: StateRows) -> None:
        """Bring the table of a change in line with rows."""
        dialect = self._connection.dialect
        self._connection.alter(change.table, lambda found: plan_table(change.table, change.key, rows, found, dialect))

    def _write(self, changes: Sequence[StateChange], first: Sequence[Statement]) -> Sequence[RowsChanged]:
        connection, books = self._connection, self._connection.books
        asked = [*first, *questions(books, changes)]
        answers, found = connection.ask_with_table(asked, changes[0].table)
        versions, *others = read_answers(answers[len(first) :])
        rested_on = others[0] if others else {}
        due = [change for change in changes if may_change(change, versions, rested_on)]
        positions = self._positions_of(changes)
        if not due:
            connection.ask(*positions)
            return [RowsChanged(already=True)] * len(changes)
        rows = _rows_of(due)
        fitted = self._fit(due, rows, found)
        self._claim(due, versions)
        if found is None or fitted is None:
            connection.ask(*positions)
            done: Mapping[str, RowsChanged] = {each.source: RowsChanged(len(each.rows.said)) for each in due}
        elif not found.guarded and self._is_empty(due, found, fitted):
            self._append(due[0], found, fitted.puts)
            connection.ask(*positions)
            done = {due[0].source: RowsChanged(len(rows.said), inserted=fitted.puts.num_rows)}
        elif not fitted.rows.num_rows:
            done = self._delete_all(due, rows.prunes, found, positions)
        else:
            done = self._write_differences(due, rows, found, fitted, positions)
        return [done.get(change.source, RowsChanged(already=True)) for change in changes]

    def _positions_of(self, changes: Sequence[StateChange]) -> list[Statement]:
        """What notes how far the routes are once all of this is written."""
        furthest: dict[str, dict[int, int]] = {}
        for change in changes:
            there = furthest.setdefault(change.route, {})
            for partition, offset in change.positions.items():
                there[partition] = max(offset, there.get(partition, offset))
        return [
            statement
            for route, positions in sorted(furthest.items())
            for statement in note_positions(self._connection.books, route, self._noted.grown(route, positions))
        ]

    def _fit(self, changes: Sequence[StateChange], rows: StateRows, found: StateTable | None) -> FittedState | None:
        """The rows as the table holds them; ``None`` if there is no table, and none is needed."""
        if found is None:
            if np.any(rows.said == Said.PUT):
                raise _TableLacks(rows)
            return None
        whose = [_sources_of(changes)] if len(changes) > 1 else []
        fitted = fit_state(changes[0].key, rows, found, self._connection.dialect, whose)
        if fitted is None:
            raise _TableLacks(rows)
        return fitted

    def _claim(self, changes: Sequence[StateChange], versions: Mapping[str, tuple[object, KindIs]]) -> None:
        """Move the versions on, and bring sources back that were silent."""
        connection, books = self._connection, self._connection.books
        new = [change for change in changes if change.source not in versions]
        old = [change for change in changes if change.source in versions]
        if new and connection.ask(add_versions(books, new))[0].affected < len(new):
            raise _Overtaken
        given = given_versions(changes)
        *_, revived = connection.ask(
            *([move_versions(books, old)] if old else []),
            Statement(books.unpark, given),
            Statement(books.revive_sources, {"sources": given["sources"]}),
        )
        silent = {change.source for change in old if versions[change.source][1] is KindIs.INACTIVE}
        for source in sorted(silent | {str(source) for (source,) in revived.rows}):
            source_rows.unmark_rows(connection, source)

    def _is_empty(self, changes: Sequence[StateChange], found: StateTable, fitted: FittedState) -> bool:
        """Whether a source is known to have no rows, so that its own need not be compared with any."""
        if len(changes) > 1 or not self._connection.gains_by_append(fitted.rows.num_rows):
            return False
        any_row = source_rows.select_any(self._connection.dialect, found, changes[0].source)
        return not self._connection.ask(any_row)[0].rows

    def _append(self, change: StateChange, found: StateTable, rows: pa.Table) -> None:
        if rows.num_rows:
            whose = pa.repeat(pa.scalar(change.source), rows.num_rows)
            keys = [found.table.columns[key].name for key in change.key]
            self._connection.append(found.table, _with_source(rows, found, whose), keys)

    def _delete_all(
        self, changes: Sequence[StateChange], prunes: bool, found: StateTable, positions: Sequence[Statement]
    ) -> Mapping[str, RowsChanged]:
        """What changes without a row do to the rows that are there."""
        if not prunes:
            self._connection.ask(*positions)
            return {each.source: RowsChanged() for each in changes}
        gone = [source_rows.delete(self._connection.dialect, found, each.source) for each in changes]
        answers = self._connection.ask(*gone, *positions)[: len(gone)]
        if find_kept(self._connection, found, [each.source for each in changes]) is not None:
            raise ignored(found.name)
        return {
            each.source: RowsChanged(deleted=answer.affected) for each, answer in zip(changes, answers, strict=True)
        }

    def _write_differences(
        self,
        changes: Sequence[StateChange],
        rows: StateRows,
        found: StateTable,
        fitted: FittedState,
        positions: Sequence[Statement],
    ) -> Mapping[str, RowsChanged]:
        connection, several = self._connection, len(changes) > 1
        mixed = not rows.only_puts
        staged_rows = fitted.rows.append_column(SAID, pa.array(fitted.said, pa.int16())) if mixed else fitted.rows
        if several:
            staged_rows = _with_source(staged_rows, found, _sources_of(changes))
        staged = connection.stage(found.table, staged_rows)
        statements = DiffStatements(
            connection.dialect,
            found.table,
            changes[0].key,
            fitted.rows.column_names,
            found.lacking(rows.table.column_names),
            staged.relation,
            mixed,
            several,
            connection.comparable,
        )
        # What goes, goes first: it may have what others must be unique in.
        texts = (
            statements.delete_unlisted() if rows.prunes else statements.delete_named(),
            statements.update(),
            statements.insert(),
        )
        sources = [each.source for each in changes]
        whose: dict[str, Value] = {"sources": sources} if several else {"source": sources[0]}
        given = {**staged.values, **whose}
        asked = [Statement(text, given) for text in texts if text is not None]
        checks = difference_checks(found, statements, rows.prunes, given)
        # All rows of the source are read anyway.
        planned = connection.forbid_nested_loops(staged_rows.num_rows) if rows.prunes and not several else ()
        answers = iter(connection.ask(*planned, *checks.before, *asked, *checks.after, *positions)[len(planned) :])
        before = [next(answers) for _ in checks.before]
        deleted, updated, inserted = (
            Counter[str]() if text is None else _count(sources, next(answers)) for text in texts
        )
        checks.check(before, updated.total(), [next(answers) for _ in checks.after])
        return {
            each.source: RowsChanged(
                len(each.rows.said), inserted[each.source], updated[each.source], deleted[each.source]
            )
            for each in changes
        }


def _check_names(change: StateChange, connection: StateConnection) -> None:
    if change.table in OWN_TABLES:
        raise PenstockError(
            "PEN-DST-142", f"the table '{change.table}' is one of Penstock's own.", "Give the kind another `table`."
        )
    if NUL in change.source and not connection.dialect.takes_nul:
        raise RefusedError(
            "PEN-DST-146",
            f"the source '{change.source.replace(NUL, '?')}' has U+0000 in its name, which no text can hold here.",
            "Let the source report under another name.",
        )


def _rows_of(changes: Sequence[StateChange]) -> StateRows:
    """The rows of all changes, one below the other."""
    if len(changes) == 1:
        return changes[0].rows
    table = pa.concat_tables([change.rows.table for change in changes]).combine_chunks()
    said = np.concatenate([change.rows.said for change in changes])
    return StateRows(table, changes[0].rows.columns, said, changes[0].rows.prunes)


def _sources_of(changes: Sequence[StateChange]) -> pa.Array:
    """Whose each row is."""
    whose = np.repeat(np.arange(len(changes)), [len(change.rows.said) for change in changes])
    return pa.array([change.source for change in changes], pa.string()).take(pa.array(whose))


def _with_source(rows: pa.Table, found: StateTable, sources: pa.Array) -> pa.Table:
    return rows.add_column(0, found.table.columns[SOURCE].name, sources)


def _count(sources: Sequence[str], answer: Answer) -> Counter[str]:
    """How many rows of each source a statement has changed."""
    if len(sources) == 1:
        return Counter({sources[0]: answer.affected})
    return Counter(str(source) for (source,) in answer.rows)


class _TableLacks(Exception):
    """The table must be changed before these rows go into it."""

    def __init__(self, rows: StateRows) -> None:
        super().__init__()
        self.rows = rows


class _Overtaken(Exception):
    """Somebody else has written the first bundle of this kind meanwhile."""


def note_positions(books: Bookkeeping, route: str, positions: Mapping[int, int]) -> list[Statement]:
    """Note where a route stands, where it grew. To be run last: all writers of a route share these rows."""
    statements = []
    for partition, offset in sorted(positions.items()):
        payload = orjson.dumps({"partition": partition, "offset": offset}).decode()
        given: dict[str, Value] = {"name": route, "partition": partition, "payload": payload}
        statements.append(Statement(books.move_position, {**given, "offset": offset}))
        statements.append(Statement(books.add_position, given))
    return statements
