"""Writes one change in one transaction: the same on every engine.

Statements whose answers are not needed before the next one are sent together: many bundles are small, and what they
cost is the way to the database and back.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import orjson
import pyarrow as pa

from penstock import faults
from penstock.conflation.fold_rows import Said
from penstock.destinations.state.store import source_rows
from penstock.destinations.state.store.bookkeeping import OWN_TABLES, Bookkeeping, KindIs
from penstock.destinations.state.store.claim_version import add_version, may_change, move_version, questions
from penstock.destinations.state.store.contract import SOURCE, RowsChanged, StateChange, StateSession
from penstock.destinations.state.store.diff_statements import SAID, DiffStatements
from penstock.destinations.state.store.fit_state import FittedState, StateTable, fit_state, plan_table
from penstock.destinations.state.store.noted_positions import NotedPositions
from penstock.destinations.state.store.state_connection import StateConnection, Statement, Value
from penstock.errors import PenstockError, RefusedError, TransientError

NUL = "\0"
_MOST_TRIES = 5
"""How often a table may turn out to be another than the one that was just brought in line."""


class SqlStateSession(StateSession):
    def __init__(self, connection: StateConnection, noted: NotedPositions) -> None:
        self._connection = connection
        self._noted = noted

    def write(self, change: StateChange) -> RowsChanged:
        if change.table in OWN_TABLES:
            raise PenstockError(
                "PEN-DST-142", f"the table '{change.table}' is one of Penstock's own.", "Give the kind another `table`."
            )
        if NUL in change.source and not self._connection.dialect.takes_nul:
            raise RefusedError(
                "PEN-DST-146",
                f"the source '{change.source.replace(NUL, '?')}' has U+0000 in its name, which no text can hold here.",
                "Let the source report under another name.",
            )
        for _ in range(_MOST_TRIES):
            try:
                with self._connection.transaction(about_rows=True):
                    written = self._write(change)
                    faults.reach("destination.writing")
            except _TableLacks:
                self._connection.alter(
                    change.table,
                    lambda found: plan_table(change.table, change.key, change.rows, found, self._connection.dialect),
                )
            except _Overtaken:
                # Looked at once more, the version of the other is there.
                continue
            else:
                faults.reach("destination.committed")
                self._noted.add(change.route, change.positions)
                return written
        raise TransientError(
            "PEN-DST-143",
            f"the table '{change.table}', or what it has of source '{change.source}', is being changed by others all"
            " the time.",
            "Nothing to do: it is tried again.",
        )

    def _write(self, change: StateChange) -> RowsChanged:
        connection, books = self._connection, self._connection.books
        answers, found = connection.ask_with_table(questions(books, change), change.table)
        said = may_change(change, answers)
        positions = note_positions(books, change.route, self._noted.grown(change.route, change.positions))
        if said is None:
            connection.ask(*positions)
            return RowsChanged(already=True)
        fitted = self._fit(change, found)
        if not answers[0].rows and not add_version(connection, change):
            raise _Overtaken
        incarnation, generation = change.version
        given: dict[str, Value] = {
            "source": change.source,
            "kind": change.kind,
            "incarnation": incarnation,
            "generation": generation,
        }
        appends = found is not None and fitted is not None and connection.gains_by_append(fitted.rows.num_rows)
        moved = [move_version(books, change)] if answers[0].rows else []
        empty = [source_rows.select_any(connection.dialect, found, change.source)] if appends and found else []
        revived, *there = connection.ask(
            *moved,
            Statement(books.unpark, given),
            Statement(books.revive_source, {"source": change.source}),
            *empty,
        )[len(moved) + 1 :]
        if revived.rows or said is KindIs.INACTIVE:
            source_rows.unmark_rows(connection, change.source)
        if found is None or fitted is None:
            connection.ask(*positions)
            return RowsChanged(compared=len(change.rows.said))
        if there and not there[0].rows:
            rows = fitted.puts
            self._append(change, found, rows)
            connection.ask(*positions)
            return RowsChanged(compared=len(change.rows.said), inserted=rows.num_rows)
        return self._write_differences(change, found, fitted, positions)

    def _fit(self, change: StateChange, found: StateTable | None) -> FittedState | None:
        """The rows as the table holds them; ``None`` if there is no table, and none is needed."""
        if found is None:
            if np.any(change.rows.said == Said.PUT):
                raise _TableLacks
            return None
        fitted = fit_state(change.key, change.rows, found, self._connection.dialect)
        if fitted is None:
            raise _TableLacks
        return fitted

    def _append(self, change: StateChange, found: StateTable, rows: pa.Table) -> None:
        if rows.num_rows:
            name = found.table.columns[SOURCE].name
            whose = pa.repeat(pa.scalar(change.source), rows.num_rows)
            keys = [found.table.columns[key].name for key in change.key]
            self._connection.append(found.table, rows.add_column(0, name, whose), keys)

    def _write_differences(
        self, change: StateChange, found: StateTable, fitted: FittedState, positions: list[Statement]
    ) -> RowsChanged:
        if not fitted.rows.num_rows:
            gone = [source_rows.delete(self._connection.dialect, found, change.source)] if change.rows.prunes else []
            return RowsChanged(
                deleted=sum(answer.affected for answer in self._connection.ask(*gone, *positions)[: len(gone)])
            )
        mixed = not change.rows.only_puts
        rows = fitted.rows.append_column(SAID, pa.array(fitted.said, pa.int16())) if mixed else fitted.rows
        staged = self._connection.stage(found.table, rows)
        statements = DiffStatements(
            self._connection.dialect,
            found.table,
            change.key,
            fitted.rows.column_names,
            found.lacking(change.rows.table.column_names),
            staged.relation,
            mixed,
            self._connection.comparable,
        )
        # What goes, goes first: it may have what others must be unique in.
        texts = (
            statements.delete_unlisted() if change.rows.prunes else statements.delete_named(),
            statements.update(),
            statements.insert(),
        )
        given = {**staged.values, "source": change.source}
        asked = [Statement(text, given) for text in texts if text is not None]
        checked = [Statement(statements.select_ignored(change.rows.prunes), given)] if found.guarded else []
        answers = iter(self._connection.ask(*asked, *checked, *positions))
        deleted, updated, inserted = (0 if text is None else next(answers).affected for text in texts)
        if checked and next(answers).rows:
            raise RefusedError(
                "PEN-DST-145",
                f"the table '{change.table}' ignores rows: a trigger or a policy of it keeps one from being inserted or"
                " deleted. Nothing of the bundle was written.",
                "Let the table's owner allow it; the bundle is tried again.",
            )
        return RowsChanged(len(change.rows.said), inserted, updated, deleted)


class _TableLacks(Exception):
    """The table must be changed before the rows go into it."""


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
