"""A schema in a running PostgreSQL, to look at what a destination did there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg


@dataclass(frozen=True)
class Database:
    """A schema in a running server."""

    dsn: str
    schema: str

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query, or several statements without a result, with the schema in the search path."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'SET search_path = "{self.schema}"'.encode())
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def columns(self, table: str = "events") -> dict[str, str]:
        return dict(
            self.ask(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                f" WHERE attrelid = '{self.schema}.\"{table}\"'::regclass AND attnum > 0 ORDER BY attnum"
            )
        )
