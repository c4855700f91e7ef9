"""Updates of existing rows, as a source of table changes sends them, into PostgreSQL and DuckDB tables.

In one run, by turns: Penstock (staging the records and applying them, one batch, without Spark), and the limit: the
same rows, finished and typed beforehand, applied by the statements that a person would write. Every table is looked at
afterwards; a row that is not the newest ends the benchmark.
"""

from __future__ import annotations

import io
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
from pyarrow import csv

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns, seconds_of
from penstock.destinations.contract import AnyDestination, Batch
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.record import ENTRY_SCHEMA, placed
from tests.support.postgres import postgres

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
COLUMNS = {
    "id": "bigint", "name": "text", "version": "integer", "price": "numeric(12,2)",
    "at": "timestamp with time zone", "ok": "boolean", "note": "text",
}  # fmt: skip
TABLE = "items"
GOAL_POSTGRES, GOAL_DUCKDB = 60_000, 100_000
FRAME = 20_000
"""Records that a task gets at once."""


@dataclass(frozen=True)
class Sizes:
    rows: int
    changes: int
    rounds: int


def run(setting: Setting) -> list[Comparison]:
    # The server's user has to be able to reach its folder.
    setting.folder.chmod(0o711)
    sizes = Sizes(20_000, 4_000, 1) if setting.quick else Sizes(1_000_000, 100_000, 5)
    with postgres(fsync=True, settings=SETTINGS, parent=setting.folder) as url:
        into_postgres = _compared("mirror, postgres", Postgres(url), setting, sizes, GOAL_POSTGRES)
    into_duckdb = _compared("mirror, duckdb", Duckdb(setting.folder / "mirror.duckdb"), setting, sizes, GOAL_DUCKDB)
    return [into_postgres, into_duckdb]


def _compared(name: str, target: Postgres | Duckdb, setting: Setting, sizes: Sizes, goal: int) -> Comparison:
    replica = Replica(target.destination(), setting.folder, sizes)
    for start in range(0, sizes.rows, 250_000):
        replica.apply(np.arange(start, min(start + 250_000, sizes.rows)), 0, "insert")

    def rate_of(work: Callable[[np.ndarray, int], Callable[[], object]]) -> Callable[[], float]:
        def measure() -> float:
            ids, version = replica.some()
            seconds = seconds_of(work(ids, version))
            stale = target.stale(ids, version)
            if stale:
                raise AssertionError(f"{stale} rows of {name} are not what they were made")
            return sizes.changes / seconds

        return measure

    figures = by_turns(
        [
            Contender(Role.US, "records staged and applied, one batch", rate_of(replica.prepared)),
            Contender(Role.LIMIT, target.limit_name, rate_of(target.bare)),
        ],
        sizes.rounds,
        warm_up=1,
    )
    met = figures[0].value >= goal
    note = f"{sizes.changes:,} updates, at random, of {sizes.rows:,} rows of {len(COLUMNS)} columns"
    return Comparison(name, "changes/s", figures, Goal(f">= {goal:,}/s", met), (note,))


@dataclass
class Replica:
    """A destination that mirrors, and the changes that it gets."""

    destination: AnyDestination
    folder: Path
    sizes: Sizes
    _chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(20_26))
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _batches: Iterator[int] = field(default_factory=itertools.count)

    def some(self) -> tuple[np.ndarray, int]:
        """Rows to change, and the version that they shall have."""
        return self._chance.choice(self.sizes.rows, self.sizes.changes, replace=False), next(self._versions)

    def prepared(self, ids: np.ndarray, version: int) -> Callable[[], object]:
        """What is to be measured: the records are there already."""
        records = _records(ids, version, "update")
        return lambda: self._deliver(records)

    def apply(self, ids: np.ndarray, version: int, op: str) -> None:
        self._deliver(_records(ids, version, op))

    def _deliver(self, records: pa.RecordBatch) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder) as stage:
            stager = self.destination.stager(Path(stage), {})
            for start in range(0, records.num_rows, FRAME):
                stager.add(records.slice(start, FRAME))
            receipt = self.destination.write(Batch("bench", "mirror", next(self._batches), {}), stager.finish())
        if receipt.rows != records.num_rows:
            raise AssertionError(f"{receipt.rows} of {records.num_rows} changes were applied: {receipt.tables}")


