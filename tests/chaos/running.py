"""A pipeline that runs, with its process tree: who is who in it, and how they are killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.waiting import eventually

SUPERVISOR = "supervisor"
SOURCE = "source"
SOURCE_WORKER = "source's worker"
ENGINE = "engine"
JVM = "JVM"
PYTHON_WORKER = "Spark's Python worker"


@dataclass
class Running:
    """``penstock run`` on a config in ``folder``. ``faults``: where processes kill themselves, each once."""

    folder: Path
    pipeline: str
    faults: str = ""
    process: subprocess.Popen[bytes] | None = None

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
        environment = {**os.environ, "PENSTOCK_FAULTS": self.faults, "PENSTOCK_FAULTS_ONCE": str(self.fired)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli.main", "run", "-c", str(self.config)],
                stdout=log, stderr=log, env=environment,
            )  # fmt: skip

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

    def kill_one(self, rng: random.Random, role: str) -> None:
        """``kill -9`` of a process of that kind, as soon as there is one."""

        def killed() -> bool:
            self.keep_up()
            victims = [process for process in self.victims() if self._role(process) == role]
            if not victims:
                return False
            try:
                rng.choice(victims).kill()
            except psutil.NoSuchProcess:
                return False
            return True

        eventually(killed, f"there is a {role} to kill (see {self.log})", 90)

    def end(self) -> None:
        """Leave nothing running, whatever went wrong."""
        for process in self.victims():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=90)

    def _role(self, process: psutil.Process) -> str:
        assert self.process is not None
        try:
            command = process.cmdline()
        except psutil.Error:
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
