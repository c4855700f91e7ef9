"""Events exported by session: how full the pipe is if answers take time, and how much goes through it if they do not.

What is measured is the destination: staging as in a task, then writing as in the driver, with a ledger. The server is a
process of its own on the same machine, so on two cores it has a part of what is measured.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson
from isal import igzip

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns, ours
from penstock.destinations.contract import Batch, Part
from penstock.destinations.dataset.config import DatasetConfig
from penstock.destinations.dataset.destination import DatasetDestination
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.record import Record, entries, placed

SESSIONS = 100
DELAY = 0.05
SMALL_REQUEST = 16 << 10
LARGE_REQUEST = 1 << 20
AT_ONCE = 5_000
GOAL_PIPE, GOAL_MB, GOAL_RATIO = 0.95, 80.0, 0.6
_WORDS = ("alpha", "request", "timeout", "user", "GET", "POST", "/api/v1/items", "error", "served", "cache", "ms")


def run(setting: Setting) -> list[Comparison]:
    small, large = setting.choose(100_000, 4_000), setting.choose(300_000, 4_000)
    rounds = setting.choose(5, 1)
    with _server(DELAY) as url:
        piped = _Export(setting.folder / "piped", url, SMALL_REQUEST, _events(small))
        pipe, ideal = by_turns(
            [
                Contender(Role.US, "requests answered after 50 ms", piped.requests_per_second),
                Contender(Role.LIMIT, "one in flight per session, always", lambda: SESSIONS / DELAY),
            ],
            rounds,
        )
    with _server(0.0) as url:
        flowing = _Export(setting.folder / "flowing", url, LARGE_REQUEST, _events(large))
        flow, *_ = by_turns([Contender(Role.US, "staged, answered at once", flowing.megabytes_per_second)], rounds)
        work, bare = by_turns(
            [
                Contender(Role.US, "mapped, staged and compressed", flowing.megabytes_per_processor_second),
                Contender(Role.LIMIT, "orjson and gzip alone", partial(_bare, _events(large))),
            ],
            rounds,
        )
    share, ratio = pipe.value / ideal.value, work.value / bare.value
    # At best: if two cores did nothing else, and nothing waited for anything.
    whole = ours("twice the work of a processor second", 2 * work.value)
    return [
        Comparison("sessions, pipe", "requests/s", (pipe, ideal), Goal(f">= {GOAL_PIPE:.0%}", share >= GOAL_PIPE)),
        Comparison("sessions, sending what is staged", "MB/s", (flow,)),
        Comparison("sessions, work", "MB/processor s", (work, bare), Goal(f">= {GOAL_RATIO:.0%}", ratio >= GOAL_RATIO)),
        Comparison("sessions, flow on two cores", "MB/s", whole, Goal(f">= {GOAL_MB:.0f}", whole[0].value >= GOAL_MB)),
        Comparison("sessions, bytes", "MB", ours("of a batch", flowing.megabytes)),
    ]


@dataclass
class _Export:
    folder: Path
    url: str
    request_bytes: int
    events: Sequence[bytes]
    _number: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        options = {"url": self.url, "token": "token", "group_by": ["s"], "max_size": self.request_bytes}
        self._destination = DatasetDestination(DatasetConfig.model_validate(options))
        self._book = RouteBook(Ledger.open(sqlite_url(self.folder / "ledger.db"), "bench"), "export")
        began = time.process_time()
        self._parts = self._stage()
        self._staging = time.process_time() - began

    @property
    def megabytes(self) -> float:
        return sum(Path(part.path).stat().st_size for part in self._parts) / 1e6

    def requests_per_second(self) -> float:
        requests, seconds, _ = self._write()
        return requests / seconds

    def megabytes_per_second(self) -> float:
        return self.megabytes / self._write()[1]

    def megabytes_per_processor_second(self) -> float:
        return self.megabytes / (self._staging + self._write()[2])

    def _stage(self) -> list[Part]:
        shutil.rmtree(self.folder / "stage", ignore_errors=True)
        (self.folder / "stage").mkdir()
        stager = self._destination.stager(self.folder / "stage", {})
        for start in range(0, len(self.events), AT_ONCE):
            rows = entries(Record(event, namespace="web") for event in self.events[start : start + AT_ONCE])
            stager.add(placed(rows, 0, start))
        return stager.finish()

    def _write(self) -> tuple[int, float, float]:
        """Requests, seconds, and seconds of the processor."""
        self._number += 1
        began, worked = time.perf_counter(), time.process_time()
        batch = Batch("bench", "export", self._number, {0: (0, len(self.events))})
        (receipt,) = self._destination.write(batch, self._parts, self._book).tables
        assert receipt.rows == len(self.events), receipt
        return receipt.tallies[""]["requests"], time.perf_counter() - began, time.process_time() - worked


def _events(count: int) -> list[bytes]:
    return [
        orjson.dumps(
            {
                "s": f"service-{number % SESSIONS}",
                "n": number,
                "level": "info",
                "path": f"/api/items/{number}",
                "message": " ".join(_WORDS[(number * 7 + place * place) % len(_WORDS)] for place in range(50)),
            }
        )
        for number in range(count)
    ]


def _bare(events: Sequence[bytes]) -> float:
    """Read, serialised and compressed, and nothing else."""
    began, size = time.process_time(), 0
    documents = [orjson.loads(event) for event in events]
    for start in range(0, len(documents), AT_ONCE):
        body = b",".join(map(orjson.dumps, documents[start : start + AT_ONCE]))
        size += len(body)
        igzip.compress(body, 1)
    return size / 1e6 / (time.process_time() - began)


@contextmanager
def _server(delay: float) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.session_server", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None, "it was asked for"
        try:
            yield f"http://127.0.0.1:{int(running.stdout.readline())}"
        finally:
            running.kill()
