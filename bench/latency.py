"""How long an event takes from its client's ``send`` until its row can be queried in DuckDB.

Every event carries its sending time. The log says which offset it got, the ledger when the batch of that offset was
committed; rows are in DuckDB before that. That they are is looked at from outside, too: one more event is sent, and
DuckDB is asked for it until it answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import orjson

from bench import processes
from bench.load_client import SteadyLoad
from bench.measure import Comparison, Goal, Setting, ours, percentile
from bench.processes import ROUTE, TABLE, Project, wait_for
from penstock.config.loading import load
from penstock.demo.sender import Client
from penstock.engine.ledger import CommittedBatch
from penstock.engine.pipeline import Pipeline

RATE = 500
SETTLE_SECONDS = 3
GOAL_SECONDS = 1.0
_PADDING = "x" * 400


def run(setting: Setting) -> list[Comparison]:
    seconds = setting.choose(30, 5)
    project = processes.write_project(setting.folder / "project")
    with processes.pipeline(project) as process:
        pipeline = Pipeline.open(load(project.config))
        Client(project.port).post("/api/v1/event", event(-1))
        wait_for(lambda: pipeline.ledger.totals(ROUTE).items == 1, "the first event's row", [process])
        SteadyLoad(project.port, "/api/v1/event", event, RATE).run(SETTLE_SECONDS)
        began = time.time()
        steady = SteadyLoad(project.port, "/api/v1/event", event, RATE)
        steady.run(seconds)
        taken = 1 + RATE * SETTLE_SECONDS + steady.acknowledged
        wait_for(lambda: pipeline.ledger.totals(ROUTE).items == taken, "the last rows", [process])
        seen = seconds_until_seen(project)
        batches = pipeline.ledger.batches(ROUTE, last=100_000)
        found = list(latencies(pipeline, batches, began))
        rows = count(project.warehouse, f"SELECT count(*) FROM {TABLE}")
        pipeline.ledger.close()
    if rows != taken + 1 or len(found) < steady.acknowledged:
        raise RuntimeError(f"{taken + 1:,} events were acknowledged, {rows:,} rows found, {len(found):,} traced")
    p50, p95, longest = percentile(found, 0.5), percentile(found, 0.95), max(found)
    goal = Goal(f"p50 <= {GOAL_SECONDS:g} s", p50 <= GOAL_SECONDS)
    note = (
        f"{RATE} events/s, one per request, for {seconds} s; p95 {p95:.3f} s, longest {longest:.3f} s; "
        f"{len(batches)} batches; one event, with DuckDB asked until it answered: {seen:.3f} s"
    )
    return [Comparison("latency, p50", "s", ours("event to row", p50), goal, (note,))]


def event(number: int) -> bytes:
    return orjson.dumps({"event_type": "page_view", "number": number, "sent": time.time(), "padding": _PADDING})


def latencies(pipeline: Pipeline, batches: list[CommittedBatch], since: float) -> Iterator[float]:
    """Of every event sent since then: from its sending to the commit of its batch."""
    for batch in batches:
        for partition, (start, end) in batch.ranges.items():
            for records in pipeline.log.read(partition, start, end):
                for data in records.column("data").to_pylist():
                    sent = float(orjson.loads(data)["sent"])
                    if sent >= since:
                        yield batch.committed_at - sent


def seconds_until_seen(project: Project) -> float:
    """Send one event and ask DuckDB for its row, again and again."""
    mark = 10**9
    began = time.monotonic()
    Client(project.port).post("/api/v1/event", event(mark))
    wait_for(lambda: count(project.warehouse, f"SELECT count(*) FROM {TABLE} WHERE number = {mark}") == 1, "one row")
    return time.monotonic() - began


def count(warehouse: Path, query: str) -> int:
    """-1 while a batch is being written."""
    try:
        with duckdb.connect(str(warehouse), read_only=True) as connection:
            return int(connection.execute(query).fetchall()[0][0])
    except duckdb.IOException:
        return -1
