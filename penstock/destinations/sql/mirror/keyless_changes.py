"""The changes of a table without a key: a row is identified by its values, and equal rows cannot be told apart.

So an update removes one row and adds another, and in the end it only matters how often each row comes and goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.sql.load.fold_by_key import key_codes
from penstock.destinations.sql.mirror.fit_values import MirrorFitting
from penstock.destinations.sql.mirror.fold_changes import NONE, Kinds, Numbers, count, is_put, without_row
from penstock.destinations.sql.mirror.keyed_changes import ROWS_AT_A_TIME
from penstock.destinations.sql.mirror.row_changes import NUMBER, TIMES, Changes
from penstock.destinations.sql.mirror.stage.change_stager import NULL_TEXT
from penstock.destinations.sql.mirror.stage.staged_changes import Stretch
from penstock.flatten.unmapped.unmapped_column import UNMAPPED


@dataclass(frozen=True)
class KeylessRows:
    """A stretch of changes and the table that they go to."""

    stretch: Stretch
    fitting: MirrorFitting

    def changes(self, change: Kinds, start: int, end: int) -> Changes:
        """The changes in ``[start, end)``; ``change`` says what each change of the stretch does."""
        counted = count(change[start:end], self._new[start:end], self._old[start:end])
        table = self.fitting.table
        columns = (*self.fitting.columns, *((UNMAPPED,) if UNMAPPED in table.columns else ()))
        gone = self._fitted(self._example[counted.goes]).append_column(TIMES, pa.array(counted.times))
        gone = gone.append_column(NUMBER, pa.array(np.arange(len(counted.goes))))
        comes = counted.comes + start

        def come() -> Iterator[pa.RecordBatch]:
            for first in range(0, len(comes), ROWS_AT_A_TIME):
                yield from self._fitted(comes[first : first + ROWS_AT_A_TIME]).to_batches()

        return Changes(table, (), counted.truncated, gone, columns, len(comes), come)

    def without_row(self, change: Kinds, start: int, end: int, lacking: Mapping[int, int]) -> list[int]:
        """The changes in ``[start, end)`` that find no row to take away. ``lacking`` is by the ``NUMBER`` of those that
        ``changes`` lets go."""
        goes = count(change[start:end], self._new[start:end], self._old[start:end]).goes.tolist()
        rows = {goes[number]: missing for number, missing in lacking.items()}
        found = without_row(change[start:end], self._new[start:end], self._old[start:end], rows)
        return [start + place for place in found]

    @cached_property
    def has_old(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which changes carry the old values of their row."""
        found = np.zeros(len(self.stretch), np.bool_)
        for column in self.stretch.header.columns:
            old = self.stretch.old(column.name)
            if old is not None:
                found |= old.is_valid().to_numpy()
        return found

    @cached_property
    def _values(self) -> Mapping[str, pa.ChunkedArray]:
        """The rows of all changes, then the rows that they replaced. Columns that an update does not carry are
        unchanged."""
        found = {}
        for name, new in self.stretch.carried.items():
            old = self.stretch.old(name)
            before = old if old is not None else pa.chunked_array([pa.nulls(len(new), new.type)])
            now = pc.coalesce(new, before) if old is not None else new
            whole = pa.chunked_array([*now.chunks, *before.chunks], new.type)
            found[name] = pc.fill_null(whole, NULL_TEXT)
        return found

    @cached_property
    def _codes(self) -> Numbers:
        columns = list(self._values.values())
        return key_codes(columns) if columns else np.zeros(2 * len(self.stretch), np.int64)

    @property
    def _new(self) -> Numbers:
        return self._codes[: len(self.stretch)]

    @cached_property
    def _old(self) -> Numbers:
        replaced = self.has_old & is_put(self.stretch.change)
        return np.where(replaced, self._codes[len(self.stretch) :], NONE)

    @cached_property
    def _example(self) -> Numbers:
        """A place in ``_values`` for each distinct row."""
        found = np.zeros(int(self._codes.max(initial=NONE)) + 1, np.int64)
        found[self._codes] = np.arange(len(self._codes))
        return found

    def _fitted(self, places: Numbers) -> pa.Table:
        values = {name: rows.take(pa.array(places)).combine_chunks() for name, rows in self._values.items()}
        return pa.table(self.fitting.fit_rows(len(places), values))
