"""A pipeline into DuckDB whose folder can be copied and put back, with nothing running: batches without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from penstock.config.loading import load
from penstock.engine.delivery.batch_pieces import remaining
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.history.settle_adopted import settle_adopted
from penstock.engine.history.takeover import AdoptionResult, adopt
from penstock.engine.ledger import Operator
from penstock.engine.pipeline import Pipeline
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
from tests.support.duckdb_file import open_file

ONE_ROUTE = """\
name: shop
data_dir: ./data
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  a:
    from: web
    steps:
      - where: n % 10 <> 9
    to: {type: duckdb, path: ./warehouse.duckdb, table: events}
"""
OPERATOR = Operator("test")


class Site:
    """A folder with a config, a ``data_dir`` and a warehouse beside it."""

    def __init__(self, folder: Path, text: str = ONE_ROUTE) -> None:
        self.folder = folder
        self.write(text)

    def write(self, text: str) -> None:
        (self.folder / "pipeline.yaml").write_text(text)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def open(self) -> Pipeline:
        return Pipeline.open(load(self.folder / "pipeline.yaml"))

    def apply_retention(self) -> int:
        """Returns the oldest offset of the first partition that is left."""
        opened = self.open()
        try:
            opened.log.apply_retention(opened.floors(), datetime.now(UTC))
            return opened.log.bounds(0).oldest
        finally:
            opened.ledger.close()

    def append(self, numbers: Iterable[int], source: str = "web", worker: int = 0) -> None:
        config = load(self.folder / "pipeline.yaml")
        with LocalLog(self.data / "log", config.log).writer(source, worker) as writer:
            writer.append(entries(Record(json.dumps({"n": n}).encode(), namespace="web") for n in numbers))

    def deliver(self, route: str = "a", size: int | None = None) -> str:
        """Deliver what is there in batches of ``size``, as an engine would that has just started. Returns why the route
        halted, if it did."""
        pipeline = self.open()
        try:
            self._deliver(pipeline, route, size)
        except Halted as halted:
            return str(halted)
        finally:
            pipeline.ledger.close()
        return ""

    def _deliver(self, pipeline: Pipeline, route: str, size: int | None) -> None:
        pipeline.check_log()
        plan = pipeline.plan(route)
        delivery = Delivery(
            plan, plan.destination(), pipeline.log, pipeline.ledger, pipeline.failed_store, Event(),
            history=pipeline.history(),
        )  # fmt: skip
        delivery.check_history()
        positions = open_route(pipeline.log, pipeline.ledger, route, plan.sources)
        settle_adopted(delivery)
        while True:
            committed = {p: at.committed for p, at in pipeline.ledger.offsets(route).items()}
            ends = {p: pipeline.log.bounds(p).end for p in positions}
            pending = pipeline.ledger.standing(route).pending
            limit = {p: end if size is None else min(end, committed[p] + size) for p, end in ends.items()}
            ranges = (
                remaining({p: (committed[p], end) for p, end in limit.items()}, committed)
                if pending is None
                else dict(pending.ranges)
            )
            if not ranges:
                return
            delivery.deliver(stage_ranges(plan, pipeline.log, ranges))

    def adopt(self, other: str = "a", route: str = "a") -> AdoptionResult:
        pipeline = self.open()
        try:
            return adopt(pipeline, other, route, OPERATOR)
        finally:
            pipeline.ledger.close()

    def keep(self, name: str) -> None:
        shutil.copytree(self.data, self.folder / name)

    def put_back(self, name: str) -> None:
        shutil.rmtree(self.data)
        shutil.copytree(self.folder / name, self.data)

    def rows(self, table: str = "events") -> list[int]:
        with open_file(self.folder / "warehouse.duckdb") as connection:
            return [n for (n,) in connection.execute(f"SELECT n FROM {table} ORDER BY n").fetchall()]

    def totals(self, route: str = "a") -> tuple[int, int, int, int]:
        """In, loaded, skipped, failed."""
        pipeline = self.open()
        found = pipeline.ledger.totals(route)
        pipeline.ledger.close()
        assert found.adds_up
        return found.items, found.loaded, found.skipped, found.failed
