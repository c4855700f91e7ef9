"""Somebody else at work in the database that routes load into."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import psycopg

from tests.chaos.project import EACH, LATEST, TABLES
from tests.chaos.scene import Hazard, Scene
from tests.support.waiting import eventually


class LockedTable(Hazard):
    """Somebody locks a table of PostgreSQL's for a while. The others go on."""

    name = "locked table"
    lasts = True

    def strike(self, scene: Scene) -> str:
        assert scene.project.database is not None
        prefix, table, seconds = scene.rng.choice((EACH, LATEST)), scene.rng.choice(TABLES), scene.rng.uniform(5, 40)
        locked = f"{prefix}_{table}"
        with (
            psycopg.connect(scene.project.database, autocommit=True) as watching,
            psycopg.connect(scene.project.database) as locking,
        ):
            eventually(lambda: _has_table(watching, locked), f"there is a table {locked}")
            locking.execute(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE".encode())
            before, waited = _loads(watching, prefix), 0
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                time.sleep(0.1)
                waited += _waits(watching, locked)
            after = _loads(watching, prefix)
            locking.rollback()
        others = sum((after - before).values()) - (after - before)[locked]
        scene.locks.update(waited=waited, passed=others)
        seen = f"somebody waited in {waited} looks" if waited else "nobody wanted it"
        return f"{locked} for {seconds:.0f} s, {seen}; meanwhile {others} rows into its neighbours"


def _has_table(connection: psycopg.Connection[Any], table: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
    return row is not None and row[0] is not None


def _waits(connection: psycopg.Connection[Any], table: str) -> bool:
    query = "SELECT count(*) FROM pg_locks WHERE relation = %s::regclass AND NOT granted"
    row = connection.execute(query, (table,)).fetchone()
    return row is not None and row[0] > 0


def _loads(connection: psycopg.Connection[Any], route: str) -> Counter[str]:
    """Rows per table of that route, as its own marks at the target say."""
    query = "SELECT table_name, sum(loaded) FROM _penstock_loads WHERE route = %s GROUP BY 1"
    return Counter({table: int(loaded) for table, loaded in connection.execute(query, (route,)).fetchall()})
