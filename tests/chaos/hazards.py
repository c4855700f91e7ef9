"""What can happen to a pipeline besides a kill. A hazard strikes, lasts a while, and is over when ``strike`` returns;
the pipeline must then go on by itself."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.loading import load
from penstock.engine.pipeline import Pipeline
from penstock.engine.status import route_status
from tests.chaos.client import Poster
from tests.chaos.project import ROUTE, Project
from tests.support.waiting import eventually

_EVENT_ID = r'"event_id": ?"(?P<id>[^"]+)"'


@dataclass
class Scene:
    """The pipeline under attack, who posts to it, and what the attack itself did to the books."""

    project: Project
    poster: Poster
    rng: random.Random
    forgotten: int = 0
    """Rows at the target that the ledger no longer counts: it was put back to a time before they were loaded."""
    failed_before: set[str] = field(default_factory=set)
    """Events whose failure was noted in a copy of the data that was thrown away."""

    def wait_until_it_delivers(self) -> None:
        """Returns once the route has committed something that it had not when this was called."""
        before = self.items()

        def delivers() -> bool:
            self.project.keep_up()
            return self.items() > before

        eventually(delivers, f"the route delivers again (see {self.project.log})")

    def wait_until_all_is_delivered(self) -> None:
        def caught_up() -> bool:
            self.project.keep_up()
            with self.opened() as pipeline:
                return route_status(pipeline, ROUTE).lag == 0

        eventually(caught_up, f"the route has caught up (see {self.project.log})", every=0.5)

    def items(self) -> int:
        with self.opened() as pipeline:
            return pipeline.ledger.totals(ROUTE).items

    def logged(self) -> list[str]:
        """The ids of all events in the log."""
        with self.opened() as pipeline:
            batches = [rows for p in pipeline.log.partitions() for rows in pipeline.log.read(p, 0)]
        found = pc.extract_regex(pa.chunked_array([rows.column("data").cast("utf8") for rows in batches]), _EVENT_ID)
        ids: list[str] = pc.struct_field(found, "id").to_pylist()
        return ids

    def failed(self) -> set[str]:
        """The ids of the events in the failed store, each of which ended its worker."""
        with self.opened() as pipeline:
            entries = pipeline.failed_store.read(ROUTE, pipeline.ledger.failed_extent(ROUTE))
            return {entry.event_id for entry in entries if entry.event_id and entry.code == "killed_worker"}

    @contextmanager
    def opened(self) -> Iterator[Pipeline]:
        pipeline = Pipeline.open(load(self.project.config))
        try:
            yield pipeline
        finally:
            pipeline.ledger.close()


class Hazard(ABC):
    name: str

    @abstractmethod
    def strike(self, scene: Scene) -> None: ...


@dataclass(frozen=True)
class Kill(Hazard):
    """``kill -9`` of a process of that role."""

    role: str

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"kill {self.role}"

    def strike(self, scene: Scene) -> None:
        scene.project.kill_one(scene.rng, self.role)


@dataclass(frozen=True)
class Freeze(Hazard):
    """A process is stopped (SIGSTOP) and goes on later, unless somebody put another in its place meanwhile."""

    role: str
    seconds: float = 60.0

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"freeze {self.role}"

    def strike(self, scene: Scene) -> None:
        frozen = scene.project.pick(scene.rng, self.role)
        with contextlib.suppress(psutil.NoSuchProcess):
            frozen.suspend()
            with contextlib.suppress(psutil.TimeoutExpired):
                frozen.wait(self.seconds)
            frozen.resume()


@dataclass(frozen=True)
class StepClock(Hazard):
    """Wall time jumps, and stays so until the next step."""

    seconds: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"clock {self.seconds:+d} s"

    def strike(self, scene: Scene) -> None:
        scene.project.clock.step(self.seconds)


class KillerRecord(Hazard):
    """An event that ends the process which works on it."""

    name = "killer record"

    def strike(self, scene: Scene) -> None:
        event_id = eventually(lambda: _posted(scene), "the event is taken", every=0.5)
        eventually(
            lambda: event_id in scene.failed(), f"event {event_id} is in the failed store (see {scene.project.log})"
        )


def _posted(scene: Scene) -> str | None:
    scene.project.wait_until_ready()
    with contextlib.suppress(Exception):
        return scene.poster.post_deadly()
    return None


class OlderCopy(Hazard):
    """A backup is made under load. Later everything is killed, its data thrown away and the backup put in its place,
    beside a warehouse that has more than it."""

    name = "older copy"

    def strike(self, scene: Scene) -> None:
        project, copy = scene.project, scene.project.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        project.penstock("backup", str(copy))
        time.sleep(scene.rng.uniform(1.0, 4.0))
        with scene.poster.paused():
            scene.wait_until_all_is_delivered()
            scene.failed_before |= scene.failed()
            project.end()
            shutil.rmtree(project.data)
            project.penstock("restore", str(copy))
            scene.forgotten = sum((project.rows() - Counter(scene.logged())).values())
            project.start()
            project.wait_until_ready()


class FullDisk(Hazard):
    """The disk of the ledger and of the checkpoints is full for a while. The log and the staged files have another."""

    name = "full disk"
    size = "256m"
    seconds = 8.0

    def strike(self, scene: Scene) -> None:
        project = scene.project
        with self._small_disk(project):
            project.start()
            project.wait_until_ready()
            scene.wait_until_it_delivers()
            ballast = project.data / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(b"x" * 4096):
                    pass
            time.sleep(self.seconds)
            ballast.unlink()
            scene.wait_until_it_delivers()
        project.start()
        project.wait_until_ready()

    @contextmanager
    def _small_disk(self, project: Project) -> Iterator[None]:
        """The data in a file system of its own, but for the log and the stage. Nothing runs before and behind it."""
        project.end()
        kept = project.folder / "kept"
        project.data.rename(kept)
        project.data.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size},mode=0700", "tmpfs", project.data], check=True)
        beside = ("log", "stage")
        for each in kept.iterdir():
            if each.name in beside:
                (project.data / each.name).symlink_to(each)
            else:
                _copy(each, project.data)
        try:
            yield
        finally:
            project.end()
            for each in project.data.iterdir():
                if each.name in beside:
                    continue
                old = kept / each.name
                if old.is_dir():
                    shutil.rmtree(old)
                _copy(each, kept)
            subprocess.run(["umount", "-l", project.data], check=True)
            project.data.rmdir()
            kept.rename(project.data)


def _copy(path: Path, into: Path) -> None:
    subprocess.run(["cp", "-a", path, into], check=True)
