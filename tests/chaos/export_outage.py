"""How exports behave while an API fails, in figures: what one failing session costs the others, and how what has waited
for an hour is caught up.

``python -m tests.chaos.export_outage --sessions 200 --batches 900``

It is a route with its log and its ledger, as the engine delivers it, without Spark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import psutil

from tests.destinations.dataset.export_route import ExportRoute
from tests.simulators.dataset import TAKE, Accepted, DatasetServer, Reply, dataset_server

BUSY = Reply(503, b"{}")
ANSWERS_AFTER = 0.02
EVERY = 0.5
"""Seconds from one batch to the next."""


@dataclass(frozen=True)
class Delay:
    """Seconds from the log to the API, of the sessions that do not fail: of each batch, and of these the median one,
    so that what else the machine does at a time is not taken for a delay."""

    median: float
    p95: float

    @classmethod
    def of(cls, batches: Sequence[Sequence[float]]) -> Self:
        median, p95 = (float(np.median([np.percentile(each, share) for each in batches])) for share in (50, 95))
        return cls(median, p95)


@dataclass(frozen=True)
class CatchUp:
    waited: int
    """Events that had waited."""
    seconds: float
    megabytes: float
    """By which the process was larger at its largest than before the API came back."""
    fresh: float
    """Events per second when nothing waits."""
    wrong: tuple[str, ...]

    @property
    def rate(self) -> float:
        return self.waited / self.seconds


class Arrivals(list[Accepted]):
    """In the place of what the simulator keeps: the numbers of events alone, so that the memory that is measured is not
    the simulator's."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, array[int]] = defaultdict(lambda: array("q"))

    def append(self, each: Accepted) -> None:
        self.numbers[each.info["s"]].extend(event["attrs"]["n"] for event in each.events)


def delays_beside(folder: Path, sessions: int, rounds: int) -> Mapping[str, Delay]:
    """The delays beside a session that succeeds, is answered 503, or gets no answer; by turns, so that they share
    whatever else the machine does."""
    kinds = {"all succeed": Reply(delay=ANSWERS_AFTER), "one fails": BUSY, "one hangs": Reply(delay=60.0)}
    names, found = [f"s{number}" for number in range(sessions)], defaultdict[str, list[list[float]]](list)
    with dataset_server() as server:
        routes, one = dict[str, ExportRoute](), dict[str, str]()
        for kind in kinds:
            (folder / kind).mkdir()
            routes[kind] = ExportRoute(folder / kind, server, timeout="3s", patience="1s")
            routes[kind].deliver(names)
            one[kind] = next(each.session for each in server.accepted if each.info["s"] == "s0")
            server.accepted.clear()
        replies = {one[kind]: reply for kind, reply in kinds.items()}
        server.decide = lambda session, number: replies.get(session, Reply(delay=ANSWERS_AFTER))
        for _ in range(rounds):
            for kind, route in routes.items():
                began = time.monotonic()
                route.deliver(names)
                route.retry()
                found[kind].append([each.at - began for each in server.accepted if each.session != one[kind]])
                server.accepted.clear()
                # A route has its own pace.
                time.sleep(max(0.0, EVERY - (time.monotonic() - began)))
    return {kind: Delay.of(batches) for kind, batches in found.items()}


def catch_up(folder: Path, sessions: int, batches: int, events: int) -> CatchUp:
    """``events`` of each session in each batch, of which none is taken until all batches are delivered."""
    names = [f"s{number % sessions}" for number in range(sessions * events)]
    arrived = Arrivals()
    with dataset_server(DatasetServer(accepted=arrived)) as server:
        route = ExportRoute(folder, server, retry={"initial": "100ms", "max": "100ms"})
        route.append(names)
        began = time.monotonic()
        route.deliver()
        fresh = len(names) / (time.monotonic() - began)
        server.decide = lambda session, number: BUSY
        for _ in range(batches):
            route.deliver(names)
        waited = route.totals.waiting
        server.decide = lambda session, number: TAKE
        process = psutil.Process()
        before = largest = process.memory_info().rss
        began = time.monotonic()
        while route.totals.waiting:
            route.retry()
            largest = max(largest, process.memory_info().rss)
            if time.monotonic() - began > 3_600:
                break
        seconds = time.monotonic() - began
        wrong = []
        for session, found in arrived.numbers.items():
            numbers = found.tolist()
            if numbers != sorted(set(numbers)) or len(numbers) != (batches + 1) * events:
                wrong.append(f"{session} has {len(numbers)} events, or not in order")
        if len(arrived.numbers) != sessions:
            wrong.append(f"events of {len(arrived.numbers)} sessions have arrived")
        if server.overlaps or server.complaints:
            wrong.append(f"{len(server.overlaps)} overlaps, {server.complaints[:1]}")
    return CatchUp(waited, seconds, (largest - before) / 1e6, fresh, tuple(wrong))


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--batches", type=int, default=900, help="batches that come while the API is away")
    parser.add_argument("--events", type=int, default=5, help="of each session in each batch")
    parser.add_argument("--rounds", type=int, default=40, help="batches of each kind beside a failing session")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-outage-") as folder:
        (Path(folder) / "beside").mkdir()
        for kind, delay in delays_beside(Path(folder) / "beside", options.sessions, options.rounds).items():
            print(f"{kind}: median {delay.median * 1e3:.0f} ms, p95 {delay.p95 * 1e3:.0f} ms", flush=True)
        (Path(folder) / "outage").mkdir()
        found = catch_up(Path(folder) / "outage", options.sessions, options.batches, options.events)
    print(
        f"{found.waited} events of {options.batches} batches caught up in {found.seconds:.1f} s: {found.rate:.0f}/s,"
        f" where fresh ones go at {found.fresh:.0f}/s; memory grew by {found.megabytes:.0f} MB"
    )
    for wrong in found.wrong:
        print(f"BROKEN: {wrong}")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
