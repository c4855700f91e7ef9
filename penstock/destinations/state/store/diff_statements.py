"""The SQL that brings the rows of a source, or of several, in line with staged ones, and writes only what differs.

``t`` is the table's row, ``s`` the staged one. One source is the parameter ``source``. Several are ``sources``: then
the staged rows say whose they are, and every statement that changes rows returns the source of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.conflation.fold_rows import Said
from penstock.destinations.sql.dialect import Dialect, assignments
from penstock.destinations.sql.schema.schema_operations import Table
from penstock.destinations.state.store.contract import SOURCE

STAGED = "_penstock_staged"
"""The name of a temporary table of staged rows."""
SAID = "_penstock_said"
"""The column of staged rows that has what they say; missing if all say how their object is."""


@dataclass(frozen=True)
class DiffStatements:
    dialect: Dialect
    table: Table
    key: Sequence[str]
    """By our names, without the source."""
    columns: Sequence[str]
    """The columns of the staged rows, by the table's names."""
    lacking: Sequence[str]
    """Columns that become null, by the table's names."""
    staged: str
    """What to select the staged rows from."""
    mixed: bool
    """Whether staged rows say different things of their objects."""
    several: bool = False
    """Whether the rows are those of several sources."""
    comparable: Callable[[str, str], str] = lambda value, sql_type: value
    """A value of a type as an expression that is equal for equal values only."""

    def delete_unlisted(self) -> str:
        """Deletes the source's rows that no staged row puts or lists."""
        there = f"SELECT 1 FROM {self._staged} WHERE {self._same}{self._unless(Said.DELETE)}"
        return f"DELETE FROM {self._relation} WHERE {self._of_source} AND NOT EXISTS ({there}){self._returning}"

    def delete_named(self) -> str | None:
        """Deletes the rows that staged ones say are gone; ``None`` if none says so."""
        if not self.mixed:
            return None
        named = f"{self._same}{self._only(Said.DELETE)}"
        return f"DELETE FROM {self._relation} USING {self._staged} WHERE {self._of_source} AND {named}{self._returning}"

    def update(self) -> str | None:
        """Updates rows that differ from the staged ones; ``None`` if a row is nothing but its key."""
        values, differing = self._differences()
        if not values:
            return None
        return (
            f"UPDATE {self._relation} SET {assignments(values)} FROM {self._staged} WHERE {differing}{self._returning}"
        )

    def count_differing(self) -> str | None:
        """Counts the rows that ``update`` is to change; ``None`` if a row is nothing but its key."""
        values, differing = self._differences()
        return f"SELECT count(*) FROM {self._relation}, {self._staged} WHERE {differing}" if values else None

    def insert(self) -> str:
        """Inserts the staged rows whose key the table does not have."""
        names = self.dialect.names(self.columns)
        values = ", ".join(f"s.{self.dialect.identifier(name)}" for name in self.columns)
        there = f"SELECT 1 FROM {self._relation} WHERE {self._of_source} AND {self._same}"
        return (
            f"INSERT INTO {self.dialect.relation(self.table.name)} ({self._source}, {names})"
            f" SELECT {f's.{self._source}' if self.several else self._given}, {values} FROM {self._staged}"
            f" WHERE NOT EXISTS ({there}){self._only(Said.PUT)}{f' RETURNING {self._source}' if self.several else ''}"
        )

    def select_ignored(self, prunes: bool) -> str:
        """Selects a row that should have been inserted or deleted, if something has kept it from that."""
        there = f"SELECT 1 FROM {self._relation} WHERE {self._of_source} AND {self._same}"
        lacks = f"SELECT 1 FROM {self._staged} WHERE NOT EXISTS ({there}){self._only(Said.PUT)}"
        stays = f"SELECT 1 FROM {self._staged} WHERE EXISTS ({there}){self._only(Said.DELETE)}" if self.mixed else None
        if prunes:
            kept = f"SELECT 1 FROM {self._staged} WHERE {self._same}{self._unless(Said.DELETE)}"
            stays = f"SELECT 1 FROM {self._relation} WHERE {self._of_source} AND NOT EXISTS ({kept})"
        return f"{lacks} UNION ALL {stays} LIMIT 1" if stays else f"{lacks} LIMIT 1"

    def _differences(self) -> tuple[dict[str, str], str]:
        """What rows get that differ from the staged ones, and the condition that they differ."""
        keys = {self.table.columns[name].name for name in self.key}
        types = {column.name: column.type for column in self.table.columns.values()}
        values, differs = {}, []
        for name in (column for column in self.columns if column not in keys):
            quoted = self.dialect.identifier(name)
            values[quoted] = f"s.{quoted}"
            there, comes = (self.comparable(f"{row}.{quoted}", types[name]) for row in ("t", "s"))
            differs.append(f"{there} IS DISTINCT FROM {comes}")
        for name in self.lacking:
            quoted = self.dialect.identifier(name)
            values[quoted] = "NULL"
            differs.append(f"t.{quoted} IS NOT NULL")
        return values, f"{self._of_source} AND {self._same}{self._only(Said.PUT)} AND ({' OR '.join(differs)})"

    @property
    def _relation(self) -> str:
        return f"{self.dialect.relation(self.table.name)} AS t"

    @property
    def _staged(self) -> str:
        return f"{self.staged} AS s"

    @property
    def _source(self) -> str:
        return self.dialect.identifier(self.table.columns[SOURCE].name)

    @property
    def _given(self) -> str:
        return f"CAST({self.dialect.parameter('source')} AS text)"

    @property
    def _of_source(self) -> str:
        if self.several:
            return f"t.{self._source} IN (SELECT unnest(CAST({self.dialect.parameter('sources')} AS text[])))"
        return f"t.{self._source} = {self._given}"

    @property
    def _same(self) -> str:
        return self.dialect.key_match(self.table, (SOURCE, *self.key) if self.several else self.key)

    @property
    def _returning(self) -> str:
        return f" RETURNING t.{self._source}" if self.several else ""

    def _only(self, said: Said) -> str:
        return f" AND s.{self.dialect.identifier(SAID)} = {int(said)}" if self.mixed else ""

    def _unless(self, said: Said) -> str:
        return f" AND s.{self.dialect.identifier(SAID)} <> {int(said)}" if self.mixed else ""
