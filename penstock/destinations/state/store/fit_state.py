"""What a state table must become to hold rows whole, and the rows as its columns hold them. No I/O.

A column has the type of its values. If later values do not fit, it is widened along the types of ``flatten`` (boolean,
integer, number, text), which loses nothing. Only columns of exactly these types are changed: any other was made by
somebody else, and what it cannot hold is refused. So are names that no column of rows can have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.conflation.fold_rows import Said, object_numbers
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    CreateTable,
    DropKey,
    Operation,
    SetKey,
    Table,
    TypedColumn,
    WidenColumn,
    is_ours,
    our_key,
)
from penstock.destinations.state.store.contract import INACTIVE_SINCE, SOURCE, StateRows
from penstock.errors import RefusedError
from penstock.flatten.casts import DEFAULT_SCALE, Cast
from penstock.flatten.column import Column
from penstock.flatten.fit_column import Fitted, fit, fit_json, fit_unconverted
from penstock.flatten.inner_types import InnerType, promote

MOST_COLUMNS = 1_500
"""Of a table. PostgreSQL ends at 1,600."""


@dataclass(frozen=True)
class StateTable:
    """A state table as it is."""

    table: Table
    filled: frozenset[str] = frozenset()
    """Columns that bundles have filled: in a row that lacks them they become null."""
    guarded: bool = False
    """Whether something at the table (a trigger, a rule, a policy) may keep rows from being written or deleted."""

    @property
    def name(self) -> str:
        return self.table.name

    def lacking(self, columns: Collection[str]) -> list[str]:
        """Columns that bundles have filled before, and rows with these columns lack, by the table's names."""
        return [
            self.table.columns[name].name for name in sorted(self.filled & self.table.columns.keys() - set(columns))
        ]


@dataclass(frozen=True)
class TablePlan:
    """What must be done to a table before rows go into it."""

    operations: Sequence[Operation] = ()
    newly_filled: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.operations or self.newly_filled)


@dataclass(frozen=True)
class FittedState:
    """Rows as the table's columns hold them, without the source."""

    rows: pa.Table
    said: npt.NDArray[np.int8]

    @property
    def puts(self) -> pa.Table:
        """The rows that say how their object is."""
        chosen = self.said == Said.PUT
        return self.rows if chosen.all() else self.rows.filter(pa.array(chosen))


def fit_state(
    key: Sequence[str], rows: StateRows, found: StateTable, dialect: Dialect, whose: Sequence[pa.Array] = ()
) -> FittedState | None:
    """The rows as the table holds them; ``None`` if it must be changed before. Raises ``RefusedError`` for rows that no
    change would help. ``whose``: of rows of several sources, a column that tells these apart."""
    if not found.filled.issuperset(rows.table.column_names) or _key_changes(found.name, key, found, dialect):
        return None
    arrays = {}
    for column in rows.columns:
        real = found.table.columns.get(column.name)
        if real is None:
            return None
        fitted = _fit(column, _array(rows, column.name), dialect.target(real.type), dialect)
        if fitted.lost is not None:
            return None
        arrays[real.name] = _storable(fitted.array, column, key, dialect)
    if rows.table.num_rows:
        keys = [arrays[found.table.columns[name].name] for name in key]
        _refuse_equal_keys([*keys, *whose], rows.table.num_rows, found.name)
    return FittedState(pa.table(arrays), rows.said)


def plan_table(name: str, key: Sequence[str], rows: StateRows, found: StateTable | None, dialect: Dialect) -> TablePlan:
    """The changes that the table needs, as it is. Raises ``RefusedError`` if none would do."""
    _refuse_names(rows.columns, found, dialect)
    there: Mapping[str, TypedColumn] = found.table.columns if found else {}
    new = [] if SOURCE in there else [TypedColumn(SOURCE, dialect.types[InnerType.STRING])]
    widened: list[Operation] = []
    # The key first, for people who look at the table.
    for column in sorted(rows.columns, key=lambda column: column.name not in key):
        real = there.get(column.name)
        wanted = _holding(column, _array(rows, column.name), real, dialect)
        if real is None:
            new.append(wanted)
        elif wanted.type != real.type:
            widened.append(WidenColumn(name, wanted, real.type))
    if len(there) + len(new) > MOST_COLUMNS:
        _refuse(f"the table '{name}' would have more than {MOST_COLUMNS:,} columns")
    newly_filled = set(rows.table.column_names) - (found.filled if found else frozenset())
    if found is None:
        whole_key = our_key(name, (SOURCE, *key), dialect.max_name) if dialect.has_keys else None
        return TablePlan([CreateTable(name, tuple(new), whole_key)], sorted(newly_filled))
    added = [AddColumn(name, column) for column in new]
    return TablePlan([*added, *widened, *_key_changes(name, key, found, dialect)], sorted(newly_filled))


