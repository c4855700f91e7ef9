"""The SQL that applies staged changes to a table, as far as engines share it.

``t`` is the table's row, ``s`` the staged one. Staged relations are given by their quoted names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.destinations.sql.dialect import Dialect, assignments
from penstock.destinations.sql.mirror.row_changes import GAPS, NUMBER, ORIGIN, TIMES, Changes
from penstock.flatten.inner_types import InnerType
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

Identity = Callable[[str], Sequence[str]]
"""The engine's expressions over a row, given by its alias, that are all equal for equal rows and only for those."""

_FILLED = "filled"
"""Replaces the marks of a row whose gaps were filled from the table."""


def coming_columns(dialect: Dialect, changes: Changes) -> str:
    """What to select from the table to get the columns of the rows that come."""
    listed = [dialect.identifier(changes.table.columns[name].name) for name in (*changes.columns, *changes.others)]
    if changes.fills:
        listed.append(f"CAST('' AS {dialect.types[InnerType.STRING]}) AS {dialect.identifier(GAPS)}")
    if changes.moves:
        listed += [f"{name} AS {origin}" for name, origin in _origins(dialect, changes)]
    return ", ".join(listed)


def gone_columns(dialect: Dialect, changes: Changes) -> str:
    """The same for the rows that go."""
    if changes.key:
        return dialect.real_names(changes.table, changes.key)
    counts = [f"CAST(0 AS {dialect.types[InnerType.INT64]}) AS {dialect.identifier(name)}" for name in (TIMES, NUMBER)]
    return ", ".join([dialect.real_names(changes.table, changes.columns), *counts])


def fill_gaps(dialect: Dialect, changes: Changes, staged: str) -> Iterator[str]:
    """Fill the gaps of incoming rows from the table's row at their old place. If there is none, a row that moves has
    moved already, because its change is applied again: then from the one at its place, if no change took that away."""
    gaps = f"s.{dialect.identifier(GAPS)}"
    kept = {name: f"substr({gaps}, {place}, 1)" for place, name in enumerate(changes.gaps, 1)}
    values = {}
    for name in (name for name in changes.gaps if name in changes.table.columns):
        mark, real = kept[name], dialect.identifier(changes.table.columns[name].name)
        values[real] = f"CASE WHEN {mark} = '1' THEN t.{real} ELSE s.{real} END"
    if UNMAPPED in changes.table.columns:
        # What _unmapped keeps for a column stays if the column does.
        carried = {
            name: f"NULLIF({kept[name]}, '1')" if name in kept else "''"
            for name in (*changes.columns, *changes.others, *changes.aside)
            if name != UNMAPPED
        }
        real = dialect.identifier(changes.table.columns[UNMAPPED].name)
        values[real] = dialect.merged_unmapped(f"t.{real}", f"s.{real}", carried)
    values[dialect.identifier(GAPS)] = dialect.literal(_FILLED)
    update = f"UPDATE {staged} AS s SET {assignments(values)} FROM {dialect.relation(changes.table.name)} AS t"
    yield f"{update} WHERE {gaps} IS NOT NULL AND {_same(dialect, changes, changes.moves)}"
    if changes.moves:
        moved = f"{gaps} <> {dialect.literal(_FILLED)} AND substr({gaps}, {len(changes.gaps) + 1}, 1) = '1'"
        yield f"{update} WHERE {moved} AND {_same(dialect, changes, before_move=False)}"


def delete(dialect: Dialect, changes: Changes, staged: str) -> str:
    """Deletes the rows of these keys from the table."""
    table = dialect.relation(changes.table.name)
    return f"DELETE FROM {table} AS t USING {staged} AS s WHERE {dialect.key_match(changes.table, changes.key)}"


def select_left(dialect: Dialect, changes: Changes, staged: str) -> str:
    """Selects a row of these keys, if the table still has one."""
    table = dialect.relation(changes.table.name)
    return f"SELECT 1 FROM {table} AS t JOIN {staged} AS s ON {dialect.key_match(changes.table, changes.key)} LIMIT 1"


