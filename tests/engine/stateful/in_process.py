"""A route with a holding step, run without Spark: its scan, its shards and its release, one after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.config.pipeline_config import PipelineConfig
from penstock.engine.delivery.task import read_rows, read_task_reports
from penstock.engine.delivery.task_report import BatchReport, add_up
from penstock.engine.failed.failed_items import FailedItem, failed_items
from penstock.engine.pipeline import route_plan
from penstock.engine.route_plan import RoutePlan
from penstock.engine.spark.shard_processor import ShardProcessor
from penstock.engine.stateful import shard_home
from penstock.engine.stateful.release_task import run_release
from penstock.engine.stateful.scan_task import run_scan
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.record import Record, entries

DECIDED = pa.schema([("task", pa.int32()), ("report", pa.string()), ("items", pa.binary())])


class Map:
    """A map state, as Spark has it: what is not committed is gone with its task."""

    def __init__(self, store: dict[Any, Any]) -> None:
        self._store = store

    def getValue(self, key: Any) -> Any:
        return self._store.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self._store[key] = value

    def removeKey(self, key: Any) -> None:
        del self._store[key]


@dataclass
class Store:
    """The state of all shards; a copy of it is what Spark goes back to."""

    states: dict[tuple[int, str], dict[Any, Any]] = field(default_factory=dict)

    def copy(self) -> Store:
        return Store({name: dict(state) for name, state in self.states.items()})

    def handle(self, shard: int) -> Handle:
        return Handle(self, shard)

    @property
    def blobs(self) -> int:
        return sum(number >= 0 for state in self.states.values() for (number,) in state)


@dataclass
class Handle:
    store: Store
    shard: int

    def getMapState(self, name: str, key: str, value: str) -> Map:
        return Map(self.store.states.setdefault((self.shard, name), {}))


@dataclass
class Ran:
    report: BatchReport
    rows: list[dict[str, Any]]
    failed: list[FailedItem]


class HoldingRoute:
    def __init__(self, folder: Path, steps: Sequence[Mapping[str, Any]]) -> None:
        raw = {
            "name": "shop", "data_dir": str(folder / "data"),
            "sources": {"web": {"type": "file", "path": str(folder / "none")}},
            "routes": {"out": {"from": "web", "steps": list(steps), "to": {"type": "file", "path": str(folder / "o")}}},
        }  # fmt: skip
        plan = route_plan(PipelineConfig.model_validate(raw), "out")
        self.plan: RoutePlan = replace(plan, key_secret=bytes(16))
        self.log = LocalLog(folder / "log")
        self.store = Store()
        self._elsewhere: dict[tuple[str, int], Any] = {}

    def append(self, source: str, *records: Record) -> Stretch:
        with self.log.writer(source) as writer:
            taken = writer.append(entries(records))
            return Stretch(writer.partition, taken.start, taken.stop)

    def run(self, *stretches: Stretch) -> Ran:
        """A batch of these stretches."""
        report = run_tasks(self.plan, self.log, self.store, stretches)
        lines = [line for part in report.parts for line in Path(part.path).read_text().splitlines()]
        failed = failed_items(self.log, (batch for file in report.failed for batch in read_rows(file.path)))
        return Ran(report, [json.loads(line) for line in lines], list(failed))

    def move_to_another_worker(self) -> None:
        """To one that knows less: the state that it has is older, or none."""
        self._elsewhere, here = shard_home._memories.copy(), self._elsewhere
        shard_home._memories.clear()
        shard_home._memories.update(here)


def run_tasks(plan: RoutePlan, log: LocalLog, store: Store, stretches: Sequence[Stretch]) -> BatchReport:
    """The tasks of a batch: those that read, those of the shards, and those that release."""
    for left in plan.stage_dir.glob("*"):
        left.unlink()
    packed: dict[int, list[dict[str, Any]]] = {}
    owners = log.partitions()
    for each in stretches:
        read = log.read(each.partition, each.start, each.end)
        for batch in run_scan(plan, log, read, each, owners[each.partition].source):
            for row in batch.to_pylist():
                packed.setdefault(row["shard"], []).append(row)
    tasks: dict[int, list[dict[str, Any]]] = {}
    for shard, rows in packed.items():
        processor = ShardProcessor(plan)
        processor.init(store.handle(shard))  # type: ignore[arg-type]
        for row in processor.handleInputRows((shard,), iter(rows), None):  # type: ignore[arg-type]
            tasks.setdefault(row["task"], []).append(row.asDict())
    decided = [pa.RecordBatch.from_pylist(rows, schema=DECIDED) for rows in tasks.values()]
    return add_up([*(run_release(plan, log, [batch]) for batch in decided), *read_task_reports(plan)])


def record(number: int, **data: Any) -> Record:
    return Record(json.dumps({"n": number, **data}).encode(), namespace="web")
