"""Moves values from ``_unmapped`` into columns: what a table keeps there, which schema changes it takes, and the move.

A move is one transaction: schema changes, the new values, and ``_unmapped`` without them. A value stays where it is if
its column still cannot hold it without loss, or already has another value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.destinations.contract import TableBook
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.schema.schema_operations import AddColumn, Table, TypedColumn, WidenColumn
from penstock.destinations.sql.session import Session
from penstock.destinations.sql.unmapped.unmapped_store import ROW, UnmappedStore, update_statement
from penstock.destinations.sql.unmapped.unmapped_values import parse_unmapped, without_members
from penstock.errors import PenstockError
from penstock.flatten.inner_types import InnerType, promote
from penstock.flatten.unmapped.unmapped_column import UNMAPPED


@dataclass(frozen=True)
class UnmappedKey:
    """What rows keep under one key. ``column`` is the table's column of that name."""

    name: str
    values: int
    type: InnerType | None = None
    """The lowest type that holds them all; ``None`` if no column could hold them."""
    column: TypedColumn | None = None
    lossy: int = 0
    """How many of them the column cannot hold."""
    needed: InnerType | None = None
    """The lowest type that holds those."""


@dataclass(frozen=True)
class SkippedKey:
    key: str
    values: int
    reason: str


@dataclass(frozen=True)
class RemapRules:
    """What a config says about remapping."""

    max_columns: int = 1_000
    infer_timestamps: bool = False
    asked: Mapping[str, str] = field(default_factory=dict)
    """The types that steps ask for, by column."""


@dataclass(frozen=True)
class Proposal:
    """What a move would do. ``columns`` are those that get values; if there are none, there is nothing to do."""

    columns: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    """Schema changes, then the move itself."""
    left: tuple[SkippedKey, ...] = ()


@dataclass(frozen=True)
class Remapped:
    """What a move did, in values by column."""

    proposal: Proposal
    rows: int = 0
    moved: Mapping[str, int] = field(default_factory=dict)
    unfit: Mapping[str, int] = field(default_factory=dict)
    """Values that their column still cannot hold."""
    occupied: Mapping[str, int] = field(default_factory=dict)
    """Values that stayed because their column has another value."""


def survey(kept: UnmappedStore, table: Table, dialect: Dialect, infer_timestamps: bool = False) -> list[UnmappedKey]:
    """Every key that the table's rows keep, in order of first appearance."""
    if UNMAPPED not in table.columns:
        return []
    found: dict[str, UnmappedKey] = {}
    for batch in kept.rows(table, ()):
        held = parse_unmapped(batch.column(UNMAPPED))
        for name, member in held.by_key.items():
            known = found.get(name) or UnmappedKey(name, 0, column=_column(table, name))
            kind = member.type(infer_timestamps)
            lossy, needed = known.lossy, known.needed
            target = dialect.target(known.column.type) if known.column else None
            if target and target.type:
                lost = member.where(~_filled(member.as_column(target)))
                if len(lost):
                    lossy += len(lost)
                    needed = _wider(needed, lost.type(infer_timestamps))
            found[name] = UnmappedKey(
                name, known.values + len(member), _wider(known.type, kind), known.column, lossy, needed
            )
        for name in held.objects:
            found.setdefault(name, UnmappedKey(name, 0))
    return list(found.values())


def propose(
    kept: UnmappedStore, table: Table, dialect: Dialect, rules: RemapRules, chosen: Collection[str] = ()
) -> Proposal:
    """What moving the kept values takes; only the ``chosen`` keys, if any are named."""
    keys = survey(kept, table, dialect, rules.infer_timestamps)
    room = max(0, rules.max_columns - len(table.columns.keys() - {UNMAPPED}))
    changes: list[AddColumn | WidenColumn] = []
    columns: list[str] = []
    left: list[SkippedKey] = []
    for key in keys:
        if chosen and key.name not in chosen:
            continue
        change, reason = _change(table, key, dialect, rules, room)
        if reason:
            left.append(SkippedKey(key.name, key.values, reason))
            continue
        if change is not None:
            changes.append(change)
            room -= isinstance(change, AddColumn)
        columns.append(key.name)
    kept_keys = {key.name for key in keys}
    left += [SkippedKey(name, 0, "nothing is kept under it") for name in chosen if name not in kept_keys]
    if not columns:
        return Proposal(left=tuple(left))
    added = {change.column.name: change.column for change in changes if isinstance(change, AddColumn)}
    patched = Table(table.name, {**table.columns, **added})
    statements = [*map(dialect.render, changes), update_statement(dialect, patched, columns, kept.row_id)]
    return Proposal(tuple(columns), tuple(statements), tuple(left))


