"""Somebody else at work in the database that routes load into."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg

from penstock.testing.waiting import eventually
from tests.chaos.project import EACH, LATEST, TABLES
from tests.chaos.scene import PATIENCE, Hazard, Scene


class LockedTable(Hazard):
    """Somebody locks a table of PostgreSQL's for a while. The others go on."""

    name = "locked table"
    lasts = True

    def strike(self, scene: Scene) -> str:
        assert scene.project.database is not None
        prefix, table, seconds = scene.rng.choice((EACH, LATEST)), scene.rng.choice(TABLES), scene.rng.uniform(5, 40)
        locked, neighbours = f"{prefix}_{table}", [f"{prefix}_{other}" for other in TABLES if other != table]
        with (
            psycopg.connect(scene.project.database, autocommit=True) as watching,
            psycopg.connect(scene.project.database) as locking,
        ):
            for each in (locked, *neighbours):
                eventually(lambda name=each: _has_table(watching, name), f"there is a table {each}", PATIENCE)  # type: ignore[misc]
            locking.execute(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE".encode())
            before, waited, began = _newest(watching, neighbours), 0, time.monotonic()

            def had_effect() -> bool:
                nonlocal waited
                waited += _waits(watching, locked)
                return time.monotonic() - began > seconds and waited > 0 and _newest(watching, neighbours) > before

            # Longer, if the engine was down: somebody must have wanted the table, and others must have had their rows.
            eventually(had_effect, f"a route waits for {locked} and loads its neighbours", PATIENCE, every=0.1)
            passed = _newest(watching, neighbours) - before
            locking.rollback()
        took = time.monotonic() - began
        return f"{locked} for {took:.0f} s, wanted in {waited} looks; its neighbours came {passed} events further"


def _has_table(connection: psycopg.Connection[Any], table: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
    return row is not None and row[0] is not None


def _waits(connection: psycopg.Connection[Any], table: str) -> bool:
    query = "SELECT count(*) FROM pg_locks WHERE relation = %s::regclass AND NOT granted"
    row = connection.execute(query, (table,)).fetchone()
    return row is not None and row[0] > 0


def _newest(connection: psycopg.Connection[Any], tables: Sequence[str]) -> int:
    """The number of the newest event in these tables."""
    found = [connection.execute(f"SELECT max(n) FROM {table}".encode()).fetchone() for table in tables]
    return max(int(row[0] or 0) for row in found if row is not None)