@dataclass(frozen=True)
class EqualRows:
    """Deletes rows of a table without a key: as many as ``TIMES`` says, of those that are equal in all columns.

    Staged rows that are equal to the engine count together, whatever their values were before they were converted.
    """

    dialect: Dialect
    changes: Changes
    staged: str
    chosen: str
    """The relation that keeps what ``choose`` selects."""
    place: Sequence[str]
    """The engine's expressions for where a row is."""
    identity: Identity
    equals: str
    """The engine's operator for parts of the identity."""

    def choose(self) -> str:
        """Selects the places of the rows that go, each with the number of a staged row that it is equal to."""
        alike = " AND ".join(
            f"{ours} {self.equals} due.{part}" for ours, part in zip(self.identity("t"), self._parts, strict=True)
        )
        placed = ", ".join(f"t.{part} AS {name}" for part, name in zip(self.place, self._places, strict=True))
        ranked = (
            f"SELECT {placed}, due.number, due.times, row_number() OVER (PARTITION BY due.number) AS rank"
            f" FROM {self._table} AS t JOIN ({self._due}) AS due ON {alike}"
        )
        return f"SELECT {', '.join(self._places)}, number FROM ({ranked}) AS ranked WHERE rank <= times"

    def delete(self) -> str:
        """Deletes the chosen rows."""
        where = ", ".join(f"t.{part}" for part in self.place)
        return (
            f"DELETE FROM {self._table} AS t WHERE ({where}) IN (SELECT {', '.join(self._places)} FROM {self.chosen})"
        )

    def select_lacking(self) -> str:
        """Selects the numbers of staged rows of which too few were chosen, each with how many are lacking."""
        return (
            f"SELECT due.number, due.times - count(chosen.number) FROM ({self._due}) AS due"
            f" LEFT JOIN {self.chosen} AS chosen ON chosen.number = due.number"
            " GROUP BY due.number, due.times HAVING count(chosen.number) < due.times"
        )

    @property
    def _table(self) -> str:
        return self.dialect.relation(self.changes.table.name)

    @property
    def _places(self) -> Sequence[str]:
        return [f"place{number}" for number, _ in enumerate(self.place)]

    @property
    def _parts(self) -> Sequence[str]:
        return [f"part{number}" for number, _ in enumerate(self.identity("s"))]

    @property
    def _due(self) -> str:
        values = self.identity("s")
        named = ", ".join(f"{value} AS {part}" for value, part in zip(values, self._parts, strict=True))
        times, number = (f"s.{self.dialect.identifier(name)}" for name in (TIMES, NUMBER))
        return (
            f"SELECT {named}, sum({times}) AS times, min({number}) AS number"
            f" FROM {self.staged} AS s GROUP BY {', '.join(values)}"
        )


def insert_selects(dialect: Dialect, changes: Changes, staged: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Pairs of columns of the table (by our names) and the SELECT of the staged rows that go into them."""
    gaps = f"s.{dialect.identifier(GAPS)}"
    if changes.others:
        whole = (*changes.columns, *changes.others)
        filled = f"COALESCE({gaps}, '') = {dialect.literal(_FILLED)}"
        yield whole, f"{_selected(dialect, changes, whole, staged)} WHERE {filled}"
        yield changes.columns, f"{_selected(dialect, changes, changes.columns, staged)} WHERE NOT {filled}"
    else:
        yield changes.columns, _selected(dialect, changes, changes.columns, staged)


def _selected(dialect: Dialect, changes: Changes, columns: Sequence[str], staged: str) -> str:
    return f"SELECT {dialect.real_names(changes.table, columns)} FROM {staged} AS s"


def _same(dialect: Dialect, changes: Changes, before_move: bool) -> str:
    """The condition for the table's row that fills the gaps of a staged one: at its place, or where it moves from."""
    return " AND ".join(
        f"t.{name} = {f'COALESCE(s.{origin}, s.{name})' if before_move else f's.{name}'}"
        for name, origin in _origins(dialect, changes)
    )


def _origins(dialect: Dialect, changes: Changes) -> Sequence[tuple[str, str]]:
    names = [changes.table.columns[name].name for name in changes.key]
    return [(dialect.identifier(name), dialect.identifier(ORIGIN + name)) for name in names]
