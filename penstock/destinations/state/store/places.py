"""Where the state of sources is kept, and how to open it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.destinations.state.store.contract import StateStore


@dataclass(frozen=True)
class PostgresPlace:
    url: str = field(repr=False)
    database_schema: str = "public"
    lock_timeout: float = 10.0
    """Seconds to wait for a row or a table that somebody has locked."""
    connect_timeout: float = 10.0


@dataclass(frozen=True)
class DuckdbPlace:
    path: Path


def open_store(place: PostgresPlace | DuckdbPlace, connections: int = 1) -> AbstractContextManager[StateStore]:
    """Open the database for so many writers at once, and make the tables of versions and positions if they are not
    there. Raises ``TransientError`` if it cannot be reached now. An embedded database has one connection: writers take
    turns."""
    match place:
        case PostgresPlace():
            from penstock.destinations.state.store.postgres_store import open_postgres_store

            return open_postgres_store(place, connections)
        case DuckdbPlace():
            from penstock.destinations.state.store.duckdb_store import open_duckdb_store

            return open_duckdb_store(place.path)
