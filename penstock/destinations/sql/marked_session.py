"""Marks read by plain SQL, which engines understand alike: sessions differ in how they write them, not in this."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from penstock.destinations.contract import Batch
from penstock.destinations.sql.marks import MARKS, Mark, mark_from_row
from penstock.destinations.sql.session import Session


class MarkedSession(Session):
    _mark_rows: ClassVar[str] = "AS m"
    """What a query says after the table of marks."""
    _mark_order: ClassVar[str] = "m.batch, m.table_name"

    def newest_marks(self) -> list[Mark]:
        newest = f"SELECT scope, route, MAX(batch) AS batch FROM {self._marks} GROUP BY scope, route"
        joined = f"JOIN ({newest}) AS n ON n.scope = m.scope AND n.route = m.route AND n.batch = m.batch"
        return self._list_marks("''", joined)

    def newest_batch(self, scope: str, route: str) -> int:
        if self.table(MARKS) is None:
            return 0
        query = f"SELECT MAX(m.batch) FROM {self._marks} {self._mark_rows} WHERE {self._is('scope', 'route')}"
        ((newest,),) = self.select(query, scope=scope, route=route)
        return int(str(newest or 0))

    def marks(self, scope: str, route: str) -> list[Mark]:
        return self._list_marks("m.failures", f"WHERE {self._is('scope', 'route')}", scope=scope, route=route)

    def _list_marks(self, failures: str, which: str, **values: str) -> list[Mark]:
        found = self.table(MARKS)
        if found is None:
            return []
        # Marks of an older release have no origin.
        origin = "COALESCE(m.origin, '')" if "origin" in found.columns else "''"
        return self._read_marks(origin, failures, which, **values)

    def _stored_mark(self, batch: Batch, table: str) -> Mark | None:
        """The mark of a batch in a table of marks that is there, and has origins."""
        which = f"WHERE {self._is('scope', 'route', 'table_name')} AND m.batch = {batch.number:d}"
        values = {"scope": batch.scope, "route": batch.route, "table_name": table}
        found = self._read_marks("COALESCE(m.origin, '')", "m.failures", which, **values)
        return replace(found[0], batch=replace(batch, origin=found[0].batch.origin)) if found else None

    def _read_marks(self, origin: str, failures: str, which: str, **values: str) -> list[Mark]:
        rows = self.select(
            f"SELECT m.scope, m.route, m.batch, {origin}, m.table_name, m.loaded, COALESCE({failures}, '')"
            f" FROM {self._marks} {self._mark_rows} {which} ORDER BY {self._mark_order}",
            **values,
        )
        return [mark_from_row(row) for row in rows]

    def _is(self, *columns: str) -> str:
        return " AND ".join(f"m.{column} = {self.dialect.parameter(column)}" for column in columns)

    @property
    def _marks(self) -> str:
        return self.dialect.relation(MARKS)
