"""Converts staged values, which are JSON, to values of a real table's columns.

A column that holds everything that the source declares for it gets the values as they are written. Any other column
gets those that it can hold without loss, by the rules of ``flatten.fit_column``; the rest go to ``_unmapped``, or fail
their records. Nothing here depends on an engine: Arrow in, Arrow out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.readable_json import readable_json
from penstock.destinations.sql.mirror.stage.change_header import MirrorColumn, MirrorHeader
from penstock.destinations.sql.mirror.stage.change_stager import NULL_TEXT
from penstock.destinations.sql.schema.schema_operations import Table, TypedColumn
from penstock.flatten.casts import Form
from penstock.flatten.fit_column import Fitted, fit, plain_text
from penstock.flatten.unmapped.leftovers import with_members
from penstock.flatten.unmapped.unmapped_column import UNMAPPED


@dataclass(frozen=True)
class ColumnFit:
    """Converts the values of one column for the table's column."""

    real: TypedColumn
    dialect: Dialect
    holds: bool
    """Whether the column holds all that is declared for it."""
    declared_json: bool = False

    @cached_property
    def _is_json(self) -> bool:
        return self.dialect.target(self.real.type).form is Form.JSON

    @cached_property
    def doubtful(self) -> bool:
        """Whether values may be lost."""
        if self._is_json:
            return False
        return not self.holds or self.dialect.readable_pattern(self.real.type) is not None

    @cached_property
    def type(self) -> pa.DataType:
        """The type of the arrays that ``fit`` returns."""
        return pa.string() if self.holds or self._is_json else self.dialect.target(self.real.type).arrow or pa.string()

    def fit(self, values: pa.Array) -> Fitted:
        """``values`` are JSON; a null, or the JSON ``null``, becomes null."""
        values = without_nulls(values)
        if self._is_json:
            # The type that keeps JSON as it was written accepts what the others refuse.
            as_written = self.real.type == "json"
            return Fitted(values if as_written else readable_json(values, self.dialect.takes_nul))
        text = values if self.declared_json else plain_text(values)
        if not self.dialect.takes_nul and pc.any(pc.match_substring(text, "\0")).as_py():
            text = pc.replace_substring(text, "\0", "")
        if not self.holds:
            found = fit(text, self.dialect.target(self.real.type))
            return Fitted(found.array.cast(self.type), found.lost)
        pattern = self.dialect.readable_pattern(self.real.type)
        if pattern is None:
            return Fitted(text.cast(self.type))
        lost = pc.invert(pc.match_substring_regex(text, pattern)).fill_null(False)
        if not lost.true_count:
            return Fitted(text)
        return Fitted(pc.if_else(lost, pa.scalar(None, text.type), text), lost)


def without_nulls(values: pa.Array) -> pa.Array:
    """The values, with null in place of the JSON ``null``."""
    nulls = pc.equal(values, NULL_TEXT)
    return pc.if_else(nulls, pa.scalar(None, values.type), values) if pc.any(nulls).as_py() else values


@dataclass(frozen=True)
class MirrorFitting:
    """Converts the changes of one header for one table."""

    header: MirrorHeader
    table: Table
    dialect: Dialect

    @cached_property
    def columns(self) -> Mapping[str, ColumnFit]:
        """The columns that the table has, by our names, in the header's order."""
        return {
            column.name: self._fit_of(column, self.table.columns[column.name])
            for column in self.header.columns
            if column.name in self.table.columns and column.name != UNMAPPED
        }

    @cached_property
    def missing_columns(self) -> tuple[MirrorColumn, ...]:
        """Columns that the table lacks."""
        return tuple(column for column in self.header.columns if column.name not in self.columns)

    def _fit_of(self, column: MirrorColumn, real: TypedColumn) -> ColumnFit:
        types = column.types(self.dialect)
        holds = all(self.dialect.holds(real.type, comes) for comes in types)
        is_json = bool(types) and all(self.dialect.target(comes).form is Form.JSON for comes in types)
        return ColumnFit(real, self.dialect, holds, is_json)

    def fit_rows(self, rows: int, values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The columns of rows, by the table's names. ``values`` are by our names."""
        fitted = {name: column.fit(values[name]) for name, column in self.columns.items()}
        arrays = {self.table.columns[name].name: found.array for name, found in fitted.items()}
        if UNMAPPED in self.table.columns:
            arrays[self.table.columns[UNMAPPED].name] = self._unmapped(rows, values, fitted)
        return arrays

    def _unmapped(self, rows: int, values: Mapping[str, pa.Array], fitted: Mapping[str, Fitted]) -> pa.Array:
        """The ``_unmapped`` of rows: what they carry that fits no column."""
        members = [(name, found.lost, values[name]) for name, found in fitted.items() if found.lost is not None]
        for column in self.missing_columns:
            if column.name in values:
                chosen = pc.fill_null(pc.not_equal(values[column.name], NULL_TEXT), False)
                members.append((column.name, chosen, values[column.name]))
        text = with_members(None, rows, [(name, chosen, array.filter(chosen)) for name, chosen, array in members])
        return self.dialect.unmapped_json(readable_json(text, self.dialect.takes_nul, self.dialect.json_keeps_repeats))


def unplaced_message(column: MirrorColumn, table: Table) -> str:
    """Says why the table cannot hold a value of this column."""
    comes = column.declared or (column.values or "JSON")
    if column.name in table.columns:
        return f"the column '{column.name}' is {table.columns[column.name].type} and cannot hold this value ({comes})"
    return f"there is no column for '{column.name}' ({comes})"
