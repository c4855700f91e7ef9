"""One run: kills at named points, then hazards at random, while hubs report; then the reckoning."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos.run import KILLS, Say, armed, attack
from tests.chaos.scene import Hazard, Scene
from tests.chaos.state.fleet import Fleet
from tests.chaos.state.project import StateProject
from tests.chaos.state.reckoning import Reckoning, reckon
from tests.chaos.state.server_hazards import ServerFrozen, ServerGone
from tests.chaos.state.witness import Witness
from tests.support.postgres import Server

NAMED_POINTS = (
    "destination.writing@150",
    "destination.committed@200",
    "route.destination_done@9",
    "route.before_ledger_commit@12",
    "postponed.begun@5",
    "postponed.destination_done@6",
    "postponed.before_ledger_commit@7",
    "log.append.before_fsync@60",
)
"""Within a bundle's transaction and behind its commit; behind all of a batch, before the ledger's commit; the same of
what has waited; and before the collector's answer. Each kills its process once, the nth time that one gets there."""
ENGINE_POINTS = tuple(point for point in NAMED_POINTS if not point.startswith("log."))
"""Those that the engine gets to. Who dies at one of them is started again, and gets to all of them anew."""


def hazards(server: Server) -> Sequence[Hazard]:
    return [*KILLS, ServerGone(server), ServerFrozen(server)]


def chaos(
    folder: Path,
    server: Server,
    hazards: Sequence[Hazard],
    count: int,
    seed: int,
    settle_every: int,
    say: Say = lambda _: None,
    points: Sequence[str] = NAMED_POINTS,
    sources: int = 40,
    rate: float = 200.0,
) -> Reckoning:
    """As for routes that keep nothing back, see ``tests.chaos.run``. ``server`` runs, and is empty."""
    began = time.monotonic()
    project, witness = StateProject(folder, server, armed(points)), Witness(server.url)
    witness.install()
    fleet = Fleet(project.port, sources=sources, rate=rate, rng=random.Random(seed))
    scene = Scene(project, fleet, random.Random(seed))
    try:
        struck = attack(scene, hazards, count, settle_every, say, points)
        say(f"{time.monotonic() - began:5.0f} s, the attack is over")
        return reckon(scene, project, fleet, witness, struck, began)
    finally:
        fleet.stop()
        project.end()


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """A server that may be killed meanwhile."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # it does not run
            server.kill()
        server.remove()
