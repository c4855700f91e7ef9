"""The changes of a table with a key: which rows go, which come, and the values of those that come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.destinations.sql.load.fold_by_key import key_codes
from penstock.destinations.sql.mirror.fit_values import MirrorFitting, without_nulls
from penstock.destinations.sql.mirror.fold_changes import NONE, Bools, Change, Folded, Kinds, Numbers, fold
from penstock.destinations.sql.mirror.row_changes import GAPS, ORIGIN, Changes
from penstock.destinations.sql.mirror.stage.staged_changes import Stretch
from penstock.flatten.fit_column import plain_text
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

ROWS_AT_A_TIME = 65_536


@dataclass(frozen=True)
class KeyedRows:
    """A stretch of changes and the table that they go to. ``whole``: rows must have all columns of the table."""

    stretch: Stretch
    fitting: MirrorFitting
    whole: bool

    def changes(self, change: Kinds, start: int, end: int) -> Changes:
        """The changes in ``[start, end)``; ``change`` says what each change of the stretch does."""
        folded = fold(change[start:end], self.keys[start:end], self.old_keys[start:end], self._size)
        return _Fold(self, folded, start, change).changes()

    @property
    def key(self) -> tuple[str, ...]:
        return self.stretch.header.key

    @cached_property
    def key_values(self) -> Mapping[str, pa.ChunkedArray]:
        """The key columns of all changes, followed by those of all old keys."""
        found = {}
        for name in self.key:
            new, old = self.stretch.carried[name], self.stretch.old(name)
            found[name] = pa.chunked_array([*new.chunks, *(old.chunks if old is not None else ())], new.type)
        return found

    @cached_property
    def _codes(self) -> Numbers:
        # Keys are compared by their text.
        texts = [plain_text(without_nulls(values.combine_chunks())) for values in self.key_values.values()]
        return key_codes([pa.chunked_array([text]) for text in texts])

    @property
    def keys(self) -> Numbers:
        return self._codes[: len(self.stretch)]

    @cached_property
    def old_keys(self) -> Numbers:
        """The key at which each change finds its row, ``NONE`` if that is its own key."""
        if len(self._codes) == len(self.stretch):
            return np.full(len(self.stretch), NONE, np.int64)
        old = self.stretch.old(self.key[0])
        given = old is not None and old.is_valid().to_numpy()
        return np.where(given, self._codes[len(self.stretch) :], NONE)

    @cached_property
    def _size(self) -> int:
        return int(self._codes.max(initial=NONE)) + 1

    @cached_property
    def example(self) -> Numbers:
        """A place in ``key_values`` for each key."""
        found = np.zeros(self._size, np.int64)
        found[self._codes] = np.arange(len(self._codes))
        return found

    def of_keys(self, codes: Numbers, absent: Bools | None = None) -> list[pa.Array]:
        """The values of keys, converted for the table; null where they are ``absent``."""
        places = pa.array(self.example[np.maximum(codes, 0)], mask=absent)
        return [
            self.fitting.columns[name].fit(values.take(places).combine_chunks()).array
            for name, values in self.key_values.items()
        ]

    @cached_property
    def valid(self) -> Mapping[str, Bools | None]:
        """Which changes carry each column; ``None`` if all do."""
        return {
            name: values.is_valid().to_numpy() if values.null_count else None
            for name, values in self.stretch.carried.items()
        }


@dataclass(frozen=True)
class _Fold:
    """Some of the changes, folded. ``first`` is the number of the first."""

    rows: KeyedRows
    folded: Folded
    first: int
    change: Kinds

    def changes(self) -> Changes:
        table, key = self.rows.fitting.table, self.rows.key
        gone = pa.table(self.rows.of_keys(self.folded.gone), names=[table.columns[name].name for name in key])
        spare = (UNMAPPED,) if UNMAPPED in table.columns else ()
        return Changes(
            table,
            key,
            self.folded.truncated,
            gone,
            (*self.rows.fitting.columns, *spare),
            self.folded.rows,
            self._come,
            others=self._others,
            fills=self._fills,
            gaps=self._gaps,
            aside=self._aside,
            moves=self._moves,
            inserts=self._inserts,
        )

    # Which changes make which rows

    @cached_property
    def _order(self) -> Numbers:
        """The changes that count, sorted by row; those of a row keep their order."""
        counts = np.flatnonzero(self.folded.row != NONE)
        return counts[np.argsort(self.folded.row[counts], kind="stable")]

    @cached_property
    def _begins(self) -> Numbers:
        """Where in ``_order`` the changes of each row begin."""
        return np.searchsorted(self.folded.row[self._order], np.arange(self.folded.rows))

    @cached_property
    def _single(self) -> Bools:
        """Whether a single change made each row."""
        found: Bools = np.diff(self._begins, append=len(self._order)) == 1
        return found

    @cached_property
    def _inserts(self) -> bool:
        first = self.change[self._order[self._begins] + self.first]
        return bool((self.folded.new | (first == Change.INSERT)).all())

    def _last(self, name: str, rows: Numbers) -> Numbers:
        """The number of each row's last change that carries the column, ``NONE`` if none does."""
        valid = self.rows.valid[name]
        ends = np.append(self._begins, len(self._order))[rows + 1]
        if valid is None:
            newest: Numbers = self._order[ends - 1] + self.first
            return newest
        places = np.where(valid[self._order + self.first], np.arange(len(self._order)), NONE)
        latest = np.maximum.reduceat(places, self._begins)[rows] if len(places) else places
        latest = np.where(latest >= self._begins[rows], latest, NONE)
        last: Numbers = np.where(latest == NONE, NONE, self._order[latest] + self.first)
        return last

    # Columns

    @cached_property
    def _others(self) -> tuple[str, ...]:
        """Columns of the table that no change carries, if rows must keep their values."""
        if self.folded.new.all() or not (self.rows.whole or self.folded.moved.any()):
            return ()
        carried = self.rows.fitting.columns
        return tuple(name for name in self.rows.fitting.table.columns if name not in carried and name != UNMAPPED)

    @property
    def _aside(self) -> tuple[str, ...]:
        """Columns that the table lacks, whose values it keeps in ``_unmapped``."""
        homeless = [column.name for column in self.rows.fitting.missing_columns]
        return tuple(homeless) if UNMAPPED in self.rows.fitting.table.columns else ()

    @cached_property
    def _gaps(self) -> tuple[str, ...]:
        known = np.flatnonzero(~self.folded.new)
        if not len(known):
            return ()
        return tuple(
            name
            for name in (*self.rows.fitting.columns, *self._others, *self._aside)
            if name in self._others or (self.rows.valid[name] is not None and (self._last(name, known) == NONE).any())
        )

    @cached_property
    def _fills(self) -> bool:
        return bool(self._gaps) or (UNMAPPED in self.rows.fitting.table.columns and not self.folded.new.all())

    @cached_property
    def _moves(self) -> bool:
        """Whether it matters where rows come from, because they keep values of the old row."""
        return self._fills and bool(self.folded.moved.any())

    # Rows

    def _come(self) -> Iterator[pa.RecordBatch]:
        for chosen in (np.flatnonzero(self._single), np.flatnonzero(~self._single)):
            for start in range(0, len(chosen), ROWS_AT_A_TIME):
                yield self._batch(chosen[start : start + ROWS_AT_A_TIME])

    def _batch(self, rows: Numbers) -> pa.RecordBatch:
        values = self._values(rows)
        arrays = self.rows.fitting.fit_rows(len(rows), values)
        if self._fills:
            arrays[GAPS] = self._marks(rows, values)
        if self._moves:
            origins = self.rows.of_keys(self.folded.origin[rows], ~self.folded.moved[rows])
            for name, origin in zip(self.rows.key, origins, strict=True):
                arrays[ORIGIN + self.rows.fitting.table.columns[name].name] = origin
        return pa.RecordBatch.from_pydict(arrays)

    def _values(self, rows: Numbers) -> Mapping[str, pa.Array]:
        """The final value of each column in these rows, null where no change carries it."""
        carried = self.rows.stretch.carried
        if self._single[rows].all():
            only = self._order[self._begins[rows]] + self.first
            return {name: _chosen(values, only) for name, values in carried.items()}
        found = {}
        for name, values in carried.items():
            last = self._last(name, rows)
            found[name] = values.take(pa.array(np.maximum(last, 0), mask=last == NONE)).combine_chunks()
        return found

    def _marks(self, rows: Numbers, values: Mapping[str, pa.Array]) -> pa.Array:
        """A text per row with a ``1`` for each column that is a gap, and if rows move another for a row that may be at
        its place already; null for rows without gaps to fill."""
        known = ~self.folded.new[rows]
        flags = np.ones((len(rows), len(self._gaps)), np.bool_)
        for place, name in enumerate(self._gaps):
            if name not in self._others:
                flags[:, place] = values[name].is_null().to_numpy(zero_copy_only=False)
        filled = known if UNMAPPED in self.rows.fitting.table.columns else known & flags.any(axis=1)
        if self._moves:
            flags = np.column_stack([flags, self.folded.onto_untouched[rows] & self.folded.moved[rows]])
        text = np.ascontiguousarray(flags.astype(np.uint8) + np.uint8(ord("0")))
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(flags.shape[1])
        bitmap = pa.py_buffer(np.packbits(filled, bitorder="little"))
        return pa.Array.from_buffers(pa.string(), len(rows), [bitmap, pa.py_buffer(offsets), pa.py_buffer(text)])


def _chosen(values: pa.ChunkedArray, places: Numbers) -> pa.Array:
    """Some of the values; adjacent rows are sliced, not picked one by one."""
    if int(places[-1]) - int(places[0]) + 1 == len(places) and (np.diff(places) == 1).all():
        return values.slice(int(places[0]), len(places)).combine_chunks()
    return values.take(pa.array(places)).combine_chunks()
