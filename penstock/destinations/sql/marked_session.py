"""Marks read by plain SQL, which engines understand alike: sessions differ in how they write them, not in this."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from penstock.destinations.contract import Batch
from penstock.destinations.sql.marks import MARKS, Mark, mark_from_row
from penstock.destinations.sql.session import Session


class MarkedSession(Session):
    _mark_rows: ClassVar[str] = "AS m"
    """What a query says behind the table of marks."""
    _mark_order: ClassVar[str] = "m.batch, m.table_name"

    def newest_marks(self) -> list[Mark]:
        newest = f"SELECT scope, route, MAX(batch) AS batch FROM {self._marks} GROUP BY scope, route"
        joined = f"JOIN ({newest}) AS n ON n.scope = m.scope AND n.route = m.route AND n.batch = m.batch"
        return self._list_marks("''", joined)

    def marks(self, scope: str, route: str) -> list[Mark]:
        return self._list_marks("m.failures", f"WHERE {self._of_route(scope, route)}")

    def _list_marks(self, failures: str, which: str) -> list[Mark]:
        found = self.table(MARKS)
        if found is None:
            return []
        # Marks of an older release have no origin.
        return self._read_marks("COALESCE(m.origin, '')" if "origin" in found.columns else "''", failures, which)

    def _stored_mark(self, batch: Batch, table: str) -> Mark | None:
        """The mark of a batch in a table of marks that is there, and has origins."""
        this = f"m.batch = {batch.number:d} AND m.table_name = {self.dialect.literal(table)}"
        which = f"WHERE {self._of_route(batch.scope, batch.route)} AND {this}"
        found = self._read_marks("COALESCE(m.origin, '')", "m.failures", which)
        return replace(found[0], batch=replace(batch, origin=found[0].batch.origin)) if found else None

    def _read_marks(self, origin: str, failures: str, which: str) -> list[Mark]:
        rows = self.select(
            f"SELECT m.scope, m.route, m.batch, {origin}, m.table_name, m.loaded, COALESCE({failures}, '')"
            f" FROM {self._marks} {self._mark_rows} {which} ORDER BY {self._mark_order}"
        )
        return [mark_from_row(row) for row in rows]

    def _of_route(self, scope: str, route: str) -> str:
        return f"m.scope = {self.dialect.literal(scope)} AND m.route = {self.dialect.literal(route)}"

    @property
    def _marks(self) -> str:
        return self.dialect.relation(MARKS)
