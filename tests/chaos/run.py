"""One chaos run: named faults, then hazards at random, under load; then the reckoning."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.ledger import Totals
from tests.chaos.client import Poster
from tests.chaos.hazards import Freeze, FullDisk, Hazard, Kill, KillerRecord, OlderCopy, Scene, StepClock
from tests.chaos.project import ROUTE, Project
from tests.chaos.running import ENGINE, JVM, PYTHON_WORKER, SOURCE, SOURCE_WORKER, SUPERVISOR
from tests.support.clock import DAY, HOUR
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
KILLS: Sequence[Hazard] = [Kill(role) for role in ROLES]
MISFORTUNES: Sequence[Hazard] = [
    *(Freeze(role) for role in ROLES),
    *(StepClock(seconds) for seconds in (-3 * HOUR, 2 * DAY, -2 * DAY, 3 * HOUR)),
    KillerRecord(),
    OlderCopy(),
    FullDisk(),
]
"""What happens to machines and data, and is nobody's kill."""


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
    uncounted: int
    """Rows that the books do not have, and did not have to forget either."""
    struck: Counter[str]
    exit_code: int
    seconds: float

    @property
    def whole(self) -> bool:
        return (
            not (self.lost or self.doubled or self.unknown or self.uncounted)
            and self.last_event_arrived
            and self.totals.adds_up
            and self.exit_code == 0
        )


def chaos(
    folder: Path,
    hazards: Sequence[Hazard],
    count: int,
    seed: int,
    settle_every: int,
    say: Callable[[str], None] = lambda _: None,
) -> Reckoning:
    """Named faults, then ``count`` hazards, each of those given in turn and in an order by chance; after every
    ``settle_every``-th the pipeline must deliver again by itself."""
    began = time.monotonic()
    project = Project(folder, faults=",".join(f"{point}=kill" for point in NAMED_POINTS))
    struck: Counter[str] = Counter()
    project.start()
    project.wait_until_ready()
    scene = Scene(project, Poster(project.port), random.Random(seed))
    scene.poster.start()
    try:
        for point in NAMED_POINTS:
            name = point.partition("@")[0]
            eventually(lambda n=name: _fired(project, n), f"the fault {name} happened (see {project.log})")  # type: ignore[misc]
            struck[name] += 1
            say(f"killed at {name}")
        for number, hazard in enumerate(itertools.islice(_in_turns(hazards, scene.rng), count)):
            time.sleep(scene.rng.uniform(0.0, 3.0))
            say(f"{time.monotonic() - began:5.0f} s, {number + 1} of {count}: {hazard.name}")
            hazard.strike(scene)
            struck[hazard.name] += 1
            if number % settle_every == 0:
                scene.wait_until_it_delivers()
        project.wait_until_ready()
        scene.poster.stop()
        return _reckon(scene, struck, began)
    finally:
        scene.poster.stop()
        project.end()


def _in_turns(hazards: Sequence[Hazard], rng: random.Random) -> Iterator[Hazard]:
    while hazards:
        yield from rng.sample(hazards, len(hazards))


def _fired(project: Project, name: str) -> bool:
    project.keep_up()
    return (project.fired / name).exists()


def _reckon(scene: Scene, struck: Counter[str], began: float) -> Reckoning:
    project, poster = scene.project, scene.poster
    last = eventually(lambda: _posted(project, poster), "one more event is taken")
    scene.wait_until_all_is_delivered()
    code = project.stop()
    with scene.opened() as pipeline:
        totals = pipeline.ledger.totals(ROUTE)
    found = project.rows()
    failed = scene.failed() | scene.failed_before
    return Reckoning(
        sent=len(poster.sent),
        acknowledged=len(poster.acknowledged),
        rows=found.total(),
        lost=(poster.acknowledged - found.keys()) | (poster.deadly - failed),
        doubled={event_id for event_id, count in found.items() if count > 1} | (poster.deadly & found.keys()),
        unknown=found.keys() - poster.sent,
        last_event_arrived=last in found,
        totals=totals,
        uncounted=found.total() - scene.forgotten - totals.loaded,
        struck=struck,
        exit_code=code,
        seconds=time.monotonic() - began,
    )


def _posted(project: Project, poster: Poster) -> str | None:
    project.wait_until_ready()
    try:
        return poster.post_one()
    except Exception:
        return None
