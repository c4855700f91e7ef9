"""Copies of a pipeline's data, and of its warehouse, put back at random, against a reference in a list.

Appends, deliveries (some killed in the middle, also between two tables), copies made and put back, ledgers lost, in any
order. At the end every event of the log that is there now is in the warehouse, nothing is there twice, unless what the
route said was to deliver everything again, and the books add up.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from uuid import uuid4

import pyarrow as pa
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from penstock import faults
from penstock.config.loading import load
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Capabilities,
    Destination,
    LoadedTable,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.destinations.file.config import FileConfig
from penstock.engine.delivery.batch_pieces import remaining
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.history.settle_adopted import settle_adopted
from penstock.engine.history.takeover import adopt, find_conflict, rewind_anyway
from penstock.engine.ledger import Operator
from penstock.engine.operate.offset_control import plan_rewind
from penstock.engine.pipeline import Pipeline, route_plan
from penstock.engine.route_plan import RoutePlan
from penstock.errors import ContradictionError
from penstock.log.local_log import LocalLog
from penstock.outcome import NO_FAILURES, Outcome
from penstock.record import Record, entries

CONFIG = """\
name: shop
data_dir: ./data
sources: {web: {type: file, path: ./web.ndjson}}
routes:
  a: {from: web, steps: [{where: "n % 7 <> 6"}], to: {type: file, path: ./out}}
"""
ADA = Operator("ada")
POINTS = ("route.range_fixed", "between tables", "route.destination_done", "route.before_ledger_commit")
TABLES = ("even", "odd")


class ByParity(Stager):
    """A file for each of two tables."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: list[tuple[int, int, int]] = []

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        places = zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
        numbers = (json.loads(data)["n"] for data in batch.column("data").to_pylist())
        self._rows += [(p, o, n) for (p, o), n in zip(places, numbers, strict=True)]
        return Outcome(batch, 0, NO_FAILURES)

    def finish(self) -> list[Part]:
        parts = []
        for table in TABLES:
            rows = [row for row in self._rows if TABLES[row[2] % 2] == table]
            if rows:
                path = self._directory / f"{uuid4().hex}.json"
                path.write_text(json.dumps([n for _, _, n in rows]))
                parts.append(Part(table, str(path), len(rows), rows[0][0], rows[0][1]))
        return parts


@dataclass
class Store:
    """What the warehouse has."""

    rows: list[int] = field(default_factory=list)
    marks: dict[tuple[str, str, int, str], LoadedTable] = field(default_factory=dict)


class Warehouse(Destination[FileConfig]):
    """Two tables in memory, each written with its mark in one transaction. As strict as the real ones."""

    capabilities = Capabilities(transactions=True, marks=True)

    def __init__(self, config: FileConfig, store: Store) -> None:
        super().__init__(config)
        self._store = store

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return ByParity(directory)

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        own = [number for scope, route, number, _ in self._store.marks if (scope, route) == (batch.scope, batch.route)]
        if max(own, default=0) < batch.follows:
            raise ContradictionError("PEN-TST-004", "this is an older copy.")
        receipts = []
        for table in TABLES:
            mine = [part for part in parts if part.table == table]
            if not mine:
                continue
            place = (batch.scope, batch.route, batch.number, table)
            known = self._store.marks.get(place)
            if known is not None:
                if known.batch.origin != batch.origin:
                    raise ContradictionError("PEN-TST-003", "another batch has this number.")
                receipts.append(TableReceipt(table, known.rows, repeated=True))
                continue
            rows = [n for part in mine for n in json.loads(Path(part.path).read_text())]
            self._store.rows += rows
            self._store.marks[place] = LoadedTable(batch, table, len(rows))
            receipts.append(TableReceipt(table, len(rows)))
            faults.reach("between tables")
        return Receipt(receipts)

    def newest_loads(self) -> Sequence[LoadedTable]:
        newest: dict[tuple[str, str], int] = {}
        for scope, route, number, _ in self._store.marks:
            newest[scope, route] = max(number, newest.get((scope, route), 0))
        return [load for (s, r, n, _), load in self._store.marks.items() if newest[s, r] == n]

    def loads(self, scope: str, route: str) -> Sequence[LoadedTable]:
        found = [load for (s, r, _, _), load in self._store.marks.items() if (s, r) == (scope, route)]
        return sorted(found, key=lambda load: load.batch.number)


class ModelPlan(RoutePlan):
    store: Store

    def destination(self) -> Warehouse:
        config = self.destination_config
        assert isinstance(config, FileConfig)
        return Warehouse(config, self.store)


class ModelPipeline(Pipeline):
    store: Store

    def plan(self, route: str) -> RoutePlan:
        plan = route_plan(self.config, route)
        made = ModelPlan(**{each.name: getattr(plan, each.name) for each in fields(RoutePlan)})
        object.__setattr__(made, "store", self.store)
        return made


