"""A pipeline as processes of its own, and verbs beside it, as on an operator's two terminals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from penstock.testing.waiting import HANG
from tests.cli.projects import penstock as verb
from tests.support.command import Command, command_of, run_penstock, start_penstock

COMMAND = [sys.executable, "-m", "penstock.cli.main"]


@dataclass(frozen=True)
class Terminal:
    """A shell in the project's folder."""

    folder: Path

    def penstock(self, *words: str, answer: str | None = None) -> subprocess.CompletedProcess[str]:
        """A verb beside the pipeline. It runs here, which is another process than any of the pipeline's, and takes
        milliseconds; to start a Python for it takes more than a second of work."""
        ran = verb(*words, "--config", str(self.folder / "pipeline.yaml"), answer=answer)
        return subprocess.CompletedProcess([*words], ran.code, ran.out, ran.err)

    def run_once(self) -> subprocess.CompletedProcess[str]:
        """``penstock run --once``, which takes signals and must have a process of its own."""
        return run_penstock(["run", "--once"], self.folder)

    def json(self, *words: str) -> Any:
        ran = self.penstock(*words, "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    def route(self, name: str) -> dict[str, Any]:
        """A route's line of ``penstock status``; empty before the pipeline has made its ledger."""
        ran = self.penstock("status", "--json")
        if ran.returncode != 0:
            return {}
        (found,) = [route for route in json.loads(ran.stdout)["routes"] if route["route"] == name]
        return dict(found)

    def counts(self, name: str) -> tuple[int, ...]:
        """in, loaded, skipped, failed, lag"""
        found = self.route(name)
        return tuple(found.get(key, -1) for key in ("in", "loaded", "skipped", "failed", "lag"))


@dataclass(frozen=True)
class Run:
    """``penstock run``, under way."""

    process: Command
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def family(self) -> list[psutil.Process]:
        """Every process of it: supervisor, sources, engine, JVM, Python workers."""
        supervisor = psutil.Process(self.process.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def has(self, program: str) -> bool:
        """Whether a process of it runs that program."""
        return any(command and Path(command[0]).name == program for command in map(command_of, self.family()))

    def engine(self) -> psutil.Process:
        (found,) = (each for each in self.family() if "engine" in command_of(each))
        return found

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


def works(process: psutil.Process) -> bool:
    """It has not ended; a dead process whose parent has not asked for it yet has."""
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def running(folder: Path, environment: Mapping[str, str] | None = None, words: Sequence[str] = ()) -> Iterator[Run]:
    """Leaves nothing behind, whatever happens inside."""
    log = folder / "run.log"
    log.write_text("")
    process = start_penstock(["run", *words], folder, log, environment=environment)
    run = Run(process, log)
    try:
        yield run
    finally:
        left = run.family() if process.poll() is None else []
        for each in left:
            if each.is_running():
                each.kill()
        process.wait(timeout=HANG)
