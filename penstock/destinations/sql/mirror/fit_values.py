"""Staged values, which are JSON, made values of a real table's columns.

A column that holds all that the source declares for it takes the values as they are written. One that does not takes
those that it can hold without loss, by the rules of ``flatten.fitting``; the others go to ``_unmapped``, or fail their
records. Nothing here knows an engine: it is Arrow in, Arrow out.
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
from penstock.destinations.sql.schema.table_changes import Table, TypedColumn
from penstock.flatten.casts import Form
from penstock.flatten.fit_column import Fitted, fit, plain_text
from penstock.flatten.unmapped.leftovers import with_members
from penstock.flatten.unmapped.unmapped_column import UNMAPPED


@dataclass(frozen=True)
class ColumnFit:
    """How the values of one column go into the table's."""

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
        return not self.holds or self.dialect.reads(self.real.type) is not None

    @cached_property
    def type(self) -> pa.DataType:
        """Of the arrays that ``fit`` gives."""
        return pa.string() if self.holds or self._is_json else self.dialect.target(self.real.type).arrow or pa.string()

    def fit(self, values: pa.Array) -> Fitted:
        """``values`` are JSON; what is null in them, or says so, is null."""
        values = without_nulls(values)
        if self._is_json:
            # The type that keeps JSON as it was written takes what the others do not.
            as_written = self.real.type == "json"
            return Fitted(values if as_written else readable_json(values, self.dialect.takes_nul))
        text = values if self.declared_json else plain_text(values)
        if not self.dialect.takes_nul and pc.any(pc.match_substring(text, "\0")).as_py():
            text = pc.replace_substring(text, "\0", "")
        if not self.holds:
            found = fit(text, self.dialect.target(self.real.type))
            return Fitted(found.array.cast(self.type), found.lost)
        pattern = self.dialect.reads(self.real.type)
        if pattern is None:
            return Fitted(text.cast(self.type))
        lost = pc.invert(pc.match_substring_regex(text, pattern)).fill_null(False)
        if not lost.true_count:
            return Fitted(text)
        return Fitted(pc.if_else(lost, pa.scalar(None, text.type), text), lost)


def without_nulls(values: pa.Array) -> pa.Array:
    """The values with nothing where they say ``null``."""
    nulls = pc.equal(values, NULL_TEXT)
    return pc.if_else(nulls, pa.scalar(None, values.type), values) if pc.any(nulls).as_py() else values


@dataclass(frozen=True)
class MirrorFitting:
    """How the changes of one header go into one table."""

    header: MirrorHeader
    table: Table
    dialect: Dialect

    @cached_property
    def columns(self) -> Mapping[str, ColumnFit]:
        """By our names, in the header's order: the columns that the table has."""
        return {
            column.name: self._fit_of(column, self.table.columns[column.name])
            for column in self.header.columns
            if column.name in self.table.columns and column.name != UNMAPPED
        }

    @cached_property
    def homeless(self) -> tuple[MirrorColumn, ...]:
        """Columns that the table does not have."""
        return tuple(column for column in self.header.columns if column.name not in self.columns)

    def _fit_of(self, column: MirrorColumn, real: TypedColumn) -> ColumnFit:
        types = column.types(self.dialect)
        holds = all(self.dialect.holds(real.type, comes) for comes in types)
        is_json = bool(types) and all(self.dialect.target(comes).form is Form.JSON for comes in types)
        return ColumnFit(real, self.dialect, holds, is_json)

    def spare(self, rows: int, values: Mapping[str, pa.Array], fitted: Mapping[str, Fitted]) -> pa.Array:
        """``_unmapped`` of rows: what they carry that is not in a column. ``values`` are by our names."""
        members = [(name, found.lost, values[name]) for name, found in fitted.items() if found.lost is not None]
        for column in self.homeless:
            if column.name in values:
                chosen = pc.fill_null(pc.not_equal(values[column.name], NULL_TEXT), False)
                members.append((column.name, chosen, values[column.name]))
        text = with_members(None, rows, [(name, chosen, array.filter(chosen)) for name, chosen, array in members])
        return self.dialect.spare_values(readable_json(text, self.dialect.takes_nul, self.dialect.json_keeps_repeats))


def described(column: MirrorColumn, table: Table) -> str:
    """Why a value of this column has no place."""
    comes = column.declared or (column.values or "JSON")
    if column.name in table.columns:
        return f"the column '{column.name}' is {table.columns[column.name].type} and cannot hold this value ({comes})"
    return f"there is no column for '{column.name}' ({comes})"
