"""One chaos run: named faults, then hazards at random, under load; then the reckoning."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.testing.waiting import eventually
from tests.chaos.client import Poster
from tests.chaos.hazards import EVERYTHING, UNWATCHED, Freeze, Kill, KillerRecord, StepClock
from tests.chaos.lasting import Lasting
from tests.chaos.locked_table import LockedTable
from tests.chaos.project import Project
from tests.chaos.reckoning import Reckoning, reckon
from tests.chaos.running import ROLES
from tests.chaos.scene import Hazard, Scene
from tests.chaos.storage import FullDisk, OlderCopy
from tests.support.clock import DAY, HOUR

NAMED_POINTS = (
    "log.append.before_fsync@40",
    "log.append.after_fsync@90",
    "route.range_fixed@4",
    "destination.writing@5",
    "route.before_ledger_commit@3",
)
"""After the append and before its fsync; after the fsync and before the 200; after the range is fixed; during the
write; after the destination's commit and before the ledger's. Each kills its process the nth time it gets there."""

Say = Callable[[str], None]
KILLS: Sequence[Hazard] = [Kill(role) for role in ROLES]
LASTING = 2
"""How many hazards may last at the same time."""


def misfortunes(freeze: float) -> Sequence[Hazard]:
    """What happens to machines, data and neighbours."""
    return [
        *(Freeze(role, freeze) for role in (*ROLES, EVERYTHING, UNWATCHED)),
        *(StepClock(seconds) for seconds in (-3 * HOUR, 2 * DAY, -2 * DAY, 3 * HOUR)),
        KillerRecord(),
        OlderCopy(),
        FullDisk(),
        LockedTable(),
        *KILLS,
    ]


def chaos(
    folder: Path,
    hazards: Sequence[Hazard],
    count: int,
    seed: int,
    settle_every: int,
    say: Say = lambda _: None,
    points: Sequence[str] = NAMED_POINTS,
    database: str | None = None,
) -> Reckoning:
    """Named faults, then ``count`` hazards, each of those given in turn and in an order by chance; after every
    ``settle_every``-th the pipeline must deliver again by itself."""
    began = time.monotonic()
    project = Project(folder, armed(points), database)
    scene = Scene(project, Poster(project.port), random.Random(seed))
    try:
        return reckon(scene, attack(scene, hazards, count, settle_every, say, points), began)
    finally:
        scene.poster.stop()
        project.end()


def armed(points: Sequence[str]) -> str:
    """As processes are told where to kill themselves."""
    return ",".join(f"{point}=kill" for point in points)


def attack(
    scene: Scene, hazards: Sequence[Hazard], count: int, settle_every: int, say: Say, points: Sequence[str]
) -> Counter[str]:
    """Start the pipeline and post to it while all that strikes. Returns what has struck; nobody posts any more then."""
    began, project, struck = time.monotonic(), scene.project, Counter[str]()

    def strike(number: int, hazard: Hazard, scene: Scene) -> None:
        name = f"{number + 1} of {count}: {hazard.name}"
        say(f"{time.monotonic() - began:5.0f} s, {name}")
        seen = hazard.strike(scene)
        struck[hazard.name] += 1
        say(f"{time.monotonic() - began:5.0f} s, over: {name}: {seen}")

    project.start()
    project.wait_until_ready()
    scene.poster.start()
    for point in points:
        name = point.partition("@")[0]
        eventually(lambda n=name: _fired(project, n), f"the fault {name} happened (see {project.log})")  # type: ignore[misc]
        struck[name] += 1
        say(f"{time.monotonic() - began:5.0f} s, killed at {name}")
    scene.wait_until_it_delivers()
    with Lasting(LASTING) as lasting:
        for number, hazard in enumerate(itertools.islice(_in_turns(hazards, scene.rng), count)):
            time.sleep(scene.rng.uniform(0.0, 3.0))
            if hazard.alone:
                lasting.wait()
            if hazard.lasts:
                # Chance of its own: who comes first must not change what the others get.
                lasting.begin(strike, number, hazard, replace(scene, rng=random.Random(scene.rng.random())))
            else:
                strike(number, hazard, scene)
            if number % settle_every == 0:
                scene.wait_until_it_delivers()
    project.wait_until_ready()
    scene.poster.stop()
    return struck


def _in_turns(hazards: Sequence[Hazard], rng: random.Random) -> Iterator[Hazard]:
    while hazards:
        yield from rng.sample(hazards, len(hazards))


def _fired(project: Project, name: str) -> bool:
    project.keep_up()
    return (project.fired / name).exists()
