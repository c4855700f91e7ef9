"""Keys that differ to us and are equal to PostgreSQL: their rows are merged in the order of the log, like those of one
key, over all partitions and with a version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from penstock.destinations.contract import Part
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.testing.destination import Staging, batch, events
from tests.support.database import Database

Places = npt.NDArray[np.int64]


class ByRound:
    """Record ``n`` of the log is at offset ``n // 2`` of partition ``(n + 1) % 2``: the other partition is older."""

    def ranks(self, partitions: Places, offsets: Places) -> Places:
        return offsets * 2 + (partitions + 1) % 2


def staged(
    database: Database, tmp_path: Path, rows: list[dict[str, Any]], adopt: bool = True, number: int = 0, **options: Any
) -> tuple[PostgresDestination, list[Part]]:
    """The rows, given in turn to two partitions."""
    settings = {"url": database.dsn, "database_schema": database.schema, "table": "events", "primary_key": ["id"]}
    adopted = {"adopt": ["events"]} if adopt else {}
    destination = PostgresDestination(PostgresConfig.model_validate({**settings, **adopted, **options}))
    staging = Staging(destination, tmp_path / "stage")
    parts = [
        part
        for partition in (0, 1)
        for part in staging.stage(events(*rows[1 - partition :: 2]), partition, number * len(rows))
    ]
    return destination, parts


def deliver(
    database: Database, tmp_path: Path, rows: list[dict[str, Any]], adopt: bool = True, number: int = 0, **options: Any
) -> None:
    """Deliver the rows as one batch."""
    destination, parts = staged(database, tmp_path, rows, adopt, number, **options)
    (receipt,) = destination.write(replace(batch(number), order=ByRound()), parts).tables
    assert (receipt.rows, receipt.failures) == (len(rows), None)


@pytest.fixture
def schema(database: Database) -> Database:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    return database


def make_table(database: Database, kind: str) -> None:
    if kind == "text COLLATE nocase":
        database.ask("CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    database.ask(f"CREATE TABLE events (id {kind} PRIMARY KEY, v bigint, a bigint, b bigint)")


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("character(8)", "bob", "bob "),
        ("text COLLATE nocase", "Bob@x", "bob@x"),
        ("text", "k", "k\x00"),
        ("text", "k\x00", "\x00k"),
        ("uuid", "00000000-0000-0000-0000-00000000000A", "00000000-0000-0000-0000-00000000000a"),
    ],
)
@pytest.mark.parametrize("order", ["one one other", "other one one", "other one"])
def test_the_newest_record_of_the_log_wins(
    schema: Database, tmp_path: Path, kind: str, one: str, other: str, order: str
) -> None:
    make_table(schema, kind)
    keys = [{"one": one, "other": other}[name] for name in order.split()]
    deliver(schema, tmp_path, [{"id": key, "v": number} for number, key in enumerate(keys)])
    assert schema.ask("SELECT v FROM events") == [(len(keys) - 1,)]


def test_so_it_does_in_a_table_of_our_own(database: Database, tmp_path: Path) -> None:
    rows = [{"id": "k", "v": 1}, {"id": "k", "v": 2}, {"id": "k\x00", "v": 3}]
    deliver(database, tmp_path, rows, adopt=False)
    assert database.ask("SELECT id, v FROM events") == [("k", 3)]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_record_beside_them_that_has_no_key_fails_alone(database: Database, tmp_path: Path, place: int) -> None:
    rows: list[dict[str, Any]] = [{"id": "k", "v": 1}, {"id": "k\x00", "v": 2}]
    rows.insert(place, {"v": 3})
    destination, parts = staged(database, tmp_path, rows, adopt=False)
    (receipt,) = destination.write(replace(batch(), order=ByRound()), parts).tables
    assert receipt.failures is not None
    assert (receipt.rows, receipt.failures.column("code").to_pylist()) == (2, ["no_key"])
    assert database.ask("SELECT id, v FROM events") == [("k", 2)]


@pytest.mark.parametrize("version", [None, "v"])
@pytest.mark.parametrize("seed", range(4))
def test_many_keys_end_as_if_each_record_had_been_merged_by_itself(
    schema: Database, tmp_path: Path, seed: int, version: str | None
) -> None:
    """Over several batches, with fields that a record leaves out."""
    random = Random(seed)
    make_table(schema, "character(4)")
    options = {"version_column": version} if version else {}
    wanted: dict[str, dict[str, Any]] = {}
    for number in range(3):
        rows = []
        for _ in range(20):
            row: dict[str, Any] = {"id": random.choice("abc") + " " * random.randint(0, 3), "v": random.randint(0, 9)}
            row |= {name: random.randint(0, 99) for name in "ab" if random.random() < 0.6}
            rows.append(row)
            known = wanted.setdefault(row["id"].strip(), {})
            if version is None or row["v"] >= known.get("v", 0):
                known |= row
        deliver(schema, tmp_path, rows, number=number, **options)
    found = schema.ask("SELECT trim(id), v, a, b FROM events ORDER BY id")
    assert found == [(key, row["v"], row.get("a"), row.get("b")) for key, row in sorted(wanted.items())]