class Copies(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="history-model-"))
        (self.folder / "pipeline.yaml").write_text(CONFIG)
        self.config = load(self.folder / "pipeline.yaml")
        self.store = Store()
        self.logged: list[int] = []
        self.copies: list[tuple[Path, list[int]]] = []
        self.warehouses: list[Store] = []
        self.told_to_deliver_all = False
        self.next = 0

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @rule(count=st.integers(1, 9))
    def append(self, count: int) -> None:
        numbers = range(self.next, self.next + count)
        with LocalLog(self.data / "log").writer("web") as writer:
            writer.append(entries(Record(json.dumps({"n": n}).encode(), namespace="web") for n in numbers))
        self.logged += numbers
        self.next += count

    @rule(size=st.integers(1, 20))
    def deliver(self, size: int) -> None:
        self._deliver(size)

    @rule(size=st.integers(1, 20), point=st.sampled_from(POINTS), nth=st.integers(1, 3))
    def be_killed_while_delivering(self, size: int, point: str, nth: int) -> None:
        faults._armed = faults.parse(f"{point}@{nth}=raise")
        try:
            self._deliver(size)
        except faults.InjectedFault:
            pass
        finally:
            faults._armed = {}

    @rule()
    def keep_a_copy(self) -> None:
        if self.data.exists():
            copy = self.folder / f"copy{len(self.copies)}"
            shutil.copytree(self.data, copy)
            self.copies.append((copy, list(self.logged)))

    @precondition(lambda self: self.copies)
    @rule(which=st.integers(0, 99))
    def put_a_copy_back(self, which: int) -> None:
        copy, logged = self.copies[which % len(self.copies)]
        shutil.rmtree(self.data)
        shutil.copytree(copy, self.data)
        self.logged = list(logged)

    @rule()
    def keep_the_warehouse(self) -> None:
        self.warehouses.append(Store(list(self.store.rows), dict(self.store.marks)))

    @precondition(lambda self: self.warehouses)
    @rule(which=st.integers(0, 99))
    def put_a_warehouse_back(self, which: int) -> None:
        found = self.warehouses[which % len(self.warehouses)]
        self.store = Store(list(found.rows), dict(found.marks))

    @precondition(lambda self: (self.data / "ledger.db").exists())
    @rule()
    def lose_the_ledger(self) -> None:
        for path in self.data.glob("ledger.db*"):
            path.unlink()

    def teardown(self) -> None:
        try:
            if self.data.exists():
                self._deliver(7)
                counts = Counter(self.store.rows)
                assert self.told_to_deliver_all or [n for n, count in counts.items() if count > 1] == []
                assert [n for n in self.logged if n % 7 != 6 and n not in counts] == []
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _deliver(self, size: int) -> None:
        pipeline = ModelPipeline.open(self.config)
        object.__setattr__(pipeline, "store", self.store)
        try:
            for _ in range(5):
                try:
                    self._run(pipeline, size)
                    break
                except Halted as halted:
                    self._follow(pipeline, str(halted))
            else:
                raise AssertionError("what was adopted is met again")
            totals = pipeline.ledger.totals("a")
            assert totals.adds_up
        finally:
            pipeline.ledger.close()

    def _run(self, pipeline: Pipeline, size: int) -> None:
        pipeline.check_log()
        plan = pipeline.plan("a")
        parts = (pipeline.log, pipeline.ledger, pipeline.failed_store, Event())
        delivery = Delivery(plan, plan.destination(), *parts, history=pipeline.history())
        delivery.check_history()
        positions = open_route(pipeline.log, pipeline.ledger, "a", plan.sources)
        settle_adopted(delivery)
        while True:
            committed = {p: at.committed for p, at in pipeline.ledger.offsets("a").items()}
            limit = {p: min(pipeline.log.bounds(p).end, committed[p] + size) for p in positions}
            pending = pipeline.ledger.standing("a").pending
            ranges = (
                dict(pending.ranges)
                if pending is not None
                else remaining({p: (committed[p], end) for p, end in limit.items()}, committed)
            )
            if not ranges:
                return
            clean_stage(plan.stage_dir)
            delivery.deliver(stage_ranges(plan, pipeline.log, ranges))

    def _follow(self, pipeline: Pipeline, advice: str) -> None:
        """Do what the route says."""
        if "PEN-RTE-026" not in advice:
            adopt(pipeline, "a", "a", ADA)
            return
        for to, partition in re.findall(r"rewind a --to (\d+) --partition (\d+)", advice):
            self._rewind(pipeline, int(to), int(partition))
        if "--to 1970-01-01" in advice:
            self.told_to_deliver_all = True
            self._rewind(pipeline, datetime(1970, 1, 1, tzinfo=UTC), None)

    def _rewind(self, pipeline: Pipeline, to: int | datetime, partition: int | None) -> None:
        stretches = plan_rewind(pipeline, "a", to, partition)
        rewind_anyway(pipeline, "a", stretches, ADA, find_conflict(pipeline, "a"))


def test_a_copy_from_before_the_ledger_was_lost_finds_what_its_successor_has_delivered() -> None:
    """The newest batch at the destination is of records that the older log lacks; those before it are not."""
    pipeline = Copies()
    pipeline.append(2)
    pipeline.deliver(1)
    pipeline.append(13)
    pipeline.keep_a_copy()
    pipeline.lose_the_ledger()
    pipeline.append(9)
    pipeline.deliver(10)
    pipeline.put_a_copy_back(0)
    pipeline.teardown()


Copies.TestCase.settings = settings(
    max_examples=15, stateful_step_count=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
TestCopies = Copies.TestCase
