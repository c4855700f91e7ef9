"""What can happen to the processes of a pipeline: they are killed, stopped, told another time, ended by a record."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.testing.waiting import eventually
from tests.chaos.running import ROLES, SUPERVISOR
from tests.chaos.scene import PATIENCE, Hazard, Scene
from tests.support.clock import HOUR
from tests.support.command import command_of


@dataclass(frozen=True)
class Kill(Hazard):
    """``kill -9`` of a process of that role."""

    role: str

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"kill {self.role}"

    def strike(self, scene: Scene) -> str:
        killed = scene.project.kill_one(scene.rng, self.role)
        eventually(lambda: not _lives(killed), f"{killed} is dead")
        return f"pid {killed.pid} is dead"


EVERYTHING = "everything"
UNWATCHED = "supervisor and tasks"
"""Nobody tells these processes to go on: only the engine can notice that its tasks do not move."""


@dataclass(frozen=True)
class Freeze(Hazard):
    """Processes are stopped (SIGSTOP) and go on later, unless somebody put others in their place meanwhile. Every other
    time those that somebody tells to go on are stopped again, until the time is over."""

    role: str
    seconds: float = 60.0
    lasts = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"freeze {self.role}"

    def strike(self, scene: Scene) -> str:
        held = scene.rng.random() < 0.5
        frozen = self._freeze(scene)
        continued, began = 0, time.monotonic()
        try:
            while frozen and time.monotonic() - began < self.seconds:
                time.sleep(0.02)
                frozen = [process for process in frozen if _lives(process)]
                running = [process for process in frozen if not _stopped(process)]
                if running:
                    # One that was killed is not stopped for a moment, and then gone.
                    time.sleep(0.1)
                    running = [process for process in running if _lives(process) and not _stopped(process)]
                continued += len(running)
                if running and not held:
                    break
                for process in running:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.suspend()
        finally:
            for process in frozen:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
        ending = "it goes on" if frozen else "it was ended"
        return f"stopped for {time.monotonic() - began:.0f} s, told to go on {continued} times, then {ending}"

    def _freeze(self, scene: Scene) -> list[psutil.Process]:
        """Those that are really stopped now."""

        def stopped() -> list[psutil.Process]:
            project = scene.project
            project.keep_up()
            if self.role == EVERYTHING:
                chosen = project.victims()
            elif self.role == UNWATCHED:
                chosen = [process for process in project.victims() if project.role(process) == SUPERVISOR]
                chosen += [process for process in project.victims() if _runs_tasks(process)]
            else:
                chosen = [project.pick(scene.rng, self.role)]
            for process in chosen:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            time.sleep(0.05)
            return [process for process in chosen if _stopped(process)]

        return eventually(stopped, f"{self.role} is stopped")


def _runs_tasks(process: psutil.Process) -> bool:
    return "penstock.engine.spark.worker_daemon" in command_of(process)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True)
class StepClock(Hazard):
    """Wall time jumps, and stays so until the next step. Every process of the pipeline must have this clock, and the
    engine must be seen to go by it."""

    seconds: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"clock {self.seconds:+d} s"

    def strike(self, scene: Scene) -> str:
        clock = scene.project.clock
        clock.step(self.seconds)
        scene.wait_until_it_delivers()
        difference = scene.last_commit() - time.time()
        assert abs(difference - clock.ahead) < HOUR / 2, f"the engine is {difference} s ahead, not {clock.ahead}"
        seen = [_has_mapped(process, clock.path) for process in scene.project.victims()]
        assert sum(seen) >= len(ROLES), f"{seen} of the processes have the clock"
        return f"{sum(seen)} of {len(seen)} processes have it, the engine is {difference:+.0f} s ahead"


def _has_mapped(process: psutil.Process, path: Path) -> bool:
    try:
        return any(region.path == str(path) for region in process.memory_maps())
    except psutil.Error:
        return False


class KillerRecord(Hazard):
    """An event that ends the process which works on it."""

    name = "killer record"

    def strike(self, scene: Scene) -> str:
        event_id = eventually(lambda: _posted(scene), "the event is taken", every=0.5)
        eventually(
            lambda: event_id in scene.failed(),
            f"event {event_id} is in the failed store (see {scene.project.log})",
            PATIENCE,
            every=0.5,
        )
        return f"{event_id} is in the failed store"


def _posted(scene: Scene) -> str | None:
    scene.project.wait_until_ready()
    with contextlib.suppress(Exception):
        return scene.poster.post_deadly()
    return None
