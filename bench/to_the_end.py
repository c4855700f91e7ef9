"""``penstock run --once`` over a log that is there already: how long it took, and how much memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import orjson
import psutil

from bench.processes import ROUTE, SOURCE
from penstock.config.loading import load
from penstock.engine.ledger import Totals
from penstock.engine.pipeline import Pipeline
from tests.support.ports import free_port

LOOK_EVERY = 1.0
START = 180
"""Seconds that Python, Spark and the JVM may take to start and to end on a busy machine."""
SLOWEST = 5_000
"""Events per second below which a run is given up: a route that crashes is started again and again."""

Options = Mapping[str, object]
Step = Mapping[str, str | list[str] | Mapping[str, object]]
"""A step as it stands in a pipeline's YAML."""


class Part(StrEnum):
    """What the processes of a run are, by what they are called."""

    JVM = "JVM"
    WORKERS = "Python workers"
    ENGINE = "engine"


@dataclass(frozen=True)
class Delivered:
    """A run that took all events."""

    events: int
    seconds: float
    """From the start of the first batch to the last commit."""
    command_seconds: float
    """The whole command: Python, Spark and its JVM have to start and to end."""
    later: float | None
    """Events per second without the first batch, which starts the Python workers."""
    batches: Sequence[float]
    """The seconds of every batch, in order."""
    peak: Mapping[Part, float]
    """Resident MiB of each part when all of them together were at their highest."""
    totals: Totals

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def peak_mib(self) -> float:
        return sum(self.peak.values())


def deliver(
    log: Path,
    folder: Path,
    destination: Options,
    max_records: int,
    events: int,
    steps: Sequence[Step] = (),
    waiting: int = 0,
) -> Delivered:
    """Run a route from a copy of ``log`` to the destination, until every event is delivered but those that wait."""
    # Hard links: a run only ever adds files to a log.
    shutil.copytree(log, folder / "data" / "log", copy_function=os.link)
    token = {"id": "site", "client_secret": "unused"}
    source = {"type": "http", "listen": f"127.0.0.1:{free_port()}", "tokens": [token]}
    return run_project(write_project(folder, source, destination, max_records, steps), events, waiting)


def run_project(config: Path, events: int, waiting: int = 0) -> Delivered:
    """``penstock run --once`` of a project with one route, until every event is delivered but those that wait."""
    ran = run_once(config, events, START + events / SLOWEST)
    totals = ran.totals
    if totals.loaded != events - waiting or totals.items != events or totals.waiting != waiting:
        raise RuntimeError(f"of {events:,} events {totals.loaded:,} were loaded: {totals}")
    return ran


def run_once(config: Path, events: int, patience: float) -> Delivered:
    """The same, whatever becomes of the events; given up after so many seconds."""
    folder = config.parent
    command = [sys.executable, "-m", "penstock.cli.main", "run", "--once", "-c", str(config)]
    with (folder / "output.txt").open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            peak = _peak_until_end(process, seconds=patience)
        finally:
            _end(process)
        command_seconds = time.perf_counter() - began
    if process.returncode:
        said = (folder / "output.txt").read_text(errors="replace")[-4000:]
        raise RuntimeError(f"`penstock run --once` ended with {process.returncode}:\n{said}")
    pipeline = Pipeline.open(load(config), create=False)
    batches = pipeline.ledger.batches(ROUTE, last=1_000_000)
    totals = pipeline.ledger.totals(ROUTE)
    pipeline.ledger.close()
    first, last = batches[-1], batches[0]
    between = last.committed_at - first.committed_at
    later = (events - first.items) / between if between else None
    seconds = [batch.seconds for batch in reversed(batches)]
    return Delivered(events, between + first.seconds, command_seconds, later, seconds, peak, totals)


def write_project(
    folder: Path, source: Mapping[str, object], destination: Options, max_records: int, steps: Sequence[Step] = ()
) -> Path:
    """A pipeline of one source and one route, in a folder that is there; its config."""
    route = {"from": [SOURCE], "max_records": max_records, "steps": list(steps), "to": dict(destination)}
    config = {"name": "bench", "data_dir": "./data", "sources": {SOURCE: dict(source)}, "routes": {ROUTE: route}}
    path = folder / "pipeline.yaml"
    path.write_bytes(orjson.dumps(config))  # JSON is YAML
    return path


def _peak_until_end(process: subprocess.Popen[bytes], seconds: float) -> Mapping[Part, float]:
    root, peak = psutil.Process(process.pid), dict.fromkeys(Part, 0.0)
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        now = _resident(root)
        if sum(now.values()) > sum(peak.values()):
            peak = now
        try:
            process.wait(LOOK_EVERY)
        except subprocess.TimeoutExpired:
            continue
    return peak


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop it if it still runs: the first signal asks it to finish, the second to stop now."""
    for patience in (5, 60):
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)


def _resident(root: psutil.Process) -> dict[Part, float]:
    found = dict.fromkeys(Part, 0.0)
    try:
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return found
    for process in processes:
        try:
            found[_part_of(process)] += process.memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            continue
    return found


def _part_of(process: psutil.Process) -> Part:
    if "java" in process.name():
        return Part.JVM
    return Part.WORKERS if any("pyspark" in word for word in process.cmdline()) else Part.ENGINE
