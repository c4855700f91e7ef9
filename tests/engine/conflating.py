"""A destination that conflates what waits, in memory, and a route into it whose batches and retries run without
Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, cast

import pyarrow as pa

from penstock.destinations.contract import (
    GROUP_SEPARATOR,
    NULL_TABLE_BOOK,
    Batch,
    Capabilities,
    Destination,
    Part,
    Receipt,
    Stager,
    Superseded,
    TableBook,
    TableReceipt,
    TargetPosition,
    WaitingRows,
)
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.line_files import LineStager
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.item_staging import stage_items
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.ledger import Totals
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.engine.retry_lane.turns import TurnLock
from penstock.engine.running.retries import RouteRetries
from penstock.errors import TransientError
from penstock.log.read_ranges import Stretch
from penstock.outcome import PLACE_SCHEMA
from tests.engine.projects import append_all, pipeline

ROUTE = "out"
CONFIG = """\
name: fleet
log: {segment_bytes: 4KB, retention: {max_age: 1ms}}
sources: {web: {type: file, path: ./web.ndjson}}
routes: {out: {from: web, to: {type: file, path: ./out}}}
"""
FIRST, SECOND = "a", "b"
"""Kinds: a bundle of the second needs a version of the first, of its own source."""

UNTIL_WOKEN = 3600.0


def group_of(source: str, kind: str) -> str:
    return f"{source}{GROUP_SEPARATOR}{kind}"


class State(Destination[FileConfig]):
    """Keeps the newest version of each source and kind. Takes nothing while it is ``away``, and raises then if it is
    ``dead``."""

    capabilities = Capabilities(leaves_waiting=True, conflates_waiting=True)

    def __init__(self, config: FileConfig) -> None:
        super().__init__(config)
        self.newest: dict[str, tuple[int, int]] = {}
        """By group, the version and the offset of its bundle."""
        self.written: Counter[tuple[str, int]] = Counter()
        self.away = self.dead = False
        self.gave: list[list[str]] = []
        """The groups of each write."""
        self.says: Mapping[int, TargetPosition] | None = None

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return LineStager(directory, "file", whole_records=False)

    def position(self, route: str) -> Mapping[int, TargetPosition] | None:
        if self.dead:
            raise TransientError("PEN-TST-001", "away.")
        return self.says

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        if self.dead:
            raise TransientError("PEN-TST-001", "away.")
        found = [json.loads(line) for part in parts for line in Path(part.path).read_text().splitlines()]
        bundles: dict[str, list[dict[str, int]]] = {}
        for row in sorted(found, key=lambda row: row["k"]):
            bundles.setdefault(group_of(row["s"], row["k"]), []).append(row)
        self.gave.append(sorted(bundles))
        rows, conflated = 0, 0
        waiting: list[WaitingRows] = []
        superseded: list[Superseded] = []
        wakes: set[str] = set()
        for group, own in bundles.items():
            # Of two equal ones the first.
            bundle = max(own, key=lambda row: (row["v"], -row["at"]))
            version, at = bundle["v"], bundle["at"]
            waits = [int(about) for about in batch.waiting_groups.get(group, ())]
            source, _, kind = group.partition(GROUP_SEPARATOR)
            known, _ = self.newest.get(group, (-1, -1))
            if version > known and version > max(waits, default=-1):
                conflated += len(own) - 1
                superseded += [Superseded(group, str(each), "conflated") for each in waits]
                has, _ = self.newest.get(group_of(source, FIRST), (-1, -1))
                if self.away:
                    waiting.append(WaitingRows(group, _places([at]), "away", 0.0, str(version)))
                    continue
                if kind == SECOND and has < bundle["needs"]:
                    waiting.append(WaitingRows(group, _places([at]), "too early", UNTIL_WOKEN, str(version)))
                    continue
                self.newest[group] = (version, at)
                self.written[group, version] += 1
                rows += 1
            else:
                # Written by an earlier attempt, which the ledger may not know.
                repeated = (version, at) == self.newest.get(group)
                rows += int(repeated)
                conflated += len(own) - int(repeated)
                superseded += [Superseded(group, str(each), "conflated") for each in waits if each <= known]
            wakes.add(group_of(source, SECOND))
        skipped = {"conflated": conflated} if conflated else {}
        receipt = TableReceipt(
            "file", rows, skipped=skipped, waiting=waiting, superseded=superseded,
            wakes=wakes & batch.waiting_groups.keys(),
        )  # fmt: skip
        return Receipt([receipt] if parts else [])


def _places(offsets: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"partition": 0, "offset": at, "item": 0} for at in offsets], PLACE_SCHEMA)


class Fleet:
    """Bundles are (source, kind, version, the version of the first kind that it needs)."""

    def __init__(self, folder: Path, start: int = 0) -> None:
        self.opened = pipeline(folder, CONFIG)
        config = self.opened.plan(ROUTE).destination_config
        assert isinstance(config, FileConfig)
        self.state = State(config)
        self.count = 0
        self.opened.ledger.open_route(ROUTE, {0: start})

    def send(self, *bundles: tuple[str, str, int, int]) -> None:
        lines = [
            json.dumps({"s": source, "k": kind, "v": version, "needs": needs, "at": self.count + at}).encode()
            for at, (source, kind, version, needs) in enumerate(bundles)
        ]
        append_all(self.opened, "web", lines)
        self.count += len(lines)

    def deliver(self, most: int = 1_000_000) -> Delivery:
        """The batch under way, or one of what comes next. Returns what has delivered it."""
        ledger, plan, log = self.opened.ledger, self.opened.plan(ROUTE), self.opened.log
        pending = ledger.standing(ROUTE).pending
        start = ledger.offsets(ROUTE)[0].committed
        end = min(self.count, start + most) if pending is None else pending.ranges[0][1]
        delivery = self.delivery
        if start < end:
            delivery.deliver(add_up([run_task(plan, log.read(0, start, end), Stretch(0, start, end))]))
        return delivery

    @property
    def delivery(self) -> Delivery:
        opened = self.opened
        return Delivery(opened.plan(ROUTE), self.state, opened.log, opened.ledger, opened.failed_store, Event())

    def retry(self) -> None:
        """As a process does that has just started."""
        self.retrier().retry_due()

    def retrier(self) -> PostponedRetrier:
        return PostponedRetrier(self.delivery, partial(stage_items, self.opened.plan(ROUTE), self.opened.log))

    @property
    def totals(self) -> Totals:
        return self.opened.ledger.totals(ROUTE)

    @property
    def hold(self) -> int:
        return self.opened.ledger.offsets(ROUTE)[0].hold

    @property
    def committed(self) -> int:
        return self.opened.ledger.offsets(ROUTE)[0].committed

    @property
    def waits(self) -> list[tuple[str, str]]:
        groups = self.opened.ledger.postponed(ROUTE)
        return [(group.group.replace(GROUP_SEPARATOR, "/"), group.about) for group in groups]

    @property
    def versions(self) -> dict[str, int]:
        return {group.replace(GROUP_SEPARATOR, "/"): version for group, (version, _) in self.state.newest.items()}


class RetriesWithoutSpark(RouteRetries):
    """They ask their target and retry as always, beside no query."""

    def __init__(self, fleet: Fleet) -> None:
        self.gate = TurnLock()
        self._over = Event()
        delivery = fleet.delivery
        self.stopping = delivery.stopping
        super().__init__(
            cast("Any", None), delivery, fleet.opened.layout, self.gate, halted=Event(), leave_query=lambda: None
        )

    def keep_retrying(self) -> None:
        self.run(self._over)

    def end(self) -> None:
        self._over.set()
        super().end()
