"""Statements over all rows that a source has in a table."""

from __future__ import annotations

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.state.store.contract import INACTIVE_SINCE, SOURCE
from penstock.destinations.state.store.fit_state import StateTable
from penstock.destinations.state.store.state_connection import StateConnection, Statement


def select_any(dialect: Dialect, found: StateTable, source: str) -> Statement:
    """Selects one of the rows, if there is any."""
    text = f"SELECT 1 FROM {dialect.relation(found.name)} WHERE {_of_source(dialect, found)} LIMIT 1"
    return Statement(text, {"source": source})


def delete(dialect: Dialect, found: StateTable, source: str) -> Statement:
    text = f"DELETE FROM {dialect.relation(found.name)} WHERE {_of_source(dialect, found)}"
    return Statement(text, {"source": source})


def mark(dialect: Dialect, found: StateTable, source: str) -> Statement:
    """Marks the rows as those of a source that fell silent now."""
    return _set_mark(dialect, found, source, "now()")


def unmark_rows(connection: StateConnection, source: str) -> None:
    """Take the marks from the rows of a source, in all tables."""
    for (name,) in connection.fetch(connection.books.tables_of_source, source=source):
        found = connection.state_table(str(name))
        if found is not None and INACTIVE_SINCE in found.table.columns:
            connection.ask(_set_mark(connection.dialect, found, source, "NULL"))


def _set_mark(dialect: Dialect, found: StateTable, source: str, value: str) -> Statement:
    name = dialect.identifier(found.table.columns[INACTIVE_SINCE].name)
    where = f"{_of_source(dialect, found)} AND {name} IS DISTINCT FROM {value}"
    return Statement(f"UPDATE {dialect.relation(found.name)} SET {name} = {value} WHERE {where}", {"source": source})


def _of_source(dialect: Dialect, found: StateTable) -> str:
    return f"{dialect.identifier(found.table.columns[SOURCE].name)} = {dialect.parameter('source')}"
