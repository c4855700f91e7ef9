"""What can happen to the database that keeps the state: its server is killed, or stands still."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

import psutil

from tests.chaos.scene import Hazard, Scene
from tests.support.postgres import Server


@dataclass(frozen=True)
class ServerGone(Hazard):
    """As if the power were cut; it is back after a while."""

    server: Server
    longest: float = 8.0
    name = "database gone"

    def strike(self, scene: Scene) -> str:
        seconds = scene.rng.uniform(0.0, self.longest)
        self.server.kill()
        _watch(scene, seconds)
        self.server.start()
        return f"for {seconds:.1f} s"


@dataclass(frozen=True)
class ServerFrozen(Hazard):
    """It takes connections and answers nobody (SIGSTOP), for a while."""

    server: Server
    longest: float = 15.0
    name = "database frozen"

    def strike(self, scene: Scene) -> str:
        seconds, frozen = scene.rng.uniform(1.0, self.longest), self.server.processes()
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            _watch(scene, seconds)
        finally:
            for process in frozen:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
        return f"{len(frozen)} processes for {seconds:.1f} s"


def _watch(scene: Scene, seconds: float) -> None:
    """Time passes. Who was killed before is started again meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        scene.project.keep_up()
        time.sleep(0.1)
