"""Records through steps that decide over several batches; and what a batch costs when ten million records wait."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.measure import Comparison, Contender, Figure, Goal, Role, Setting, by_turns
from bench.processes import SOURCE
from bench.records import as_batch
from bench.to_the_end import Delivered, Step, deliver
from penstock.config.pipeline_config import PipelineConfig
from penstock.engine.pipeline import route_plan
from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.release_task import run_release
from penstock.engine.stateful.scan_task import run_scan
from penstock.engine.stateful.shard_decision import ShardReport, decide
from penstock.engine.stateful.shards import shard_at, shard_numbers, slices
from penstock.holding.decision import Decision
from penstock.holding.packed_rows import pack_rows, unpack_rows
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.steps.contract import HoldingState

RECORD_BYTES = 350
FRAME = 2000
LATER = 1_250_000
"""So many records after it, an order is closed."""
BATCH = 500_000
SMALL_BATCH = 20_000
GATHER: Step = {"gather": {"key": "order", "until": "done", "at_most": "10h"}}
DEDUPE: Step = {"dedupe": {"key": "id", "window": "10h"}}
FOLDERS = itertools.count()


def run(setting: Setting) -> list[Comparison]:
    log = setting.folder / "log"
    total = setting.choose(6 * BATCH, BATCH // 5)
    fill(log, [orders(start, start + FRAME) for start in range(0, total, FRAME)])
    return [*throughput(setting, log, total), many_waiting(setting)]


def orders(start: int, stop: int) -> pa.RecordBatch:
    """Records of a fixed size. Every tenth waits for another one to close its order, long after it."""
    texts = []
    for number in range(start, stop):
        order = number - 1 - LATER if number % 10 == 1 and number > LATER else number
        done = "false" if number % 10 == 0 else "true"
        text = f'{{"id":{number},"order":{order},"done":{done},"page":"{number * 7919 % 10**9}","note":"'
        texts.append(f"{text}{'abcdefgh' * 40}"[: RECORD_BYTES - 2].encode() + b'"}')
    return as_batch(texts)


def fill(folder: Path, batches: Sequence[pa.RecordBatch] | Iterator[pa.RecordBatch]) -> None:
    """A log as two workers of a collector leave it."""
    log = LocalLog(folder, LogConfig(fsync="never"))
    with log.writer(SOURCE, 0) as first, log.writer(SOURCE, 1) as second:
        for writer, batch in zip(itertools.cycle([first, second]), batches, strict=False):
            writer.append(batch)


def route(setting: Setting, log: Path, max_records: int, total: int, *steps: Step, waiting: int = 0) -> Delivered:
    folder = setting.folder / f"run-{next(FOLDERS)}"
    folder.mkdir()
    ran = deliver(log, folder, {"type": "null"}, max_records, total, steps, waiting)
    shutil.rmtree(folder)
    return ran


def throughput(setting: Setting, log: Path, total: int) -> list[Comparison]:
    waiting = min(total, LATER) // 10

    def rate(ran: Delivered) -> float:
        return ran.later or ran.rate

    bare = Contender(Role.LIMIT, "the same route without the step", lambda: rate(route(setting, log, BATCH, total)))
    ours = {
        "gather": lambda: rate(route(setting, log, BATCH, total, GATHER, waiting=waiting)),
        "dedupe": lambda: rate(route(setting, log, BATCH, total, DEDUPE)),
    }
    shared = (
        f"{total:,} records of {RECORD_BYTES} bytes in batches of {BATCH:,}, from the log to `null`, by `penstock run"
        " --once`; without the first batch, which starts the Python workers"
    )
    notes = {
        "gather": (shared, "every tenth record waits, for two and a half batches", shares_of_passes(setting, log)),
        "dedupe": ("no key comes twice, so all records go on, and all keys stay known",),
    }
    found = []
    for name, measure in ours.items():
        figures = by_turns([Contender(Role.US, f"with `{name}`", measure), bare], setting.choose(3, 1))
        goal = Goal(">= 300,000/s", figures[0].value >= 300_000)
        found.append(Comparison(f"waiting, {name}", "records/s", figures, goal, notes[name]))
    return found


def many_waiting(setting: Setting) -> Comparison:
    """Seconds per small batch while many or few records wait, in groups of ten."""
    most = setting.choose(10_000_000, 200_000)
    few = most // 100
    runs = {waiting: _run_beside(setting, waiting) for waiting in (few, most)}
    # Those before the small ones fill the state; the first few small ones are of workers that are still new.
    seconds = {waiting: median(ran.batches[-20:]) for waiting, ran in runs.items()}
    memory = {n: ", ".join(f"{part} {mib:,.0f}" for part, mib in ran.peak.items()) for n, ran in runs.items()}
    figures = (
        Figure(Role.US, f"{most:,} records wait", (seconds[most],)),
        Figure(Role.LIMIT, f"{few:,} records wait", (seconds[few],)),
    )
    ratio = seconds[most] / seconds[few]
    notes = [f"batches of {SMALL_BATCH:,}, without ticks; {ratio:.2f} x; peak MiB with {few:,} waiting: {memory[few]}"]
    notes.append(f"with {most:,} waiting in {most // 10:,} groups: {memory[most]}")
    return Comparison("waiting, many", "s per batch", figures, Goal("<= 1.3 x", ratio <= 1.3), tuple(notes))


def _run_beside(setting: Setting, waiting: int) -> Delivered:
    log = setting.folder / f"log-{waiting}"
    small = 40 * SMALL_BATCH
    fill(log, (_short(start, min(start + 10_000, waiting), waiting // 10) for start in range(0, waiting, 10_000)))
    fill(log, (_short(start, start + 10_000, None) for start in range(waiting, waiting + small, 10_000)))
    ran = route(setting, log, SMALL_BATCH, waiting + small, GATHER, waiting=waiting)
    shutil.rmtree(log)
    return ran


def _short(start: int, stop: int, groups: int | None) -> pa.RecordBatch:
    """Small records: of one of so many groups that stay open, or each a group that is closed."""
    if groups is None:
        return as_batch([b'{"order":"x%d","done":true}' % number for number in range(start, stop)])
    return as_batch([b'{"order":%d,"done":false}' % (number % groups) for number in range(start, stop)])


def shares_of_passes(setting: Setting, log_dir: Path, step: Step = GATHER) -> str:
    """How much of the work each pass is, in one process without Spark."""
    scan, decided, release = (spent := seconds_of_passes(setting, log_dir, step)) / spent.sum()
    return f"of the work, in one process without Spark, scan is {scan:.0%}, decide {decided:.0%}, release {release:.0%}"


def seconds_of_passes(setting: Setting, log_dir: Path, step: Step) -> npt.NDArray[np.float64]:
    """What scan, decide and release take of the processor for the last third of a partition."""
    raw = {
        "name": "bench", "data_dir": str(setting.folder / "data"), "sources": {SOURCE: {"type": "file", "path": "x"}},
        "routes": {"out": {"from": SOURCE, "steps": [step], "to": {"type": "null"}}},
    }  # fmt: skip
    plan = replace(route_plan(PipelineConfig.model_validate(raw), "out"), key_secret=bytes(16))
    log = LocalLog(log_dir)
    states = [plan.holding_step().new_state(shard_at(number, bytes(16))) for number in shard_numbers()]
    end = log.bounds(0).end
    spent = np.zeros(3)
    # The last of three: the first ones load what they need.
    for start in range(0, end, end // 3 + 1):
        spent = _seconds_of_passes(plan, log, Stretch(0, start, min(start + end // 3 + 1, end)), states)
    return spent


def _seconds_of_passes(
    plan: RoutePlan, log: LocalLog, stretch: Stretch, states: Sequence[HoldingState]
) -> npt.NDArray[np.float64]:
    times = [process_time()]
    (packed,) = run_scan(plan, log, log.read(stretch.partition, stretch.start, stretch.end), stretch, SOURCE)
    times.append(process_time())
    kind = plan.holding_step().item_type
    found = [
        decide(state, unpack_rows([row["items"]], kind)) for state, row in zip(states, packed.to_pylist(), strict=True)
    ]
    rows = [row for decision in found for row in _rows(decision)]
    times.append(process_time())
    for task in {row["task"] for row in rows}:
        run_release(plan, log, [pa.RecordBatch.from_pylist([row for row in rows if row["task"] == task])])
    times.append(process_time())
    return np.diff(times)


def _rows(decision: Decision) -> Iterator[dict[str, Any]]:
    yield {"task": 0, "report": ShardReport.of(decision).to_json(), "items": None}
    for task, items in slices(decision.released):
        yield {"task": task, "report": None, "items": pack_rows(items)}
