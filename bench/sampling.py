"""Traces sampled by five policies: from OTLP requests in the log to what leaves, and from the socket into the log."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import orjson
import pyarrow as pa

from bench import collector, processes, spans
from bench.collector import CONNECTIONS, Load, recorded
from bench.grpc_load import CHANNELS
from bench.measure import Comparison, Contender, Figure, Goal, Role, Setting, by_turns
from bench.processes import ROUTE, SOURCE
from bench.spans import SPANS_PER_REQUEST
from bench.to_the_end import START, Delivered, Step, run_once, write_project
from bench.waiting import fill, seconds_of_passes
from penstock.otlp.request_bytes import PROTOBUF
from penstock.otlp.span_scan import scan_requests
from penstock.sources.otlp.config import OtlpConfig
from tests.support.ports import free_port, listens

FRAME = 100
"""Requests in a frame: about 5 MB, as a busy collector writes them."""
BATCH = 4_000
"""Requests in a batch."""
SMALL_BATCH = 200
AT_ONCE = 100_000
"""Traces that begin while one goes on: its spans come over two and a half batches."""
WAITING_SPANS = 2
"""Of each trace that waits, before the small batches bring more of it."""
GOAL_RATE, GOAL_INTAKE, GOAL_GROWTH = 300_000, 100_000, 1.3
SLOWEST = 10_000
"""Spans per second below which a run is given up."""

POLICIES = (
    {"name": "errors", "type": "status_code", "status_code": {"status_codes": ["ERROR"]}},
    {"name": "slow", "type": "latency", "latency": {"threshold_ms": 5000}},
    {
        "name": "slow-checkout",
        "type": "and",
        "and": {
            "and_sub_policy": [
                {
                    "name": "checkout",
                    "type": "string_attribute",
                    "string_attribute": {"key": "service.name", "values": ["checkout"]},
                },
                {"name": "over-1s", "type": "latency", "latency": {"threshold_ms": 1000}},
            ]
        },
    },
    {
        "name": "unavailable",
        "type": "ottl_condition",
        "ottl_condition": {"span": [f'attributes["http.response.status_code"] == {spans.UNAVAILABLE}']},
    },
    {"name": "base", "type": "probabilistic", "probabilistic": {"sampling_percentage": 1}},
)
FOLDERS = itertools.count()


def sample(most_waiting: int) -> Step:
    return {"sample": {"policies": list(POLICIES), "primary_cache_size": most_waiting}}


SAMPLE = sample(2 * AT_ONCE)
SPANS: Step = {"spans": {}}


def run(setting: Setting) -> list[Comparison]:
    sections = {"route": routes, "scan": scanning, "pending": pending, "intake": intake}
    wanted = [setting.section] if setting.section else list(sections)
    return [comparison for name in wanted for comparison in sections[name](setting)]


def frames(requests: int, at_once: int = AT_ONCE, seed: int = 1) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(seed)
    for first in range(0, requests, FRAME):
        count = min(FRAME, requests - first) * SPANS_PER_REQUEST
        yield spans.as_batch(spans.requests(spans.spread_traces(first * SPANS_PER_REQUEST, count, at_once, rng), rng))


def routes(setting: Setting) -> list[Comparison]:
    """Spans per second through routes into files: with the step, with ``spans`` in its place, and without a step."""
    requests, batch = setting.choose(6 * BATCH, 1_000), setting.choose(BATCH, 250)
    few = 2 * batch
    log, small_log = setting.folder / "log", setting.folder / "small-log"
    fill(log, frames(requests))
    fill(small_log, frames(few))
    ours: list[Delivered] = []

    def sampled() -> float:
        ours.append(route(setting, log, requests, batch, SAMPLE))
        return spans_per_second(ours[-1])

    figures = by_turns(
        [
            Contender(Role.US, "with `sample`", sampled),
            Contender(
                Role.PEER,
                "the same route with `spans` in its place: every span becomes a row",
                lambda: spans_per_second(route(setting, small_log, few, batch, SPANS)),
            ),
            Contender(
                Role.LIMIT,
                "the same route into `null` without a step, which looks into no request",
                lambda: spans_per_second(route(setting, log, requests, batch, to={"type": "null"})),
            ),
        ],
        setting.choose(3, 1),
    )
    us, peer = figures[0].value, figures[1].value
    goal = Goal(f">= {GOAL_RATE:,}/s and >= 1.0 x the peer", us >= GOAL_RATE and us >= peer)
    total, totals = requests * SPANS_PER_REQUEST, ours[-1].totals
    spent = seconds_of_passes(setting, log, SAMPLE)
    parts = zip(("scan", "decide", "release"), spent / spent.sum(), strict=True)
    size = spans.span_bytes()
    notes = (
        f"{total:,} spans of {size} bytes with 12 attributes, in requests of {SPANS_PER_REQUEST}, in batches of"
        f" {batch * SPANS_PER_REQUEST:,}, from the log into NDJSON files by `penstock run --once`; without the first"
        " batch, which starts the Python workers; five policies, both decision caches of their default size",
        f"{us / peer:.1f} x the peer, which was given {few * SPANS_PER_REQUEST:,} spans in batches of the same size;"
        f" rounds: ours {_listed(figures[0])}, the peer's {_listed(figures[1])}",
        f"{totals.loaded:,} spans sampled ({totals.loaded / total:.1%}), {totals.skipped:,}"
        f" dropped, {totals.waiting:,} wait; every one is counted, and the files have {totals.loaded:,} lines",
        "of the work, in one process without Spark, " + ", ".join(f"{name} is {share:.0%}" for name, share in parts),
    )
    return [Comparison("sampling", "spans/s", figures, goal, notes)]


def route(
    setting: Setting, log: Path, requests: int, batch: int, *steps: Step, to: dict[str, str] | None = None
) -> Delivered:
    """Run a route from a copy of a log, and count what became of its spans."""
    folder = setting.folder / f"run-{next(FOLDERS)}"
    folder.mkdir()
    # Hard links: a run only ever adds files to a log.
    shutil.copytree(log, folder / "data" / "log", copy_function=os.link)
    source = {"type": "otlp", "listen": f"127.0.0.1:{free_port()}"}
    out = folder / "out"
    config = write_project(folder, source, to or {"type": "file", "path": str(out)}, batch, steps)
    ran = run_once(config, requests, START + requests * SPANS_PER_REQUEST / SLOWEST)
    totals = ran.totals
    given = requests * SPANS_PER_REQUEST if steps else requests
    if totals.items != requests or totals.items + totals.added != given or not totals.adds_up or totals.failed:
        raise RuntimeError(f"of {given:,} spans in {requests:,} requests not all are accounted for: {totals}")
    if to is None and (lines := sum(map(_lines, out.rglob("*.ndjson")))) != totals.loaded:
        raise RuntimeError(f"the files have {lines:,} spans, and not {totals.loaded:,}")
    shutil.rmtree(folder)
    return ran


def spans_per_second(ran: Delivered) -> float:
    return (ran.later or ran.rate) * SPANS_PER_REQUEST


def _listed(figure: Figure) -> str:
    return " and ".join(f"{each:,.0f}" for each in figure.rounds)


def _lines(file: Path) -> int:
    with file.open("rb") as text:
        return sum(block.count(b"\n") for block in iter(lambda: text.read(1 << 20), b""))


def scanning(setting: Setting) -> list[Comparison]:
    """The scanner alone, on one core and on two at once."""
    requests, turns = setting.choose(2_000, 200), setting.choose(8, 2)
    rng = np.random.default_rng(2)
    made = spans.requests(spans.spread_traces(0, requests * SPANS_PER_REQUEST, 10_000, rng), rng)

    def on_cores(cores: int) -> float:
        # Forked, so that the requests are there.
        with get_context("fork").Pool(cores, _keep, (made,)) as pool:
            pool.map(_scan_all, range(cores), 1)
            began = perf_counter()
            counts = pool.map(_scan_all, range(cores * turns), 1)
            seconds = perf_counter() - began
        if set(counts) != {requests * SPANS_PER_REQUEST}:
            raise RuntimeError(f"of {requests * SPANS_PER_REQUEST:,} spans {counts} were found")
        return sum(counts) / seconds

    _keep(made)
    _scan_all(0)
    one, two = (
        by_turns([Contender(Role.US, "`scan_requests`", partial(on_cores, cores))], setting.choose(3, 1))
        for cores in (1, 2)
    )
    note = f"the bytes of {requests:,} requests in memory; two attributes are looked for in every span"
    return [
        Comparison("sampling, scan on one core", "spans/s", one, None, (note,)),
        Comparison("sampling, scan on two cores", "spans/s", two),
    ]


_kept: list[spans.Bytes] = []


def _keep(made: spans.Bytes) -> None:
    """As many requests at once as the reader of the log gives."""
    _kept[:] = [made[at : at + 160] for at in range(0, len(made), 160)]


def _scan_all(_: int) -> int:
    """Returns how many spans there are."""
    return sum(_scan(piece) for piece in _kept)


def _scan(made: spans.Bytes) -> int:
    offsets = np.arange(0, made.size + 1, made.shape[1])
    found = scan_requests(made.reshape(-1), offsets, ("http.response.status_code", "service.name"))
    return len(found.spans.begin)


def pending(setting: Setting) -> list[Comparison]:
    """Seconds per small batch while many or few traces wait."""
    most, few = setting.choose(1_000_000, 40_000), setting.choose(100_000, 10_000)
    runs = {waiting: _run_beside(setting, waiting) for waiting in (few, most)}
    seconds = {waiting: median(ran.batches[-20:]) for waiting, ran in runs.items()}
    memory = {n: ", ".join(f"{part} {mib:,.0f}" for part, mib in ran.peak.items()) for n, ran in runs.items()}
    figures = (
        Figure(Role.US, f"{most:,} traces wait", (seconds[most],)),
        Figure(Role.LIMIT, f"{few:,} traces wait", (seconds[few],)),
    )
    ratio = seconds[most] / seconds[few]
    notes = (
        f"batches of {SMALL_BATCH * SPANS_PER_REQUEST:,} spans of these traces, each with {WAITING_SPANS} that wait"
        f" before; {ratio:.2f} x",
        *(
            f"with {n:,} traces waiting, peak MiB: {memory[n]}; {ran.totals.waiting:,} spans wait at the end"
            for n, ran in runs.items()
        ),
    )
    goal = Goal(f"<= {GOAL_GROWTH} x", ratio <= GOAL_GROWTH)
    return [Comparison("sampling, pending", "s per batch", figures, goal, notes)]


def _run_beside(setting: Setting, waiting: int) -> Delivered:
    """Spans of so many traces, and then small batches of more of them."""
    log = setting.folder / f"log-{waiting}"
    filling, small = waiting * WAITING_SPANS // SPANS_PER_REQUEST, setting.choose(30, 5) * SMALL_BATCH
    fill(log, _filling_frames(waiting, filling))
    fill(log, _random_frames(waiting, small))
    ran = route(setting, log, filling + small, SMALL_BATCH, sample(2 * waiting), to={"type": "null"})
    shutil.rmtree(log)
    if ran.totals.skipped or ran.totals.waiting < 0.9 * (filling + small) * SPANS_PER_REQUEST:
        raise RuntimeError(f"not all of {waiting:,} traces wait but those that were sampled: {ran.totals}")
    return ran


def _filling_frames(traces: int, requests: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(3)
    for first in range(0, requests, SMALL_BATCH):
        count = min(SMALL_BATCH, requests - first) * SPANS_PER_REQUEST
        numbers = (first * SPANS_PER_REQUEST + np.arange(count)) % traces
        yield spans.as_batch(spans.requests(numbers, rng, spans.Shares(0, 0, 0, 0), small=True))


def _random_frames(traces: int, requests: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(4)
    for _ in range(0, requests, SMALL_BATCH // 2):
        numbers = rng.integers(0, traces, SMALL_BATCH // 2 * SPANS_PER_REQUEST)
        yield spans.as_batch(spans.requests(numbers, rng))


def intake(setting: Setting) -> list[Comparison]:
    """Requests over HTTP, each on disk before its answer."""
    rng = np.random.default_rng(5)
    made = spans.requests(spans.spread_traces(0, 32 * SPANS_PER_REQUEST, 1_000, rng), rng)
    plain, packed = setting.folder / "plain", setting.folder / "packed"
    for folder in (plain, packed):
        folder.mkdir()
    for number, body in enumerate(made):
        (plain / f"{number}").write_bytes(body.tobytes())
        (packed / f"{number}").write_bytes(gzip.compress(body.tobytes(), 6))
    return [
        _intake(setting, "sampling, intake", plain, "", GOAL_INTAKE),
        _intake(setting, "sampling, intake of gzip", packed, "gzip", None),
        _grpc_intake(setting, plain),
    ]


def _intake(setting: Setting, name: str, bodies: Path, encoding: str, least: int | None) -> Comparison:
    seconds, rounds = setting.choose(10, 2), setting.choose(3, 1)
    ours: list[Load] = []

    def ours_rate() -> float:
        folder = setting.folder / f"intake-{next(FOLDERS)}"
        folder.mkdir()
        port = free_port()
        project = processes.Project(folder, port)
        project.config.write_bytes(orjson.dumps(_intake_config(port)))
        with processes.collector(project):
            loads = [_post(port, bodies, encoding, 1), _post(port, bodies, encoding, seconds)]
        collector.check(loads, recorded(project.log))
        ours.append(loads[-1])
        shutil.rmtree(folder)
        return loads[-1].rate * SPANS_PER_REQUEST

    def no_work_rate() -> float:
        folder = setting.folder / f"intake-{next(FOLDERS)}"
        folder.mkdir()
        port = free_port()
        workers: int = OtlpConfig.model_fields["workers"].default
        with processes.running([["-m", "bench.no_work", str(port)]] * workers, folder) as servers:
            processes.wait_for(lambda: listens(port), "the server without work", servers)
            _post(port, bodies, encoding, 1)
            return _post(port, bodies, encoding, seconds).rate * SPANS_PER_REQUEST

    figures = by_turns(
        [
            Contender(Role.US, "the source `otlp`, default options", ours_rate),
            Contender(Role.LIMIT, "the same server and workers, answering 200 without work", no_work_rate),
        ],
        rounds,
    )
    size = sum(file.stat().st_size for file in bodies.iterdir()) / 32
    note = (
        f"wrk, {CONNECTIONS} connections, one thread, same machine; requests of {SPANS_PER_REQUEST} spans, {size:,.0f}"
        f" bytes; fsync: always; p50 {median(load.p50_ms for load in ours):.0f} ms, p99"
        f" {median(load.p99_ms for load in ours):.0f} ms; every 200 of {sum(load.requests for load in ours):,} found"
        " again in the log"
    )
    goal = None if least is None else Goal(f">= {least:,}/s", figures[0].value >= least)
    return Comparison(name, "spans/s", figures, goal, (note,))


def _grpc_intake(setting: Setting, bodies: Path) -> Comparison:
    seconds, rounds = setting.choose(10, 2), setting.choose(3, 1)
    ours: list[Load] = []

    def ours_rate() -> float:
        folder = setting.folder / f"intake-{next(FOLDERS)}"
        folder.mkdir()
        port, grpc_port = free_port(), free_port()
        project = processes.Project(folder, port)
        project.config.write_bytes(orjson.dumps(_intake_config(port, grpc_port)))
        with processes.collector(project):
            processes.wait_for(lambda: listens(grpc_port), "the port of gRPC")
            loads = [_export(grpc_port, bodies, 1), _export(grpc_port, bodies, seconds)]
        collector.check(loads, recorded(project.log))
        ours.append(loads[-1])
        shutil.rmtree(folder)
        return loads[-1].rate * SPANS_PER_REQUEST

    figures = by_turns([Contender(Role.US, "the source `otlp`, default options, by gRPC", ours_rate)], rounds)
    note = (
        f"grpcio, {CONNECTIONS} requests at once over {CHANNELS} channels, one process, same machine; requests of"
        f" {SPANS_PER_REQUEST} spans; fsync: always; p50 {median(load.p50_ms for load in ours):.0f} ms, p99"
        f" {median(load.p99_ms for load in ours):.0f} ms; the load takes a part of the machine that grows with it"
    )
    return Comparison("sampling, intake by gRPC", "spans/s", figures, None, (note,))


def _export(port: int, bodies: Path, seconds: int) -> Load:
    """Keep all channels busy for so long."""
    files = [str(file) for file in sorted(bodies.iterdir())]
    command = [sys.executable, "-m", "bench.grpc_load", str(port), str(seconds), str(CONNECTIONS), *files]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    return Load(**json.loads(output.splitlines()[-1]))


def _intake_config(port: int, grpc_port: int | None = None) -> dict[str, object]:
    grpc = {} if grpc_port is None else {"grpc": f"127.0.0.1:{grpc_port}"}
    return {
        "name": "bench",
        "data_dir": "./data",
        "sources": {SOURCE: {"type": "otlp", "listen": f"127.0.0.1:{port}", **grpc}},
        "routes": {ROUTE: {"from": [SOURCE], "to": {"type": "null"}}},
    }


def _post(port: int, bodies: Path, encoding: str, seconds: int) -> Load:
    """Keep all connections busy for so long."""
    root = Path(__file__).parents[1]
    wrk = subprocess.run([root / "scripts" / "ensure-wrk"], check=True, capture_output=True, text=True).stdout.strip()
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(root / "bench" / "post_bodies.lua")]
    files: Sequence[str] = [str(file) for file in sorted(bodies.iterdir())]
    output = subprocess.run(
        [*command, f"http://127.0.0.1:{port}", "--", "/v1/traces", PROTOBUF, encoding, *files],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return Load(**json.loads(output.splitlines()[-1]))
