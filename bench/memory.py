"""Resident memory of every part of a pipeline under a steady load: it must not grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import numpy as np
import psutil

from bench import processes
from bench.load_client import SteadyLoad
from bench.measure import Comparison, Goal, Setting, ours
from bench.processes import ROUTE, wait_for
from bench.records import texts
from penstock.config.loading import load
from penstock.demo.sender import Client
from penstock.engine.pipeline import Pipeline

EVENTS_PER_REQUEST = 100
REQUESTS_PER_SECOND = 20
EVENT_BYTES = 500
GOAL_GROWTH = 1.10


class Part(StrEnum):
    """A part of a running pipeline, by what its processes are called."""

    COLLECTOR = "collector"
    ENGINE = "engine"
    JVM = "JVM"
    WORKERS = "Python workers"


@dataclass(frozen=True)
class Sample:
    """Resident MiB of every part, so many seconds after the load began."""

    second: float
    parts: dict[Part, float]


@dataclass(frozen=True)
class Window:
    """How long the load lasts, how much of it is warm-up, and how long the two ends are that are compared."""

    load: int
    warm_up: int
    end: int


def run(setting: Setting) -> list[Comparison]:
    window = Window(20, 10, 5) if setting.quick else Window(300, 60, 60)
    project = processes.write_project(setting.folder / "project")
    pool = texts(EVENTS_PER_REQUEST * 50, EVENT_BYTES)
    bodies = [b"\n".join(pool[at : at + EVENTS_PER_REQUEST]) for at in range(0, len(pool), EVENTS_PER_REQUEST)]
    with processes.pipeline(project) as process:
        pipeline = Pipeline.open(load(project.config))
        Client(project.port).post("/api/v1/event", pool[0])
        wait_for(lambda: pipeline.ledger.totals(ROUTE).items == 1, "the first event's row", [process])
        steady = SteadyLoad(
            project.port, "/api/v1/events/bulk", lambda number: bodies[number % len(bodies)], REQUESTS_PER_SECOND
        )
        samples = sampled(psutil.Process(process.pid), steady, window.load)
        taken = 1 + steady.acknowledged
        wait_for(lambda: pipeline.ledger.totals(ROUTE).items == taken, "the last rows", [process])
        pipeline.ledger.close()
    note = (
        f"median of the last {window.end} s of {window.load} s at {REQUESTS_PER_SECOND * EVENTS_PER_REQUEST:,} "
        f"events/s of {EVENT_BYTES} bytes, compared with the {window.end} s after a warm-up of {window.warm_up} s"
    )
    return [compared(part, samples, window, note) for part in Part]


def compared(part: Part, samples: Sequence[Sample], window: Window, note: str) -> Comparison:
    early = [s.parts[part] for s in samples if window.warm_up <= s.second < window.warm_up + window.end]
    late = [s.parts[part] for s in samples if s.second >= window.load - window.end]
    warm = [s for s in samples if s.second >= window.warm_up]
    slope = float(np.polyfit([s.second / 60 for s in warm], [s.parts[part] for s in warm], 1)[0])
    growth = median(late) / median(early)
    change = f"{median(early):.0f} -> {median(late):.0f} MiB ({growth - 1:+.1%}), {slope:+.2f} MiB/min"
    goal = Goal(f"<= {GOAL_GROWTH:.2f} x after warm-up", growth <= GOAL_GROWTH)
    return Comparison(f"memory, {part.value}", "MiB", ours(part.value, median(late)), goal, (note, change))


def sampled(supervisor: psutil.Process, steady: SteadyLoad, seconds: int) -> list[Sample]:
    """One sample per second while the load lasts."""
    problems: list[Exception] = []

    def work() -> None:
        try:
            steady.run(seconds)
        except RuntimeError as error:
            problems.append(error)

    loading = threading.Thread(target=work)
    loading.start()
    began, samples = time.monotonic(), []
    while loading.is_alive():
        samples.append(Sample(time.monotonic() - began, resident(supervisor)))
        loading.join(timeout=1.0)
    if problems:
        raise problems[0]
    return samples


def resident(supervisor: psutil.Process) -> dict[Part, float]:
    found = dict.fromkeys(Part, 0.0)
    for process in supervisor.children(recursive=True):
        try:
            found[part_of(process)] += process.memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            continue
    return found


def part_of(process: psutil.Process) -> Part:
    command = " ".join(process.cmdline())
    if "pyspark" in command and "java" not in process.name():
        return Part.WORKERS
    if "java" in process.name():
        return Part.JVM
    return (
        Part.ENGINE if "penstock.engine.processes.child" in command and command.endswith(" engine") else Part.COLLECTOR
    )
