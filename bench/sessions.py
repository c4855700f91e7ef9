"""Events exported by session: how full the pipe is if answers take time, and how much goes through it if they do not.

What is measured is the destination: staging as in a task, then writing as in the driver, with a ledger. The server is a
process of its own on the same machine, so on two cores it has a part of what is measured. Bytes are those of events as
they stand in requests, before they are compressed.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import aiohttp
import orjson
import pyarrow as pa
import uvloop
from isal import igzip

from bench.measure import Comparison, Contender, Figure, Goal, Role, Setting, by_turns
from bench.records import wide_events
from penstock.destinations.contract import Batch, Part
from penstock.destinations.dataset.config import DatasetConfig
from penstock.destinations.dataset.destination import DatasetDestination
from penstock.destinations.dataset.warm_up import warm_up
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
    sections = {"pipe": _pipe, "work": _work}
    wanted = [setting.section] if setting.section else list(sections)
    warm_up()
    return [comparison for name in wanted for comparison in sections[name](setting, setting.choose(5, 1))]


def _work(setting: Setting, rounds: int) -> list[Comparison]:
    return [
        *_flow(setting, rounds, "short events", _short_events(setting.choose(300_000, 4_000))),
        *_flow(setting, rounds, "wide events", _wide_events(setting.choose(150_000, 4_000))),
    ]


def _pipe(setting: Setting, rounds: int) -> list[Comparison]:
    # So many that a session sends over a hundred requests: what is asked for is the pipe, and not how it is filled.
    events = _short_events(setting.choose(400_000, 4_000))
    with _server(DELAY) as url:
        export = _Export(setting.folder / "piped", url, SMALL_REQUEST, events)
        us, peer = by_turns(
            [
                Contender(Role.US, "requests answered after 50 ms", export.requests_per_second),
                Contender(Role.PEER, "aiohttp alone, with such a request made before", partial(_posts_per_second, url)),
            ],
            rounds,
            # The file into which a ledger writes first has its size only after a while.
            warm_up=setting.choose(1, 0),
        )
    waits = export.waits[-rounds:]
    limit = Figure(Role.LIMIT, "one in flight per session, always", tuple(SESSIONS / wait for wait in waits))
    goal = Goal(f">= {GOAL_PIPE:.0%}", us.value / limit.value >= GOAL_PIPE)
    waited = f"from a request's last byte to its answer the server took {1e3 * SESSIONS / limit.value:.2f} ms"
    return [Comparison("sessions, pipe", "requests/s", (us, peer, limit), goal, (waited,))]


def _flow(setting: Setting, rounds: int, name: str, events: Sequence[bytes]) -> list[Comparison]:
    with _server(0.0) as url:
        export = _Export(setting.folder / name, url, LARGE_REQUEST, events)
        work, bare = by_turns(
            [
                Contender(Role.US, "mapped, staged, sent", export.megabytes_per_processor_second),
                Contender(Role.LIMIT, "the same bytes read and written by orjson, and gzip", export.bare_work),
            ],
            rounds,
        )
    flow = Figure(Role.US, "staged, then sent", tuple(export.flows))
    ratio = work.value / bare.value
    return [
        Comparison(
            f"sessions, work, {name}",
            "MB/processor s",
            (work, bare),
            Goal(f">= {GOAL_RATIO:.0%}", ratio >= GOAL_RATIO),
        ),
        Comparison(f"sessions, flow, {name}", "MB/s", (flow,), Goal(f">= {GOAL_MB:.0f}", flow.value >= GOAL_MB)),
    ]


class _Export:
    def __init__(self, folder: Path, url: str, request_bytes: int, events: Sequence[bytes]) -> None:
        folder.mkdir(parents=True)
        options = {"url": url, "token": "token", "group_by": ["s"], "max_size": request_bytes}
        self._folder = folder
        self._url = url
        self._destination = DatasetDestination(DatasetConfig.model_validate(options))
        self._book = RouteBook(Ledger.open(sqlite_url(folder / "ledger.db"), "bench"), "export")
        # As the reader of a task has them.
        self._batches = [_batch(events, start) for start in range(0, len(events), AT_ONCE)]
        self._count = len(events)
        self._number = 0
        self._parts = self._stage()
        self._bodies = _bodies(self._parts)
        self._megabytes = sum(map(len, self._bodies)) / 1e6
        self.flows: list[float] = []
        """Of all rounds: megabytes per second, first staged, then sent."""
        self.waits: list[float] = []
        """Of all rounds of requests: the seconds that the server let them wait."""

    def requests_per_second(self) -> float:
        _take_wait(self._url)
        began = time.perf_counter()
        requests = self._write()
        seconds = time.perf_counter() - began
        self.waits.append(_take_wait(self._url))
        return requests / seconds

    def megabytes_per_processor_second(self) -> float:
        began, worked = time.perf_counter(), time.process_time()
        self._parts = self._stage()
        self._write()
        self.flows.append(self._megabytes / (time.perf_counter() - began))
        return self._megabytes / (time.process_time() - worked)

    def bare_work(self) -> float:
        """The same bytes read, serialised and compressed, and nothing else."""
        worked = time.process_time()
        at_once = max(1, int(LARGE_REQUEST * len(self._bodies) / self._megabytes / 1e6))
        for start in range(0, len(self._bodies), at_once):
            documents = [orjson.loads(body) for body in self._bodies[start : start + at_once]]
            igzip.compress(b",".join(map(orjson.dumps, documents)), 1)
        return self._megabytes / (time.process_time() - worked)

    def _stage(self) -> list[Part]:
        shutil.rmtree(self._folder / "stage", ignore_errors=True)
        (self._folder / "stage").mkdir()
        stager = self._destination.stager(self._folder / "stage", {})
        for batch in self._batches:
            stager.add(batch)
        return stager.finish()

    def _write(self) -> int:
        """Returns the number of requests."""
        self._number += 1
        batch = Batch("bench", "export", self._number, {0: (0, self._count)})
        (receipt,) = self._destination.write(batch, self._parts, self._book).tables
        assert receipt.rows == self._count, receipt
        return receipt.tallies[""]["requests"]


def _batch(events: Sequence[bytes], start: int) -> pa.RecordBatch:
    return placed(entries(Record(event, namespace="web") for event in events[start : start + AT_ONCE]), 0, start)


def _bodies(parts: Sequence[Part]) -> list[bytes]:
    tables = [pa.ipc.open_file(part.path).read_all() for part in parts]
    return [body[:-1] for table in tables for body in table.column("body").to_pylist()]


def _short_events(count: int) -> list[bytes]:
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


def _wide_events(count: int) -> list[bytes]:
    return [b'{"s":"service-%d",%b' % (number % SESSIONS, event[1:]) for number, event in enumerate(wide_events(count))]


def _take_wait(url: str) -> float:
    """The seconds that the server has let requests wait, on the average since it was asked last."""
    with urllib.request.urlopen(url) as answer:
        return float(answer.read())


def _posts_per_second(url: str) -> float:
    """A request of ours over and over, one at a time for each session, by the client that we use."""
    body, each = igzip.compress(b",".join(_short_events(SMALL_REQUEST // 400)), 1), 40

    async def post() -> float:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def session_posts() -> None:
                for _ in range(each):
                    async with session.post(url, data=body) as response:
                        await response.read()

            began = time.perf_counter()
            await asyncio.gather(*(session_posts() for _ in range(SESSIONS)))
            return SESSIONS * each / (time.perf_counter() - began)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(post())


@contextmanager
def _server(delay: float) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.session_server", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None, "it was asked for"
        try:
            yield f"http://127.0.0.1:{int(running.stdout.readline())}"
        finally:
            running.kill()
