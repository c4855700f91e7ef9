"""How long the verbs of the command line that read the log take, on a log of ten million records.

Each is a process of its own, as a person starts it: the seconds are from the call to the exit, with Python's start and
imports, the best of three. The log has two routes over it, one at its end, one in its middle with records in the failed
store. ``log show`` is asked for ten records at the begin, in the middle and at the end, and for the newest;
``offset rewind --to TIME`` finds the records of a time and is told no when it asks. ``log verify``, ``compact`` and
``export`` read everything, ``doctor`` starts Java to ask for its version: they are no part of this.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from bench.log_open import build
from bench.measure import Comparison, Figure, Goal, Role, Setting, seconds_of
from bench.processes import SOURCE
from penstock.config.loading import load
from penstock.engine.failed.failed_items import FailedItem
from penstock.engine.ledger import Settlement
from penstock.engine.pipeline import Pipeline
from penstock.record import records

SHOWN = 10
FAILED = 100
BATCH = 1_000_000
TRIES = 3
GOAL_SECONDS = 1.0
BEHIND, DONE = "behind", "done"


@dataclass(frozen=True)
class Verb:
    words: tuple[str, ...]
    time: str | None = None
    """What its last option is, if it is a time."""
    exit_code: int = 0

    @property
    def name(self) -> str:
        return " ".join([*self.words, *(["TIME"] if self.time else [])])

    @property
    def arguments(self) -> list[str]:
        return [*self.words, *([self.time] if self.time else [])]


def run(setting: Setting) -> Iterator[Comparison]:
    count = setting.choose(10_000_000, 100_000)
    folder = setting.folder / "verbs"
    folder.mkdir()
    config = write_project(folder, count)
    slowest = 0.0
    for verb in asked(config, count):
        took = tuple(seconds_of(partial(_call, verb, config)) for _ in range(TRIES))
        best = min(took)
        slowest = max(slowest, best)
        yield Comparison(
            f"transport, {verb.name}",
            "s",
            (Figure(Role.US, verb.name, (best,)),),
            Goal(f"< {GOAL_SECONDS:g} s", best < GOAL_SECONDS),
        )
    start = min(seconds_of(partial(_call, Verb(("--version",)), None)) for _ in range(TRIES))
    yield Comparison(
        "transport, slowest verb",
        "s",
        (Figure(Role.US, "slowest", (slowest,)), Figure(Role.LIMIT, "penstock --version", (start,))),
        Goal(f"< {GOAL_SECONDS:g} s", slowest < GOAL_SECONDS),
        (f"{count:,} records; whole processes, from call to exit, best of {TRIES}",),
    )


def asked(config: Path, count: int) -> list[Verb]:
    """Every verb that reads the log or where routes stand in it, and what each is asked."""
    middle = count // 2
    places = (f"0..{SHOWN - 1}", f"{middle}..{middle + SHOWN - 1}", f"{count - SHOWN}..{count - 1}")
    return [
        Verb(("log", "current")),
        Verb(("log", "oldest")),
        *(Verb(("log", "show", place)) for place in places),
        Verb(("log", "show", "--last", str(SHOWN))),
        Verb(("offset", "list")),
        Verb(("offset", "show", BEHIND)),
        Verb(("offset", "rewind", BEHIND, "--to"), _time_of(config, middle // 2), exit_code=1),
        Verb(("status",)),
        Verb(("failed", "list")),
        Verb(("failed", "show", BEHIND, str(FAILED - 1))),
        Verb(("tap", DONE, "--oldest", "--limit", str(SHOWN), "--no-follow")),
        Verb(("tap", BEHIND, "--limit", str(SHOWN), "--no-follow")),
    ]


def write_project(folder: Path, count: int) -> Path:
    """A log of so many records, a route that has delivered all of them, and one that stands in their middle."""
    null = {"type": "null"}
    config = {
        "name": "bench",
        "data_dir": "./data",
        "sources": {SOURCE: {"type": "file", "path": "./nothing.ndjson"}},
        "routes": {name: {"from": [SOURCE], "to": null} for name in (DONE, BEHIND)},
    }
    path = folder / "pipeline.yaml"
    path.write_bytes(orjson.dumps(config))  # JSON is YAML
    (folder / "nothing.ndjson").touch()
    build(folder / "data" / "log", count)
    pipeline = Pipeline.open(load(path))
    pipeline.check_log()
    _deliver(pipeline, DONE, count)
    _deliver(pipeline, BEHIND, count // 2)
    pipeline.ledger.close()
    return path


def _deliver(pipeline: Pipeline, route: str, end: int) -> None:
    """Books as they are when a route has delivered everything before ``end``; ``BEHIND`` with a few failures."""
    ledger = pipeline.ledger
    ((partition, _),) = pipeline.log.partitions().items()
    ledger.open_route(route, {partition: 0})
    for start in range(0, end, BATCH):
        stop = min(end, start + BATCH)
        batch = ledger.begin(route, {partition: (start, stop)})
        assert batch is not None
        size, failed = stop - start, FAILED if route == BEHIND and stop == end else 0
        extent = None
        if failed:
            found = [r for each in pipeline.log.read(partition, stop - failed, stop) for r in records(each)]
            items = [FailedItem(record, 0, "stage", "refused", "the target refused it") for record in found]
            extent = pipeline.failed_store.append(route, batch.number, ledger.failed_extent(route), items)
        ledger.commit(batch, Settlement(size, size - failed, failed=failed, failed_extent=extent, seconds=1.0))


def _time_of(config: Path, offset: int) -> str:
    log = Pipeline.open(load(config)).log
    ((partition, _),) = log.partitions().items()
    (found,) = (r for each in log.read(partition, offset, offset + 1) for r in records(each))
    return found.timestamp.isoformat()


def _call(verb: Verb, config: Path | None) -> None:
    options = [] if config is None else ["--config", str(config)]
    command = [sys.executable, "-m", "penstock.cli.main", *verb.arguments, *options]
    ended = subprocess.run(command, input=b"n\n", capture_output=True, check=False)
    if ended.returncode != verb.exit_code:
        said = (ended.stdout + ended.stderr).decode(errors="replace")[-2000:]
        raise RuntimeError(f"`penstock {verb.name}` ended with {ended.returncode}:\n{said}")
