"""One server for these tests, and a database in it for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.sources.postgres.rig import Rig
from tests.support.postgres import LOGICAL, postgres


@pytest.fixture(scope="session")
def logical_url() -> Iterator[str]:
    with postgres(settings={**LOGICAL, "wal_sender_timeout": "5s"}) as url:
        yield url


@pytest.fixture
def rig(logical_url: str, tmp_path: Path) -> Iterator[Rig]:
    name = f"t{uuid.uuid4().hex[:12]}"
    with psycopg.connect(logical_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield Rig(logical_url.replace("/postgres", f"/{name}"), tmp_path)
    with psycopg.connect(logical_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = %s", (name,)
        )
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active AND database = %s",
            (name,),
        )
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
