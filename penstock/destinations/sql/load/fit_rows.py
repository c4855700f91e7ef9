"""Fits the rows of a staged file to a real table.

Every value of a row goes to its column or, if the column cannot hold it without loss or does not exist, to
``_unmapped`` under the column's name; under ``on_type_conflict: fail`` such a row fails instead. A row without its key
fails. Nothing here depends on an engine: Arrow in, Arrow out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.readable_json import readable_json
from penstock.destinations.sql.schema.schema_operations import Table
from penstock.destinations.sql.stage.stager import PLACE
from penstock.destinations.sql.unmapped.unmapped_values import parse_unmapped
from penstock.flatten.casts import DEFAULT_SCALE, Cast
from penstock.flatten.column import Column
from penstock.flatten.fit_column import Fitted, fit, fit_json, fit_unconverted, json_values
from penstock.flatten.unmapped.leftovers import with_members
from penstock.flatten.unmapped.unmapped_column import UNMAPPED
from penstock.outcome import FAILURE_SCHEMA, NO_FAILURES


@dataclass(frozen=True)
class FittedRows:
    """``failures`` names the rows that are not in ``rows``."""

    rows: pa.RecordBatch
    failures: pa.RecordBatch = field(default_factory=lambda: NO_FAILURES)
    kept: npt.NDArray[np.bool_] | None = None
    """Which of the staged rows are in ``rows``; ``None`` means all."""


class Fitting:
    """Fits one staged file to one table. ``schema`` is that of the resulting rows, in the table's own names."""

    def __init__(
        self,
        header: Sequence[Column],
        staged: pa.Schema,
        table: Table,
        dialect: Dialect,
        key: Sequence[str] = (),
        conflicts_fail: bool = False,
        of_one_type: Collection[str] = (),
    ) -> None:
        """``of_one_type`` are columns that have the same type in all files of the load."""
        self._table = table
        self._key = key
        self._conflicts_fail = conflicts_fail
        self._dialect = dialect
        self._takes_nul = dialect.takes_nul
        self._brings_spare = any(column.name == UNMAPPED for column in header)
        named = [column.name for column in header if column.name != UNMAPPED]
        self.missing_columns = [name for name in named if name not in table.columns]
        """Columns of the file that the table lacks."""
        self._targets = {name: dialect.target(table.columns[name].type) for name in named if name in table.columns}
        # To the engine, keys that differ only in trailing spaces are equal, and a key cannot go to _unmapped.
        self._targets |= {name: replace(self._targets[name], padded=False) for name in key if name in self._targets}
        self._json = {column.name for column in header if column.json}
        self.doubtful = [
            name
            for name, target in self._targets.items()
            if name in self._json or not _surely_fits(staged.field(name).type, target)
        ]
        """Columns whose values the table's column may not all hold."""
        self._as_they_are = {
            name
            for name in self.doubtful
            # Rows that are folded by their key need one type per column.
            if dialect.converts_numbers
            and (not key or name in of_one_type)
            and _into_wide_decimal(staged.field(name).type, self._targets[name])
        }
        self.may_lose = frozenset(self._targets if self._brings_spare else self.doubtful)
        """Columns whose value in a row may end in ``_unmapped``; casts put theirs there when staging."""
        self.schema = self._schema(staged)

    @property
    def names(self) -> list[str]:
        """The columns of ``schema`` by our names."""
        return [*self._targets, *([UNMAPPED] if len(self.schema) > len(self._targets) else [])]

    def _schema(self, staged: pa.Schema) -> pa.Schema:
        fields = []
        for name, target in self._targets.items():
            converted = name in self.doubtful and name not in self._as_they_are
            kind = (target.arrow or pa.string()) if converted else staged.field(name).type
            fields.append(pa.field(self._table.columns[name].name, kind))
        if UNMAPPED in self._table.columns and (self._brings_spare or self.missing_columns or self.doubtful):
            fields.append(pa.field(self._table.columns[UNMAPPED].name, pa.string()))
        return pa.schema(fields)

    def lossy_columns(self, rows: pa.RecordBatch) -> list[str]:
        """The columns of these rows with a value that the table's column cannot hold."""
        return [name for name in self.doubtful if self._fit_column(rows, name).lost is not None]

    def _fit_column(self, rows: pa.RecordBatch, name: str) -> Fitted:
        column = rows.column(name)
        if name in self._as_they_are:
            return fit_unconverted(column, self._targets[name])
        return fit_json(column, self._targets[name]) if name in self._json else fit(column, self._targets[name])

    def key_of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The key's columns as the engine compares them, null where a row has none."""
        return [self._comparable(self.column_of(rows, name)) for name in self._key]

    def _comparable(self, column: pa.Array) -> pa.Array:
        stored = self._storable(column)
        is_text = pa.types.is_string(stored.type) or pa.types.is_large_string(stored.type)
        return pc.utf8_rtrim(stored, " ") if is_text and self._dialect.ignores_trailing_blanks else stored

    def column_of(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        """A column of the table as these rows fill it."""
        kind = self._dialect.target(self._table.columns[name].type).arrow or pa.string()
        if name not in self._targets:
            return pa.nulls(rows.num_rows, kind)
        column = (self._fit_column(rows, name).array if name in self.doubtful else rows.column(name)).cast(kind)
        # To a database -0.0 and 0.0 are equal.
        return pc.add(column, 0.0) if pa.types.is_floating(kind) else column

    def fit(self, rows: pa.RecordBatch) -> FittedRows:
        fitted = {name: self._fit_column(rows, name) for name in self.doubtful}
        failing, failures = self._failures(rows, fitted)
        kept = None
        if failures.num_rows:
            kept = np.ones(rows.num_rows, np.bool_)
            kept[failing] = False
            good = pa.array(kept)
            rows = rows.filter(good)
            fitted = {
                name: Fitted(found.array.filter(good), found.lost and found.lost.filter(good))
                for name, found in fitted.items()
            }
        columns = [fitted[name].array if name in fitted else rows.column(name) for name in self._targets]
        if len(self.schema) > len(columns):
            columns.append(self._unmapped(rows, fitted))
        columns = [self._storable(column) for column in columns]
        return FittedRows(
            pa.RecordBatch.from_arrays(
                [column.cast(kind) for column, kind in zip(columns, self.schema.types, strict=True)],
                schema=self.schema,
            ),
            failures,
            kept,
        )

    def _unmapped(self, rows: pa.RecordBatch, fitted: dict[str, Fitted]) -> pa.Array:
        members = [(name, found.lost, rows.column(name)) for name, found in fitted.items() if found.lost is not None]
        members += [(name, rows.column(name).is_valid(), rows.column(name)) for name in self.missing_columns]
        kept = rows.column(UNMAPPED) if self._brings_spare else None
        text = with_members(
            kept,
            rows.num_rows,
            [
                (name, chosen, array.filter(chosen) if name in self._json else json_values(array, chosen))
                for name, chosen, array in members
            ],
        )
        return self._dialect.unmapped_json(readable_json(text, self._takes_nul, self._dialect.json_keeps_repeats))

    def _failures(
        self, rows: pa.RecordBatch, fitted: dict[str, Fitted]
    ) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
        """The numbers of the rows that fail, and the first failure of each."""
        found: list[tuple[pa.Array, str, str]] = []
        if self._conflicts_fail or UNMAPPED not in self._table.columns:
            # Without the column _unmapped the value would be lost.
            for name, lost, came in self._conflicts(rows, fitted):
                message = f"there is no column for '{name}' ({came})"
                if name in self._table.columns:
                    there = self._table.columns[name].type
                    message = f"the column '{name}' is {there} and cannot hold this value ({came})"
                found.append((lost, "type_conflict", message))
        for name in self._key:
            column = fitted[name].array if name in fitted else rows.column(name) if name in self._targets else None
            if name in fitted and (lost := fitted[name].lost) is not None:
                there = self._table.columns[name].type
                found.append((lost, "no_key", f"the key column '{name}' is {there} and cannot hold this"))
            missing = pa.repeat(pa.scalar(True), rows.num_rows) if column is None else column.is_null()
            found.append((missing, "no_key", f"there is no value for the key column '{name}'"))
        if not found:
            return np.empty(0, np.int64), NO_FAILURES
        # By the row's number: behind a step in Spark several rows may be of one item.
        numbers = np.concatenate([np.flatnonzero(_flags(chosen)) for chosen, _, _ in found])
        failures = pa.concat_batches([_failed(rows, *each) for each in found])
        failing, first = np.unique(numbers, return_index=True)
        return failing, failures.take(pa.array(first))

    def _conflicts(self, rows: pa.RecordBatch, fitted: dict[str, Fitted]) -> Iterator[tuple[str, pa.BooleanArray, str]]:
        """Columns, the rows whose value they cannot hold, and the kind of that value."""
        for name, found in fitted.items():
            if found.lost is None:
                continue
            if name not in self._json:
                yield name, found.lost, _kind(rows.column(name).type)
                continue
            for kind, pattern in _JSON_KINDS.items():
                yield name, pc.and_(found.lost, _flags(pc.match_substring_regex(rows.column(name), pattern))), kind
        if self._brings_spare:
            # Staging moved values that a cast could not convert to _unmapped, under the column's name; a path has a
            # slash.
            for name, member in parse_unmapped(rows.column(UNMAPPED)).by_key.items():
                if not name.startswith("/") or UNMAPPED not in self._table.columns:
                    yield name, pa.array(member.present), _kind(member.type(infer_timestamps=False).arrow)
        if UNMAPPED not in self._table.columns:
            for name in self.missing_columns:
                yield name, rows.column(name).is_valid(), _kind(rows.column(name).type)

    def _storable(self, column: pa.Array) -> pa.Array:
        if self._takes_nul or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return column
        if not pc.any(pc.match_substring(column, "\0")).as_py():
            return column
        return pc.replace_substring(column, "\0", "")


_JSON_KINDS = {"string": '^"', "array": r"^\[", "boolean": "^[tf]", "number": "^[-0-9]"}
"""Kinds of values, by the first character of their JSON."""


def _kind(staged: pa.DataType) -> str:
    """The same names for a column whose values are all of one kind."""
    if pa.types.is_boolean(staged):
        return "boolean"
    number = pa.types.is_integer(staged) or pa.types.is_floating(staged) or pa.types.is_decimal(staged)
    return "number" if number else str(staged)


def _flags(found: pa.BooleanArray) -> pa.BooleanArray:
    return pc.fill_null(found, False)


def keyless_failures(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """A failure for every row, because none of them has the key."""
    everything = pa.repeat(pa.scalar(True), rows.num_rows)
    return _failed(rows, everything, "no_key", f"there is no value for the key ({', '.join(key)})")


def _surely_fits(staged: pa.DataType, target: Cast) -> bool:
    """Whether every value of the staged type is a value of the target as it is."""
    if target.type is None:
        return target.form is None and target.pattern is None and bool(pa.types.is_string(staged))
    return not target.limited and bool(target.arrow == staged)


def _into_wide_decimal(staged: pa.DataType, target: Cast) -> bool:
    """Whether the target is a decimal that holds nearly all of these numbers, so that only the exceptions are looked
    for."""
    number = pa.types.is_floating(staged) or pa.types.is_integer(staged)
    return bool(number) and target.precision > 0 and target.scale >= DEFAULT_SCALE


def _failed(rows: pa.RecordBatch, chosen: pa.Array, code: str, message: str) -> pa.RecordBatch:
    picked = rows.select(PLACE).filter(chosen)
    texts = [pa.repeat(pa.scalar(text), picked.num_rows) for text in (code, message)]
    return pa.RecordBatch.from_arrays([*picked.columns, *texts], schema=FAILURE_SCHEMA)
