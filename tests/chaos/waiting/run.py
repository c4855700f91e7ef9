"""One run: named faults, then hazards at random, while keys repeat and orders open and close; then the reckoning."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.hazards import EVERYTHING, UNWATCHED, Freeze, StepClock
from tests.chaos.run import KILLS, Say, armed, attack
from tests.chaos.running import ROLES
from tests.chaos.scene import Hazard, Scene
from tests.chaos.storage import FullDisk
from tests.chaos.waiting.lost_checkpoint import LostCheckpoint
from tests.chaos.waiting.project import HOLDING, ROUTES, HoldingProject
from tests.chaos.waiting.reckoning import Reckoning, reckon
from tests.chaos.waiting.shopper import Shopper
from tests.support.clock import DAY, HOUR

NAMED_POINTS = (
    "route.ledger_committed@3",
    "log.append.before_fsync@40",
    "route.range_fixed@6",
    "destination.writing@9",
    "log.append.after_fsync@90",
    "destination.committed@7",
    "route.destination_done@8",
    "route.before_ledger_commit@5",
)
"""Besides chance, the worst moments: behind the state's commit and before, during and behind those of destination and
ledger. Each kills its process once, the nth time that a process gets there, on whichever route that is."""


def misfortunes(freeze: float) -> Sequence[Hazard]:
    return [
        *(Freeze(role, freeze) for role in (*ROLES, EVERYTHING, UNWATCHED)),
        *(StepClock(seconds) for seconds in (-3 * HOUR, 2 * DAY, -2 * DAY, 3 * HOUR)),
        *(LostCheckpoint(route) for route in HOLDING),
        FullDisk(),
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
    routes: Sequence[str] = ROUTES,
) -> Reckoning:
    """As for routes that keep nothing back, see ``tests.chaos.run``."""
    began = time.monotonic()
    by_id = any(isinstance(hazard, LostCheckpoint) for hazard in hazards)
    project = HoldingProject(folder, armed(points), by_id, routes)
    shopper = Shopper(project.port, rng=random.Random(seed))
    scene = Scene(project, shopper, random.Random(seed))
    try:
        struck = attack(scene, hazards, count, settle_every, say, points)
        say(f"{time.monotonic() - began:5.0f} s, the attack is over")
        return reckon(scene, project, shopper, struck, began)
    finally:
        shopper.stop()
        project.end()
