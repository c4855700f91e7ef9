"""Single events over HTTP, each on disk before its answer: against the same server answering without work."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import processes
from bench.measure import Comparison, Contender, Figure, Goal, Role, Setting, by_turns
from bench.records import texts
from penstock.log.local_log import LocalLog
from penstock.sources.http.config import HttpConfig
from tests.support.ports import free_port, listens

EVENT_BYTES = 500
DISTINCT = 64
CONNECTIONS = 64
GOAL_RATE, GOAL_SHARE, GOAL_P99_MS = 10_000, 0.5, 20.0

_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Load:
    """What the load generator saw."""

    requests: int
    seconds: float
    refused: int
    broken: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def rate(self) -> float:
        return (self.requests - self.refused) / self.seconds


def run(setting: Setting) -> list[Comparison]:
    seconds, rounds = setting.choose(10, 2), setting.choose(5, 1)
    events = setting.folder / "events.ndjson"
    events.write_bytes(b"\n".join(texts(DISTINCT, EVENT_BYTES)) + b"\n")
    folders = (setting.folder / f"round-{number}" for number in itertools.count())
    ours: list[Load] = []
    theirs: list[Load] = []

    def collector() -> float:
        project = processes.write_project(next(folders))
        with processes.collector(project):
            warm_up, load = post(project.port, events, 1), post(project.port, events, seconds)
        check([warm_up, load], recorded(project.log))
        ours.append(load)
        return load.rate

    def no_work() -> float:
        theirs.append(no_work_load(next(folders), events, seconds))
        return theirs[-1].rate

    figures = by_turns(
        [
            Contender(Role.US, "the collector, default options", collector),
            Contender(Role.LIMIT, "the same server and workers, answering 200 without work", no_work),
        ],
        rounds,
    )
    return [_rate(figures, ours), _latency(ours, theirs)]


def _rate(figures: tuple[Figure, ...], ours: Sequence[Load]) -> Comparison:
    name, unit = "collector", "requests/s"
    us, share = figures[0].value, Comparison(name, unit, figures).ratio or 0.0
    goal = Goal(f">= {GOAL_RATE:,}/s or >= {GOAL_SHARE:.0%} of the limit", us >= GOAL_RATE or share >= GOAL_SHARE)
    note = (
        f"wrk, {CONNECTIONS} connections, one thread, same machine; one event of {EVENT_BYTES} bytes per request; "
        f"fsync: always; every 200 of {sum(load.requests for load in ours):,} found again in the log"
    )
    return Comparison(name, unit, figures, goal, (note,))


def _latency(ours: Sequence[Load], theirs: Sequence[Load]) -> Comparison:
    us = Figure(Role.US, "the collector", tuple(load.p99_ms for load in ours))
    limit = Figure(Role.LIMIT, "the same server without work", tuple(load.p99_ms for load in theirs))
    note = f"p50 {median(x.p50_ms for x in ours):.1f} ms, without work {median(x.p50_ms for x in theirs):.1f} ms"
    goal = Goal(f"<= {GOAL_P99_MS:g} ms", us.value <= GOAL_P99_MS)
    return Comparison("collector, p99", "ms", (us, limit), goal, (note,))


def no_work_load(folder: Path, events: Path, seconds: int) -> Load:
    folder.mkdir()
    port = free_port()
    workers: int = HttpConfig.model_fields["workers"].default
    with processes.running([["-m", "bench.no_work", str(port)]] * workers, folder) as servers:
        processes.wait_for(lambda: listens(port), "the server without work", servers)
        post(port, events, 1)
        return post(port, events, seconds)


def post(port: int, events: Path, seconds: int) -> Load:
    """Keep all connections busy for so long."""
    wrk = subprocess.run([_ROOT / "scripts" / "ensure-wrk"], check=True, capture_output=True, text=True).stdout.strip()
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(_ROOT / "bench" / "post.lua")]
    output = subprocess.run(
        [*command, f"http://127.0.0.1:{port}", "--", str(events), processes.TOKEN],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return Load(**json.loads(output.splitlines()[-1]))


def recorded(log: Path) -> int:
    return sum(usage.records for usage in LocalLog(log).usage().values())


def check(loads: Sequence[Load], records: int) -> None:
    """Every 200 is a record; there may be more of those that were on their way when the load generator stopped."""
    refused, broken = sum(load.refused for load in loads), sum(load.broken for load in loads)
    if refused or broken:
        raise RuntimeError(f"{refused} requests were refused and {broken} broke")
    taken = sum(load.requests for load in loads)
    if not taken <= records <= taken + CONNECTIONS * len(loads):
        raise RuntimeError(f"{taken} events were acknowledged, but the log has {records}")
