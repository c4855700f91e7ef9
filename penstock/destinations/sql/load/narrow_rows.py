"""Rows made to fit the room that an engine has for one: the widest values go into ``_unmapped``, under their columns.

The key, the version, the event's id and its time stay in their columns. Of the others text goes first, then numbers and
the like, and last what is called an id. A row that is merged meets another one at
the engine, and the two together can be too large; then all that may go of the new one goes aside.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.readable_json import readable_json
from penstock.destinations.sql.schema.table_changes import Table, TypedColumn
from penstock.flatten.fit_column import json_values
from penstock.flatten.unmapped.leftovers import with_members
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

NEVER_ASIDE = frozenset(("_timestamp", "eventn_ctx_event_id"))
"""When an event happened, and which one it is."""
_LAST = 2
WHOLLY = (1, 2)
"""How much of a row goes aside that the engine found too large, one after the other."""


class Narrowing:
    """How the rows of one table are kept within its engine's limit. Rows are fitted, and have the table's own names."""

    def __init__(self, table: Table, dialect: Dialect, staying: Collection[str] = ()) -> None:
        """``staying`` are further columns whose values never go aside: those of the key, and the version."""
        self._dialect = dialect
        self._limit = dialect.row_limit if UNMAPPED in table.columns and is_crowded(table, dialect) else None
        self._columns = {
            column.name: (name, column.type, None if name in staying or name in NEVER_ASIDE else self._turn(column))
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
        """The columns, by our names, whose values may go aside."""
        return frozenset(name for name, _, turn in self._columns.values() if self.applies and turn is not None)

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """That of the rows that ``narrow`` gives."""
        if not self.applies or self._spare in rows.names:
            return rows
        return rows.append(pa.field(self._spare, pa.string()))

    def narrow(self, rows: pa.RecordBatch, wholly: npt.NDArray[np.int8] | None = None) -> pa.RecordBatch:
        """Rows that fit. Where ``wholly`` is 1 everything that may goes aside, but for what is called an id; where it
        is 2, that too."""
        if self._limit is None:
            return rows
        schema = self.schema(rows.schema)
        names = [name for name in self._columns if name in rows.schema.names]
        arrays = {name: rows.column(name) for name in names}
        turns = [self._columns[name][2] for name in names]
        found = self._limit.excess([(self._columns[name][1], arrays[name]) for name in names], turns)
        masks = dict(zip(names, found, strict=True)) if found is not None else {}
        if wholly is not None and wholly.any():
            for name, turn in zip(names, turns, strict=True):
                if turn is not None:
                    there = arrays[name].is_valid().to_numpy(zero_copy_only=False)
                    masks[name] = masks.get(name, False) | ((wholly > (turn == _LAST)) & there)
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
                columns.append(self._dialect.spare_values(text).cast(pa.string()))
            elif field.name in masks:
                mask = pa.array(masks[field.name])
                columns.append(pc.if_else(mask, pa.scalar(None, field.type), rows.column(field.name)))
            else:
                columns.append(rows.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _turn(self, column: TypedColumn) -> int:
        """When the column's values go aside."""
        if column.name.lower() == "id" or column.name.lower().endswith("_id"):
            return _LAST
        return 1 if self._limit is not None and column.type in self._limit.fixed else 0


def is_crowded(table: Table, dialect: Dialect) -> bool:
    """Whether a row with a value in every column may be too large for the engine."""
    limit = dialect.row_limit
    return limit is not None and limit.may_exceed([column.type for column in table.columns.values()])