def remap(
    session: Session, name: str, rules: RemapRules, chosen: Collection[str], shown: Proposal, book: TableBook
) -> Remapped:
    """Do what was ``shown``. If the table, or what it keeps, needs something else by now, refuse and do nothing."""
    if not shown.columns:
        return Remapped(shown)
    with session.open_unmapped(name, book) as kept:
        table = session.table(name)
        if table is None or propose(kept, table, session.dialect, rules, chosen).statements != shown.statements:
            raise PenstockError(
                "PEN-DST-081",
                f"the table '{name}', or what it keeps in _unmapped, changed in the meantime.",
                "Nothing was done. Run it again to see what it takes now.",
            )
        kept.run_ddl(shown.statements[:-1])
        table = session.table(name) or table
        move = _Move(table, shown.columns, session.dialect)
        kept.write_back(table, shown.columns, move.batches(kept))
    for statement in shown.statements:
        book.note_change(name, statement)
    return Remapped(shown, move.rows, dict(move.moved), dict(move.unfit), dict(move.occupied))


class _Move:
    """Makes the rows with their new values, and counts them."""

    def __init__(self, table: Table, columns: Sequence[str], dialect: Dialect) -> None:
        self._table = table
        self._targets = {name: dialect.target(table.columns[name].type) for name in columns}
        self.rows = 0
        self.moved: Counter[str] = Counter(dict.fromkeys(columns, 0))
        self.unfit: Counter[str] = Counter()
        self.occupied: Counter[str] = Counter()

    def batches(self, kept: UnmappedStore) -> Iterator[pa.RecordBatch]:
        for batch in kept.rows(self._table, list(self._targets)):
            changed = self._changed(batch)
            if changed.num_rows:
                self.rows += changed.num_rows
                yield changed

    def _changed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        unmapped = batch.column(UNMAPPED)
        held = parse_unmapped(unmapped).by_key
        columns: list[pa.Array] = []
        filled = {}
        for name, target in self._targets.items():
            member = held.get(name)
            if member is None:
                columns.append(pa.nulls(batch.num_rows, target.arrow))
                continue
            free = batch.column(name).to_numpy(zero_copy_only=False)
            movable = member.where(free)
            values = movable.as_column(target)
            columns.append(values)
            filled[name] = _filled(values)
            moved = int(filled[name].sum())
            self.moved[name] += moved
            self.unfit[name] += len(movable) - moved
            self.occupied[name] += len(member) - len(movable)
        touched = np.logical_or.reduce(list(filled.values())) if filled else np.zeros(batch.num_rows, np.bool_)
        names = [ROW, *(self._table.columns[name].name for name in self._targets), UNMAPPED]
        arrays = [batch.column(ROW), *columns, without_members(unmapped, filled)]
        return pa.RecordBatch.from_arrays(arrays, names=names).filter(pa.array(touched))


def _change(
    table: Table, key: UnmappedKey, dialect: Dialect, rules: RemapRules, room: int
) -> tuple[AddColumn | WidenColumn | None, str]:
    """The schema change that a key needs, if any, or why it is left alone."""
    if not _COLUMN_NAME.fullmatch(key.name) or key.type is None or key.name == UNMAPPED:
        return None, _not_a_column(key)
    if key.column is not None:
        if dialect.target(key.column.type).type is None:
            return None, f"its column has the type {key.column.type}, which Penstock does not convert to"
        wider = dialect.wider_type(key.column.type, key.needed) if key.needed else None
        if wider is None:
            nothing_fits = key.lossy == key.values
            return None, f"its column is {key.column.type} and cannot be made wider for them" if nothing_fits else ""
        return WidenColumn(table.name, TypedColumn(key.column.name, wider), key.column.type), ""
    if key.name in dialect.reserved or key.name in table.computed:
        return None, "a name that the engine reserves for itself"
    if room <= 0:
        return None, f"the table has max_columns ({rules.max_columns}) columns"
    asked = rules.asked.get(key.name)
    new = dialect.cast_type(asked) if asked else dialect.types[key.type]
    if dialect.target(new).type is None:
        return None, f"its column would get the type {new}, which Penstock does not convert to"
    return AddColumn(table.name, TypedColumn(key.name, new)), ""


def _not_a_column(key: UnmappedKey) -> str:
    if key.name.startswith("/"):
        return "a JSON path: another path has its column's name"
    return "JSON that the engine cannot read, kept as text" if not key.name else "not the name of a column"


def _column(table: Table, name: str) -> TypedColumn | None:
    return table.columns.get(name) if name != UNMAPPED else None


def _wider(one: InnerType | None, other: InnerType) -> InnerType:
    return other if one is None else promote(one, other)


def _filled(values: pa.Array) -> np.ndarray:
    found: np.ndarray = values.is_valid().to_numpy(zero_copy_only=False)
    return found


_COLUMN_NAME = re.compile(r"[a-z0-9_]+")