class Postgres:
    limit_name = "COPY of the finished rows and one INSERT .. ON CONFLICT"

    def __init__(self, url: str) -> None:
        self._url = url

    def destination(self) -> AnyDestination:
        return PostgresDestination(PostgresConfig.model_validate({"url": self._url, "load": "mirror"}))

    def bare(self, ids: np.ndarray, version: int) -> Callable[[], object]:
        text = io.BytesIO()
        csv.write_csv(_table(ids, version), text, csv.WriteOptions(include_header=False))
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in list(COLUMNS)[1:])

        def work() -> None:
            with psycopg.connect(self._url) as connection, connection.cursor() as cursor:
                cursor.execute(f"CREATE TEMP TABLE s ON COMMIT DROP AS SELECT * FROM {TABLE} WITH NO DATA")
                with cursor.copy("COPY s FROM STDIN (FORMAT csv)") as copy:
                    copy.write(text.getbuffer())
                cursor.execute(f"INSERT INTO {TABLE} SELECT * FROM s ON CONFLICT (id) DO UPDATE SET {changes}")

        return work

    def stale(self, ids: np.ndarray, version: int) -> int:
        query = f"SELECT count(*) FROM {TABLE} WHERE version = %s"
        with psycopg.connect(self._url) as connection:
            found = connection.execute(query, (version,)).fetchone()
        return len(ids) - int(found[0] if found else 0)


class Duckdb:
    limit_name = "DELETE and INSERT of the finished rows, from Arrow"

    def __init__(self, path: Path) -> None:
        self._path = path

    def destination(self) -> AnyDestination:
        return DuckdbDestination(DuckdbConfig.model_validate({"path": self._path, "load": "mirror"}))

    def bare(self, ids: np.ndarray, version: int) -> Callable[[], object]:
        rows = _table(ids, version)

        def work() -> None:
            with closing(duckdb.connect(self._path)) as connection:
                connection.register("s", rows)
                connection.execute("BEGIN")
                connection.execute(f"DELETE FROM {TABLE} USING s WHERE {TABLE}.id = s.id")
                connection.execute(f"INSERT INTO {TABLE} SELECT * FROM s")
                connection.execute("COMMIT")

        return work

    def stale(self, ids: np.ndarray, version: int) -> int:
        with closing(duckdb.connect(self._path)) as connection:
            found = connection.execute(f"SELECT count(*) FROM {TABLE} WHERE version = ?", [version]).fetchall()
        return len(ids) - int(found[0][0])


def _rows(ids: Sequence[int], version: int) -> Iterator[tuple[int, str, int, float, str, bool, str]]:
    for number in ids:
        yield number, f"name {number} {version}", version, number % 1_000 / 4, _AT, True, "x" * 40


_AT = "2026-01-02T03:04:05.123456Z"


def _table(ids: np.ndarray, version: int) -> pa.Table:
    """The rows as a person would have them."""
    columns = [list(column) for column in zip(*_rows(ids.tolist(), version), strict=True)]
    table = pa.table(dict(zip(COLUMNS, columns, strict=True)))
    place = table.schema.get_field_index("at")
    return table.set_column(place, "at", table.column("at").cast(pa.timestamp("us", tz="UTC")))


def _records(ids: np.ndarray, version: int, op: str) -> pa.RecordBatch:
    """The rows as a source of changes sends them."""
    data = [
        json.dumps(dict(zip(COLUMNS, row, strict=True)), separators=(",", ":")).encode()
        for row in _rows(ids.tolist(), version)
    ]
    count = len(data)
    headers = pa.MapArray.from_arrays(
        pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32)),
        pa.array(["columns", "key"] * count),
        pa.array([json.dumps(COLUMNS), '["id"]'] * count),
    )
    columns = [
        pa.array(np.zeros(count, np.int64)).cast(pa.timestamp("us", tz="UTC")),
        *(pa.repeat(pa.scalar(word), count) for word in (f"public.{TABLE}", op, "sync")),
        pa.array([f'{{"id":{number}}}' for number in ids.tolist()]),
        headers,
        pa.array(data, pa.binary()),
    ]
    return placed(pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA), 0, 0)
