"""State of many sources into PostgreSQL: a first sync, a full rotation (every row changes), and an unchanged resend.

In one run, by turns: Penstock (bundles as they are in the log, made into rows and written by a pool of writers, one
transaction for each bundle), and the limit: the same rows, finished beforehand, by a bare COPY into an empty table with
the same key. The tables are looked at afterwards; a row that is not the newest ends the benchmark.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import orjson
import psycopg
import pyarrow as pa
from pyarrow import csv

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns, seconds_of
from penstock.conflation.bundle import Place
from penstock.conflation.kinds import Sync
from penstock.conflation.version import Version
from penstock.destinations.state.bundle_rows import RowRules, rows_of_bundle
from penstock.destinations.state.store.contract import RowsChanged, StateChange, StateStore
from penstock.destinations.state.store.places import PostgresPlace, open_store
from tests.support.postgres import postgres

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
TABLE = "compliance"
RULES = RowRules("/items", ("policy", "cluster"), Sync.COMPLETE)
STATES = ("compliant", "non_compliant", "pending")
WORKERS = 4
GOAL_FIRST, GOAL_ROTATION = 20_000, 15_000


@dataclass(frozen=True)
class Sizes:
    sources: int
    policies: int
    clusters: int
    rounds: int

    @property
    def rows(self) -> int:
        return self.sources * self.policies * self.clusters


def run(setting: Setting) -> list[Comparison]:
    # The server's user has to be able to reach its folder.
    setting.folder.chmod(0o711)
    sizes = Sizes(3, 10, 20, 1) if setting.quick else Sizes(9, 50, 300, 5)
    with postgres(fsync=True, settings=SETTINGS, parent=setting.folder) as url:
        fleet = Fleet(url, sizes)
        return [
            fleet.compared("state, first sync", fleet.first_sync, GOAL_FIRST),
            fleet.compared("state, full rotation", fleet.rotation, GOAL_ROTATION),
            fleet.compared("state, unchanged resend", fleet.resend, None),
        ]


@dataclass
class Fleet:
    """Sources that report compliance, and the database that has it."""

    url: str
    sizes: Sizes
    _generations: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _turn: int = 0
    _written_again: int = 0
    """Rows that the server has written though they were there as they are."""

    def compared(self, name: str, work: Callable[[], float], goal: int | None) -> Comparison:
        figures = by_turns(
            [
                Contender(Role.US, f"bundles made into rows and written, {WORKERS} writers", work),
                Contender(Role.LIMIT, "COPY of the finished rows into an empty table", self.bare_copy),
            ],
            self.sizes.rounds,
            warm_up=1,
        )
        nothing = Goal("0 rows written", self._written_again == 0)
        goals = Goal(f">= {goal:,}/s", figures[0].value >= goal) if goal else nothing
        note = f"{self.sizes.rows:,} rows from {self.sizes.sources} sources, fsync on"
        return Comparison(name, "rows/s", figures, goals, (note,))

    def first_sync(self) -> float:
        self._ask(f"DROP TABLE IF EXISTS {TABLE}, penstock_versions, penstock_columns, penstock_parked, transport")
        return self._measured(self._turn, lambda done: done.inserted)

    def rotation(self) -> float:
        self._turn += 1
        return self._measured(self._turn, lambda done: done.updated)

    def resend(self) -> float:
        ((began,),) = self._ask("SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)")
        speed = self._measured(self._turn, lambda done: done.compared - done.changed)
        # By the server, not by what we say of ourselves.
        newer = f"SELECT count(*) FROM {TABLE} WHERE CAST(CAST(xmin AS text) AS bigint) >= {began}"
        ((written,),) = self._ask(newer)
        self._written_again += int(str(written))
        return speed

    def bare_copy(self) -> float:
        text = io.BytesIO()
        rows = [row for source in range(self.sizes.sources) for row in _rows(self.sizes, source, 0)]
        table = pa.table({name: [row[name] for row in rows] for name in ("source", *rows[0])} if rows else {})
        csv.write_csv(table, text, csv.WriteOptions(include_header=False))
        columns = ", ".join(f"{name} text" for name in table.column_names)
        self._ask(f"DROP TABLE IF EXISTS bare; CREATE TABLE bare ({columns}, PRIMARY KEY (source, policy, cluster))")

        def work() -> None:
            with (
                psycopg.connect(self.url) as connection,
                connection.cursor() as cursor,
                cursor.copy("COPY bare FROM STDIN (FORMAT csv)") as copy,
            ):
                copy.write(text.getbuffer())

        return self.sizes.rows / seconds_of(work)

    def _measured(self, turn: int, count: Callable[[RowsChanged], int]) -> float:
        bundles = [_bundle(self.sizes, source, turn) for source in range(self.sizes.sources)]
        version = Version(0, next(self._generations))
        done: list[RowsChanged] = []

        def work() -> None:
            with open_store(PostgresPlace(self.url), WORKERS) as store, ThreadPoolExecutor(WORKERS) as pool:
                done.extend(
                    pool.map(lambda source: _write(store, source, bundles[source], version), range(len(bundles)))
                )

        seconds = seconds_of(work)
        written = sum(map(count, done))
        wanted = self._ask(f"SELECT count(*) FROM {TABLE} WHERE compliance = '{STATES[turn % len(STATES)]}'")
        if written != self.sizes.rows or wanted != [(self.sizes.rows,)]:
            raise AssertionError(f"{written} of {self.sizes.rows} rows are as they should be: {done}")
        return self.sizes.rows / seconds

    def _ask(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []


def _write(store: StateStore, source: int, data: bytes, version: Version) -> RowsChanged:
    with store.session() as session:
        rows = rows_of_bundle(data, RULES)
        return session.write(
            StateChange(f"hub{source}", TABLE, TABLE, RULES.key, version, Place(0, source), rows, route="bench",
                        positions={0: source})
        )  # fmt: skip


def _bundle(sizes: Sizes, source: int, turn: int) -> bytes:
    rows = [{name: value for name, value in row.items() if name != "source"} for row in _rows(sizes, source, turn)]
    return orjson.dumps({"items": rows})


def _rows(sizes: Sizes, source: int, turn: int) -> Sequence[dict[str, str]]:
    return [
        {
            "source": f"hub{source}",
            "policy": f"0b6e{policy:04x}-77f2-4b8a-9f3d-{source:012x}",
            "cluster": f"cluster-{cluster:05d}.hub{source}",
            "compliance": STATES[turn % len(STATES)],
            "error": "none",
        }
        for policy in range(sizes.policies)
        for cluster in range(sizes.clusters)
    ]
