"""A pipeline that runs, with its process tree: who is who in it, and how they are killed."""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock.testing.waiting import HANG, eventually
from tests.support.command import Command, command_of, start_penstock

SUPERVISOR = "supervisor"
SOURCE = "source"
SOURCE_WORKER = "source's worker"
ENGINE = "engine"
JVM = "JVM"
PYTHON_WORKER = "Spark's Python worker"
ROLES = (SUPERVISOR, SOURCE, SOURCE_WORKER, ENGINE, JVM, PYTHON_WORKER)


@dataclass
class Running:
    """``penstock run`` on a config in ``folder``. ``faults``: where processes kill themselves, each once."""

    folder: Path
    pipeline: str
    faults: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    process: Command | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(self.pipeline)
        self.fired.mkdir(exist_ok=True)

    @property
    def config(self) -> Path:
        return self.folder / "pipeline.yaml"

    @property
    def fired(self) -> Path:
        """Holds a file for every fault that has happened."""
        return self.folder / "fired"

    @property
    def log(self) -> Path:
        return self.folder / "run.log"

    def start(self) -> None:
        faults = {"PENSTOCK_FAULTS": self.faults, "PENSTOCK_FAULTS_ONCE": str(self.fired)}
        words = ["run", "-c", str(self.config)]
        self.process = start_penstock(words, self.folder, self.log, environment={**self.environment, **faults})

    def keep_up(self) -> None:
        """Start it (again) if it is not running."""
        if self.process is None or self.process.poll() is not None:
            self.start()

    def victims(self) -> list[psutil.Process]:
        """Every process of the pipeline: supervisor, sources and their workers, engine, JVM, Python workers."""
        assert self.process is not None
        try:
            supervisor = psutil.Process(self.process.pid)
            return [supervisor, *supervisor.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def pick(self, rng: random.Random, role: str) -> psutil.Process:
        """A process of that role, as soon as there is one."""

        def found() -> list[psutil.Process]:
            self.keep_up()
            return [process for process in self.victims() if self.role(process) == role]

        return rng.choice(eventually(found, f"there is a {role} (see {self.log})"))

    def kill_one(self, rng: random.Random, role: str) -> psutil.Process:
        """``kill -9`` of a process of that role."""
        while True:
            with contextlib.suppress(psutil.NoSuchProcess):
                killed = self.pick(rng, role)
                killed.kill()
                return killed

    def end(self) -> None:
        """Leave nothing running, whatever went wrong."""
        victims = self.victims()
        for process in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(victims, timeout=HANG)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=HANG)

    def role(self, process: psutil.Process) -> str:
        assert self.process is not None
        command = command_of(process)
        if not command:
            return "gone"
        if process.pid == self.process.pid:
            return SUPERVISOR
        if any("java" in word for word in command[:1]):
            return JVM
        if "engine" in command:
            return ENGINE
        if "source" in command:
            return SOURCE
        return SOURCE_WORKER if "penstock.sources.http.worker" in command else PYTHON_WORKER