def _key_changes(name: str, key: Sequence[str], found: StateTable, dialect: Dialect) -> list[Operation]:
    """Make our own key the one of the config. A key with another name is somebody else's, and stays."""
    wanted = our_key(name, (SOURCE, *key), dialect.max_name) if dialect.has_keys else None
    there = found.table.key
    if wanted is None or (there is not None and not is_ours(there)):
        return []
    if there is None:
        return [SetKey(name, wanted)]
    return [] if set(there.columns) == set(wanted.columns) else [DropKey(name, there), SetKey(name, wanted)]


def _holding(column: Column, array: pa.Array, real: TypedColumn | None, dialect: Dialect) -> TypedColumn:
    """The column with a type that holds all these values."""
    there = real or dialect.typed_column(column)
    lost = _fit(column, array, dialect.target(there.type), dialect).lost
    if lost is None:
        return there
    inner = next((inner for inner, name in dialect.types.items() if name == there.type), None)
    for wider in (promote(inner, column.type), InnerType.STRING) if inner is not None else ():
        wanted = TypedColumn(there.name, dialect.types[wider])
        if wider is not inner and _fit(column, array, dialect.target(wanted.type), dialect).lost is None:
            return wanted
    value = str(array.filter(lost)[0])
    raise _refusal(f"the column '{there.name}' is {there.type} and cannot hold {value[:60]!r}")


def _fit(column: Column, array: pa.Array, target: Cast, dialect: Dialect) -> Fitted:
    if not column.json and target.type is not None and target.arrow == array.type and not target.limited:
        return Fitted(array)
    if column.json:
        return fit_json(array, target)
    number = pa.types.is_floating(array.type) or pa.types.is_integer(array.type)
    if dialect.converts_numbers and number and target.precision and target.scale >= DEFAULT_SCALE:
        return fit_unconverted(array, target)
    return fit(array, target)


def _storable(array: pa.Array, column: Column, key: Sequence[str], dialect: Dialect) -> pa.Array:
    """The values without U+0000, for engines whose text cannot hold it. In a key it would make two objects one."""
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if dialect.takes_nul or not text or not pc.any(pc.match_substring(array, "\0")).as_py():
        return array
    if column.name in key:
        _refuse(f"a value of the key column '{column.name}' has the character U+0000, which no text can hold here")
    return pc.replace_substring(array, "\0", "")


def _refuse_equal_keys(keys: Sequence[pa.Array], rows: int, table: str) -> None:
    """Refuse rows whose keys are equal only as the table has them: 1 and 1.0, say."""
    objects = object_numbers(keys, rows)
    if len(objects) and int(objects.max()) + 1 < rows:
        repeated = np.flatnonzero(np.bincount(objects) > 1)[0]
        key = ", ".join(str(array[int(np.argmax(objects == repeated))]) for array in keys)
        _refuse(f"two rows have the same key in the table '{table}': {key[:120]}")


def _refuse_names(columns: Sequence[Column], found: StateTable | None, dialect: Dialect) -> None:
    reserved = {SOURCE: "says whose row it is", INACTIVE_SINCE: "marks the rows of silent sources"}
    computed = found.table.computed if found else frozenset()
    for column in columns:
        if column.name in reserved:
            _refuse(f"a row has the field '{column.name}', and the column of that name {reserved[column.name]}")
        if column.name in dialect.reserved or column.name in computed:
            _refuse(f"a row has the field '{column.name}', and nobody can write a column of that name")


def _array(rows: StateRows, name: str) -> pa.Array:
    found = rows.table.column(name)
    return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)


def _refuse(why: str) -> NoReturn:
    raise _refusal(why)


def _refusal(why: str) -> RefusedError:
    return RefusedError(
        "PEN-DST-141",
        f"the bundle's rows do not fit their table: {why}.",
        "Let the source send them otherwise, under a newer version, or change the table.",
    )
