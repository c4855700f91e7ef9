"""Narrows rows to the size limit of an engine: moves the widest values into ``_unmapped``, under their columns.

The key, the version, the event's id and its time stay in their columns. Of the others text moves first, then numbers
and the like, and last columns named as ids. A merged row meets another one at the engine, and the two together can be
too large; then everything movable in the new row goes to ``_unmapped``.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.readable_json import readable_json
from penstock.destinations.sql.schema.schema_operations import Table, TypedColumn
from penstock.flatten.fit_column import json_values
from penstock.flatten.unmapped.leftovers import with_members
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

NEVER_MOVED = frozenset(("_timestamp", "eventn_ctx_event_id"))
"""An event's time and id."""
_LAST = 2
NARROWING_LEVELS = (1, 2)
"""How much of a row moves if the engine finds it too large: the levels to try in turn."""


class Narrowing:
    """Keeps the rows of one table within its engine's limit. Rows are already fitted, and have the table's own
    names."""

    def __init__(self, table: Table, dialect: Dialect, staying: Collection[str] = ()) -> None:
        """``staying`` are further columns whose values never move: those of the key, and the version."""
        self._dialect = dialect
        self._limit = dialect.row_limit if UNMAPPED in table.columns and may_exceed_limit(table, dialect) else None
        self._columns = {
            column.name: (name, column.type, None if name in staying or name in NEVER_MOVED else self._turn(column))
            for name, column in table.columns.items()
            if name != UNMAPPED
        }
        self._spare = table.columns[UNMAPPED].name if UNMAPPED in table.columns else UNMAPPED

    @property
    def applies(self) -> bool:
        """Whether a row of the table can be too large."""
        return self._limit is not None

    @property
    def movable(self) -> frozenset[str]:
        """The columns, by our names, whose values may move."""
        return frozenset(name for name, _, turn in self._columns.values() if self.applies and turn is not None)

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """The schema of the rows that ``narrow`` returns."""
        if not self.applies or self._spare in rows.names:
            return rows
        return rows.append(pa.field(self._spare, pa.string()))

    def narrow(self, rows: pa.RecordBatch, levels: npt.NDArray[np.int8] | None = None) -> pa.RecordBatch:
        """Rows that fit. Where ``levels`` is 1 everything movable goes to ``_unmapped`` except columns named as ids;
        where it is 2, those too."""
        if self._limit is None:
            return rows
        schema = self.schema(rows.schema)
        names = [name for name in self._columns if name in rows.schema.names]
        arrays = {name: rows.column(name) for name in names}
        turns = [self._columns[name][2] for name in names]
        found = self._limit.excess([(self._columns[name][1], arrays[name]) for name in names], turns)
        masks = dict(zip(names, found, strict=True)) if found is not None else {}
        if levels is not None and levels.any():
            for name, turn in zip(names, turns, strict=True):
                if turn is not None:
                    there = arrays[name].is_valid().to_numpy(zero_copy_only=False)
                    masks[name] = masks.get(name, False) | ((levels > (turn == _LAST)) & there)
        masks = {name: mask for name, mask in masks.items() if mask.any()}
        if not masks and schema is rows.schema:
            return rows
        kept = rows.column(self._spare) if self._spare in rows.schema.names else None
        members = [
            (self._columns[name][0], mask, json_values(arrays[name], pa.array(mask))) for name, mask in masks.items()
        ]
        text = with_members(kept, rows.num_rows, members)
        text = readable_json(text, self._dialect.takes_nul, self._dialect.json_keeps_repeats)
        columns = []
        for field in schema:
            if field.name == self._spare:
                columns.append(self._dialect.unmapped_json(text).cast(pa.string()))
            elif field.name in masks:
                mask = pa.array(masks[field.name])
                columns.append(pc.if_else(mask, pa.scalar(None, field.type), rows.column(field.name)))
            else:
                columns.append(rows.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _turn(self, column: TypedColumn) -> int:
        """The turn at which the column's values move."""
        if column.name.lower() == "id" or column.name.lower().endswith("_id"):
            return _LAST
        return 1 if self._limit is not None and column.type in self._limit.fixed else 0


def may_exceed_limit(table: Table, dialect: Dialect) -> bool:
    """Whether a row with a value in every column may be too large for the engine."""
    limit = dialect.row_limit
    return limit is not None and limit.may_exceed([column.type for column in table.columns.values()])
