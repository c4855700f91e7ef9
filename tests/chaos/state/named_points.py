"""Processes kill themselves at named points, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.testing.waiting import eventually
from tests.chaos.scene import PATIENCE, Hazard, Scene


@dataclass(frozen=True)
class NamedPoints(Hazard):
    """Once more at each of these points. A process that was started since the last of them fired gets there anew."""

    points: Sequence[str]
    name = "every named point"

    def strike(self, scene: Scene) -> str:
        files = [scene.project.fired / point.partition("@")[0] for point in self.points]
        for file in files:
            file.unlink()

        def have_fired() -> bool:
            scene.project.keep_up()
            return all(file.exists() for file in files)

        eventually(have_fired, f"all of them fired again (see {scene.project.log})", PATIENCE, every=0.2)
        return f"{len(files)} processes killed"
