"""One chaos run: named faults and random kills under load, then the reckoning."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from penstock.config.loading import load
from penstock.engine.ledger import Totals
from penstock.engine.pipeline import Pipeline
from penstock.engine.status import route_status
from tests.chaos.client import Poster
from tests.chaos.project import Project
from tests.chaos.running import ENGINE, JVM, PYTHON_WORKER, SOURCE, SOURCE_WORKER, SUPERVISOR
from tests.support.waiting import eventually

NAMED_POINTS = (
    "log.append.before_fsync@40",
    "log.append.after_fsync@90",
    "route.range_fixed@4",
    "destination.writing@5",
    "route.before_ledger_commit@3",
)
"""After the append and before its fsync; after the fsync and before the 200; after the range is fixed; during the
write; after the destination's commit and before the ledger's. Each kills its process the nth time it gets there."""

ROLES = (SUPERVISOR, SOURCE, SOURCE_WORKER, ENGINE, JVM, PYTHON_WORKER)


@dataclass(frozen=True)
class Reckoning:
    """What was promised and what is there."""

    sent: int
    acknowledged: int
    rows: int
    lost: set[str]
    doubled: set[str]
    unknown: set[str]
    last_event_arrived: bool
    totals: Totals
    kills: Counter[str]
    exit_code: int
    seconds: float

    @property
    def whole(self) -> bool:
        return (
            not (self.lost or self.doubled or self.unknown)
            and self.last_event_arrived
            and self.totals.adds_up
            and self.totals.loaded == self.rows
            and self.exit_code == 0
        )


def chaos(
    folder: Path, random_kills: int, seed: int, settle_every: int, say: Callable[[str], None] = lambda _: None
) -> Reckoning:
    """Named faults, then random kills; after every ``settle_every``-th the pipeline must deliver again by itself."""
    rng = random.Random(seed)
    began = time.monotonic()
    project = Project(folder, faults=",".join(f"{point}=kill" for point in NAMED_POINTS))
    kills: Counter[str] = Counter()
    project.start()
    project.wait_until_ready()
    poster = Poster(project.port)
    poster.start()
    try:
        for point in NAMED_POINTS:
            name = point.partition("@")[0]
            eventually(lambda n=name: _fired(project, n), f"the fault {name} happened (see {project.log})", 180)  # type: ignore[misc]
            kills[name] += 1
            say(f"killed at {name}")
        pipeline = Pipeline.open(load(project.config))
        for number in range(random_kills):
            if number % len(ROLES) == 0:
                roles = rng.sample(ROLES, len(ROLES))
            role = roles[number % len(ROLES)]
            time.sleep(rng.uniform(0.0, 3.0))
            project.kill_one(rng, role)
            kills[role] += 1
            say(f"random kill {number + 1} of {random_kills}: {role}")
            if number % settle_every == 0:
                _wait_until_it_delivers(project, pipeline)
        project.wait_until_ready()
        poster.stop()
        return _reckon(project, poster, kills, began)
    finally:
        poster.stop()
        project.end()


def _fired(project: Project, name: str) -> bool:
    project.keep_up()
    return (project.fired / name).exists()


def _wait_until_it_delivers(project: Project, pipeline: Pipeline) -> None:
    before = pipeline.ledger.totals("warehouse").items

    def delivers() -> bool:
        project.keep_up()
        return pipeline.ledger.totals("warehouse").items > before

    eventually(delivers, f"the route delivers again after the kill (see {project.log})", 120)


def _reckon(project: Project, poster: Poster, kills: Counter[str], began: float) -> Reckoning:
    last = eventually(lambda: _posted(project, poster), "one more event is taken", 60)
    pipeline = Pipeline.open(load(project.config))

    def caught_up() -> bool:
        project.keep_up()
        return route_status(pipeline, "warehouse").lag == 0

    eventually(caught_up, f"the route has caught up (see {project.log})", 180)
    code = project.stop()
    totals = pipeline.ledger.totals("warehouse")
    with duckdb.connect(str(project.warehouse), read_only=True) as connection:
        found = Counter(row[0] for row in connection.execute("SELECT eventn_ctx_event_id FROM events").fetchall())
    return Reckoning(
        sent=len(poster.sent),
        acknowledged=len(poster.acknowledged),
        rows=found.total(),
        lost=poster.acknowledged - found.keys(),
        doubled={event_id for event_id, count in found.items() if count > 1},
        unknown=found.keys() - poster.sent,
        last_event_arrived=last in found,
        totals=totals,
        kills=kills,
        exit_code=code,
        seconds=time.monotonic() - began,
    )


def _posted(project: Project, poster: Poster) -> str | None:
    project.wait_until_ready()
    try:
        return poster.post_one()
    except Exception:
        return None
