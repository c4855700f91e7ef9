"""Penstock as a user runs it: processes of their own, started and stopped cleanly."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.demo.sender import Client
from tests.support.ports import free_port

TOKEN = "demo"
SOURCE = "web"
ROUTE = "warehouse"
TABLE = "events"
ASKED = 32

_PIPELINE = f"""\
name: bench
data_dir: ./data
sources:
  {SOURCE}: {{{{type: http, listen: "127.0.0.1:{{port}}", tokens: [{{{{id: site, client_secret: {TOKEN}}}}}]}}}}
routes:
  {ROUTE}:
    from: [{SOURCE}]
    to: {{{{type: duckdb, path: ./warehouse.duckdb, table: {TABLE}}}}}
"""


@dataclass(frozen=True)
class Project:
    """A pipeline of default options: one collector, one route without steps into DuckDB."""

    folder: Path
    port: int

    @property
    def config(self) -> Path:
        return self.folder / "pipeline.yaml"

    @property
    def log(self) -> Path:
        return self.folder / "data" / "log"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse.duckdb"


def write_project(folder: Path) -> Project:
    folder.mkdir(parents=True)
    project = Project(folder, free_port())
    project.config.write_text(_PIPELINE.format(port=project.port))
    return project


@contextmanager
def collector(project: Project) -> Iterator[None]:
    """The pipeline's collector alone, listening."""
    command = ["-m", "penstock.engine.processes.child", str(project.config), "source", SOURCE]
    with running([command], project.folder) as (process,):
        wait_for(lambda: ready(project.port), "the collector's workers", [process])
        yield


@contextmanager
def pipeline(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """``penstock run``, its collector listening."""
    with running([["-m", "penstock.cli.main", "run", "-c", str(project.config)]], project.folder) as (process,):
        wait_for(lambda: ready(project.port), "the collector's workers", [process])
        yield process


@contextmanager
def running(commands: Sequence[Sequence[str]], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Python processes until the end of the block. What they print goes to ``output.txt``."""
    with (folder / "output.txt").open("ab") as output:
        processes = [subprocess.Popen([sys.executable, *command], stdout=output, stderr=output) for command in commands]
        try:
            yield processes
        except BaseException:
            print((folder / "output.txt").read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(timeout=120)


def wait_for(
    look: Callable[[], bool], what: str, processes: Sequence[subprocess.Popen[bytes]] = (), seconds: float = 120
) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        ended = [process.returncode for process in processes if process.poll() is not None]
        if ended:
            raise RuntimeError(f"a process ended with {ended[0]} while we waited for {what}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)


def ready(port: int) -> bool:
    """Whether every worker of a collector is ready. A connection reaches one of them, so many have to say so."""
    return all(Client(port).ready() for _ in range(ASKED))
