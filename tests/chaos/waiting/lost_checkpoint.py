"""Somebody removes what a route's step remembers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from penstock.engine.layout import Layout
from tests.chaos.scene import Hazard, Scene

SAID = "the state of its step is gone"


@dataclass(frozen=True)
class LostCheckpoint(Hazard):
    """Everything is killed, and the checkpoint of a route, or only the state in it, is gone when it starts again."""

    route: str
    alone = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"lost checkpoint of {self.route}"

    def strike(self, scene: Scene) -> str:
        project, part = scene.project, scene.rng.choice((".", "state"))
        project.end()
        with scene.opened() as pipeline:
            ledger = pipeline.ledger
            waiting = ledger.totals(self.route).waiting
            folder = Layout(project.data).checkpoint(self.route, ledger.scope, ledger.generation(self.route))
        shutil.rmtree(folder / part)
        said = project.log.stat().st_size
        project.start()
        project.wait_until_ready()
        scene.wait_until_it_delivers()
        with project.log.open() as log:
            log.seek(said)
            assert waiting == 0 or any(self.route in line and SAID in line for line in log), "nobody noticed"
        return f"{'all' if part == '.' else part} of it, while {waiting} waited"
