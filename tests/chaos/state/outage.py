"""The database is away for a while under load: what that costs meanwhile, and how many writes catch up."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.testing.waiting import eventually
from tests.chaos.run import Say
from tests.chaos.scene import Scene
from tests.chaos.state.fleet import Fleet
from tests.chaos.state.hub import KINDS
from tests.chaos.state.project import StateProject
from tests.chaos.state.reckoning import Reckoning, finish, reckon, wrong_state
from tests.chaos.state.witness import Witness
from tests.support.postgres import Server

CAUGHT_UP = 10.0
"""Seconds from the server's start until the tables have the newest of everything."""
GROWTH = 1.15
"""Memory is flat if it is at most so much higher in the last third of the outage than in the first."""


@dataclass(frozen=True)
class Outage:
    """What was seen of it."""

    seconds: float
    posted: int
    """Bundles that came meanwhile."""
    writes: Counter[tuple[str, str]]
    """Of each source and kind, from the server's end until all was caught up."""
    caught_up: float
    memory: Sequence[Mapping[str, float]]
    """Resident MiB by role, once a second."""
    reckoning: Reckoning

    @property
    def growth(self) -> float:
        """Of the memory of everything, from the first third of the outage to the last."""
        third = max(1, len(self.memory) // 3)
        first, last = (max(sum(each.values()) for each in part) for part in (self.memory[:third], self.memory[-third:]))
        return last / first

    def wrong(self) -> Iterator[str]:
        yield from self.reckoning.wrong
        often = [f"{kind} of {source}: {count}" for (source, kind), count in self.writes.items() if count > 1]
        if often:
            yield f"written more than once: {len(often)} of {len(self.writes)}, such as {', '.join(often[:5])}"
        if self.caught_up > CAUGHT_UP:
            yield f"caught up after {self.caught_up:.1f} s, should be {CAUGHT_UP:.0f} s"
        if self.growth > GROWTH:
            yield f"memory grew {self.growth:.2f} x, should be {GROWTH} x at most"


def outage(
    folder: Path, server: Server, seconds: float, rate: float, sources: int, seed: int, say: Say = lambda _: None
) -> Outage:
    """Hubs report until the moment at which the server is started again."""
    began = time.monotonic()
    project, witness = StateProject(folder, server), Witness(server.url)
    witness.install()
    fleet = Fleet(project.port, sources=sources, rate=rate, rng=random.Random(seed))
    scene = Scene(project, fleet, random.Random(seed))
    try:
        project.start()
        project.wait_until_ready()
        fleet.start()
        _wait_for_all_kinds(scene, project, fleet)
        say(f"{time.monotonic() - began:5.0f} s, all {sources} sources have state; the server is stopped")
        posted = fleet.posted
        server.kill()
        away = datetime.now(UTC)
        memory = _watch(project, seconds)
        fleet.stop()
        # The last bundles are taken while it is away, so that what is there when it is back is all there is.
        finish(project, fleet)
        eventually(lambda: _is_all_read(project), f"the route has read all of it (see {project.log})", every=0.2)
        posted = fleet.posted - posted
        server.start()
        back = time.monotonic()
        say(f"{back - began:5.0f} s, the server is back; {posted:,} bundles came meanwhile")
        eventually(lambda: not any(wrong_state(project, fleet)), f"it catches up (see {project.log})", every=0.2)
        caught_up = time.monotonic() - back
        say(f"{time.monotonic() - began:5.0f} s, caught up")
        reckoning = reckon(scene, project, fleet, witness, Counter({"outage": 1}), began)
        writes = Counter((write.source, write.kind) for write in witness.writes() if write.at > away)
        return Outage(seconds, posted, writes, caught_up, memory, reckoning)
    finally:
        fleet.stop()
        project.end()


def _is_all_read(project: StateProject) -> bool:
    """Whether nothing stands in the log that the route does not know: of what it knows the newest is written."""
    (route,) = json.loads(project.penstock("status", "--json"))["routes"]
    return bool(route["behind"] == route["under_way"] == 0)


def _wait_for_all_kinds(scene: Scene, project: StateProject, fleet: Fleet) -> None:
    def has_all() -> bool:
        project.keep_up()
        return len(project.versions()) == len(fleet.hubs) * len(KINDS)

    eventually(has_all, f"every source has state of every kind (see {project.log})", every=0.5)
    scene.wait_until_it_delivers()


def _watch(project: StateProject, seconds: float) -> Sequence[Mapping[str, float]]:
    found, deadline = [], time.monotonic() + seconds
    while time.monotonic() < deadline:
        found.append(project.memory())
        time.sleep(1.0)
    return found
