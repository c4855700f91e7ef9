"""Tables unavailable at random, against a reference that is a list of numbers.

A route into a DuckDB file whose tables are unavailable or refuse rows as told. Batches, retries, kills in the middle of
either, acknowledgements, rewinds, and (in other runs, because a rewind asks for doubles) older copies put back, ledgers
lost and routes renamed, with retention as eager as it can be after every step. At the end, with every table there,
each event is in its table once, in the failed store, or declared done; what is newer was never overtaken; the books
are what one counts; and the log is held for nothing.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock import faults
from penstock.config.loading import load
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.duckdb.session import DuckdbSession
from penstock.destinations.sql import marks as sql_marks
from penstock.destinations.sql.load.table_load import Load, LoadResult
from penstock.destinations.sql.session import Session
from penstock.engine.delivery.batch_pieces import Ranges, remaining
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.history.settle_adopted import settle_adopted
from penstock.engine.history.takeover import adopt
from penstock.engine.operate.offset_control import acknowledge, plan_rewind, resume, rewind
from penstock.engine.operate.status import route_status
from penstock.engine.pipeline import Pipeline, route_plan
from penstock.engine.retry_lane.retrier import RetryLane
from penstock.engine.route_plan import RoutePlan
from penstock.errors import LedgerError, PenstockError, RefusedError, TransientError
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
from tests.engine.copies import OPERATOR
from tests.support.duckdb_file import open_file

CONFIG = """\
name: shop
data_dir: ./data
log: {{segment_bytes: 4KB, retention: {{max_age: 1ms}}}}
sources: {{web: {{type: file, path: ./web.ndjson}}}}
routes:
  {route}:
    from: web
    on_error: {on_error}
    to: {{type: duckdb, path: ./warehouse.duckdb, table: "{{{{ kind }}}}", max_tables: 3, primary_key: {key}}}
"""
KINDS = ("a", "b", "c", "d", "e")
"""Of which the first three get tables of their own; the others share one."""
OVERFLOW = "the shared one"
POINTS = (
    "route.range_fixed", "destination.tables_placed", "destination.writing", "destination.committed",
    "route.destination_done", "route.before_ledger_commit", "retry.destination_done", "retry.before_ledger_commit",
)  # fmt: skip
kinds = st.sampled_from((*KINDS, "a", "a", "b"))
tables = st.sets(st.sampled_from((*KINDS[:3], OVERFLOW)), max_size=3)
ANY_TRIES = 4


class Weather:
    """What the tables of the warehouse do now."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.refusing: set[str] = set()


class Fickle(DuckdbSession):
    weather: Weather

    def load(self, load: Load) -> LoadResult:
        name = load.table.name if load.table.name in KINDS else OVERFLOW
        if name in self.weather.away:
            raise TransientError("PEN-TST-001", f"{name} is unavailable")
        if name in self.weather.refusing:
            raise RefusedError("PEN-TST-002", "refused")
        return super().load(load)


class Warehouse(DuckdbDestination):
    weather: Weather

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._open() as connection:
            made = Fickle(connection, self.config.path)
            made.weather = self.weather
            yield made


class ModelPlan(RoutePlan):
    weather: Weather

    def destination(self) -> Warehouse:
        config = self.destination_config
        assert isinstance(config, DuckdbConfig)
        made = Warehouse(config)
        made.weather = self.weather
        return made


class ModelPipeline(Pipeline):
    weather: Weather

    def plan(self, route: str) -> RoutePlan:
        plan = route_plan(self.config, route)
        return self.fickle(plan)

    def fickle(self, plan: RoutePlan) -> RoutePlan:
        made = ModelPlan(**{each.name: getattr(plan, each.name) for each in fields(RoutePlan)})
        object.__setattr__(made, "weather", self.weather)
        return made


class Impatient(Event):
    """Waits for nothing, and after a few tries wants everything to stop."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self._waits += 1
        if self._waits >= ANY_TRIES:
            self.set()
        return self.is_set()


class WaitingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="waiting-model-"))
        self.weather = Weather()
        self.route, self.on_error = "out", "dead_letter"
        self.keyed = self.copying = False
        self.events: dict[int, tuple[str, int]] = {}
        """Every event ever, by its number: its kind and its key."""
        self.logged: list[int] = []
        """The events of the log as it is now, by offset."""
        self.done: set[int] = set()
        """Events that were declared done."""
        self.most: Counter[int] = Counter()
        """How often more than once an event may be there, because somebody asked for it."""
        self.seen: dict[tuple[str, int], int] = {}
        self.copies: list[tuple[Path, list[int], str]] = []
        self.adopted = False
        self.kept_marks, sql_marks.KEPT_MARKS = sql_marks.KEPT_MARKS, 2

    @initialize(keyed=st.booleans(), copying=st.booleans())
    def begin(self, keyed: bool, copying: bool) -> None:
        self.keyed, self.copying = keyed, copying
        self.append([("a", 0), ("b", 0)])
        self.deliver(9, set())

    @property
    def data(self) -> Path:
        return self.folder / "data"

    # What happens

    @rule(events=st.lists(st.tuples(kinds, st.integers(0, 1)), min_size=1, max_size=6))
    def append(self, events: Sequence[tuple[str, int]]) -> None:
        with self.opened():
            pass
        config = load(self.folder / "pipeline.yaml")
        records = []
        for kind, key in events:
            n = len(self.events)
            self.events[n] = (kind, key)
            self.logged.append(n)
            pad = random.Random(n).randbytes(600).hex()
            data = {"kind": kind, "n": n, "k": key, "pad": pad}
            records.append(Record(json.dumps(data).encode(), namespace="web"))
        with LocalLog(self.data / "log", config.log).writer("web") as writer:
            writer.append(entries(records))

    @rule(size=st.integers(1, 9), away=tables)
    def deliver(self, size: int, away: set[str]) -> None:
        self.weather.away = away
        with self.opened() as pipeline:
            self.in_a_life(pipeline, lambda delivery: self.batch(pipeline, delivery, size))

    @rule(away=tables)
    def retry(self, away: set[str]) -> None:
        self.weather.away = away
        with self.opened() as pipeline:
            self.in_a_life(pipeline, lambda delivery: self.lane(pipeline, delivery))

    @rule(size=st.integers(1, 9), away=tables, point=st.sampled_from(POINTS), nth=st.integers(1, 4), lane=st.booleans())
    def be_killed(self, size: int, away: set[str], point: str, nth: int, lane: bool) -> None:
        faults._armed = faults.parse(f"{point}@{nth}=raise")
        try:
            (self.retry(away) if lane else self.deliver(size, away))
        except faults.InjectedFault:
            pass
        finally:
            faults._armed = {}

    @rule(first=st.integers(0, 30), count=st.integers(1, 4))
    def acknowledge(self, first: int, count: int) -> None:
        with self.opened() as pipeline:
            bounds = pipeline.log.bounds(0)
            back = bounds.end - 1 - first
            if back < bounds.oldest:
                return
            last = min(back + count, bounds.end) - 1
            try:
                acknowledge(pipeline, self.route, back, last, None, OPERATOR)
            except PenstockError as error:
                if error.code != "PEN-ENG-015":
                    raise
                return
            self.done |= set(self.logged[back : last + 1])

    @precondition(lambda self: not self.copying)
    @rule(back=st.integers(0, 12))
    def rewind(self, back: int) -> None:
        with self.opened() as pipeline:
            committed = pipeline.ledger.offsets(self.route)[0].committed
            to = max(pipeline.log.bounds(0).oldest, committed - back)
            try:
                rewind(pipeline, plan_rewind(pipeline, self.route, to, None), OPERATOR)
            except LedgerError as error:
                if error.code not in ("PEN-LGR-015", "PEN-LGR-016", "PEN-LGR-018"):
                    raise
                return
            self.most.update(self.logged[to:])
            if self.keyed:
                self.seen.clear()

    @precondition(lambda self: not self.copying)
    @rule(refusing=tables)
    def refuse(self, refusing: set[str]) -> None:
        self.weather.refusing = refusing

    @rule(stop=st.booleans())
    def configure(self, stop: bool) -> None:
        self.on_error = "stop" if stop else "dead_letter"

    @precondition(lambda self: self.copying)
    @rule()
    def keep_a_copy(self) -> None:
        copy = self.folder / f"copy{len(self.copies)}"
        shutil.copytree(self.data, copy)
        self.copies.append((copy, list(self.logged), self.route))

    @precondition(lambda self: self.copies)
    @rule(which=st.integers(0, 99))
    def put_a_copy_back(self, which: int) -> None:
        copy, logged, route = self.copies[which % len(self.copies)]
        if route != self.route:
            return
        shutil.rmtree(self.data)
        shutil.copytree(copy, self.data)
        self.logged = list(logged)

    @precondition(lambda self: self.copying)
    @rule()
    def lose_the_ledger(self) -> None:
        for path in self.data.glob("ledger.db*"):
            path.unlink()

    @precondition(lambda self: self.copying)
    @rule()
    def rename(self) -> None:
        with self.opened() as pipeline:
            if self.route not in pipeline.ledger.routes() or not pipeline.ledger.has_history(self.route):
                return
        old, self.route = self.route, f"{self.route}x"
        with self.opened() as pipeline:
            adopt(pipeline, old, self.route, OPERATOR)

    # How it is done

    @contextmanager
    def opened(self) -> Iterator[ModelPipeline]:
        key = "[k]" if self.keyed else "[]"
        config = self.folder / "pipeline.yaml"
        config.write_text(CONFIG.format(route=self.route, on_error=self.on_error, key=key))
        pipeline = ModelPipeline.open(load(config))
        object.__setattr__(pipeline, "weather", self.weather)
        try:
            yield pipeline
        finally:
            self.check_books(pipeline)
            self.retain(pipeline)
            pipeline.ledger.close()
        self.check_order()

    def in_a_life(self, pipeline: ModelPipeline, act: Callable[[Delivery], None]) -> None:
        for _ in range(4):
            plan = pipeline.plan(self.route)
            parts = (pipeline.log, pipeline.ledger, pipeline.failed_store, Impatient())
            delivery = Delivery(plan, plan.destination(), *parts, history=pipeline.history())
            try:
                pipeline.check_log()
                delivery.check_history()
                open_route(pipeline.log, pipeline.ledger, self.route, plan.sources)
                settle_adopted(delivery)
                act(delivery)
                return
            except Halted as halted:
                if pipeline.ledger.standing(self.route).halt is not None:
                    resume(pipeline, self.route, OPERATOR)
                    return
                advice = re.search(r"penstock offset adopt (\w+)", str(halted))
                assert advice is not None
                adopt(pipeline, advice[1], self.route, OPERATOR)
                self.adopted = True
            except Stopped:
                return
        raise AssertionError("what was adopted is met again")

    def batch(self, pipeline: ModelPipeline, delivery: Delivery, size: int) -> None:
        ledger = pipeline.ledger
        committed = {p: at.committed for p, at in ledger.offsets(self.route).items()}
        limit = {p: (at, min(pipeline.log.bounds(p).end, at + size)) for p, at in committed.items()}
        pending = ledger.standing(self.route).pending
        ranges: Ranges = remaining(limit, committed) if pending is None else dict(pending.ranges)
        if ranges:
            clean_stage(delivery.plan.stage_dir)
            delivery.deliver(stage_ranges(delivery.plan, pipeline.log, ranges))

    def lane(self, pipeline: ModelPipeline, delivery: Delivery) -> None:
        layout = pipeline.layout
        plan = pipeline.fickle(
            replace(route_plan(pipeline.config, self.route), stage_dir=layout.retry_stage(self.route))
        )
        beside = replace(delivery, plan=plan)
        RetryLane(beside, layout.waiting_stage(self.route)).retry_due_tables()

    # What must hold

    def retain(self, pipeline: Pipeline) -> None:
        held = {p: at.hold for p, at in pipeline.ledger.offsets(self.route).items()}
        pipeline.log.apply_retention(pipeline.floors(), datetime.now(UTC) + timedelta(days=1))
        for partition, hold in held.items():
            assert pipeline.log.bounds(partition).oldest <= hold

    def check_books(self, pipeline: Pipeline) -> None:
        status = route_status(pipeline, self.route)
        assert status.adds_up, status
        assert sum(each.rows for each in status.waiting.values()) == status.totals.waiting

    def stored(self) -> list[tuple[str, int, int]]:
        """Kind, key and number of all that the warehouse has."""
        return [row for rows in self.stored_by_table().values() for row in rows]

    def stored_by_table(self) -> dict[str, list[tuple[str, int, int]]]:
        path = self.folder / "warehouse.duckdb"
        if not path.exists():
            return {}
        found: dict[str, list[tuple[str, int, int]]] = {}
        with open_file(path) as connection:
            names = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
            for name in names:
                columns = [row[0] for row in connection.execute(f'DESCRIBE "{name}"').fetchall()]
                if "n" in columns:
                    found[name] = connection.execute(f'SELECT kind, k, n FROM "{name}"').fetchall()
        return found

    def check_order(self) -> None:
        """What is newer never gives way to what is older, and nothing is there twice unless somebody asked for it."""
        stored = self.stored()
        if self.keyed:
            now = {(kind, key): n for kind, key, n in stored}
            assert len(now) == len(stored)
            assert [place for place, n in self.seen.items() if now.get(place, -1) < n] == []
            self.seen = now
        else:
            counts = Counter(n for _, _, n in stored)
            assert {n: count for n, count in counts.items() if count > 1 + self.most[n]} == {}
            # Within a table the rows of one kind come in their order; a rewind asks for another one. A route that was
            # renamed may have a table where it shared one before.
            for rows in self.stored_by_table().values() if not self.most else ():
                for wanted in KINDS:
                    numbers = [n for kind, _, n in rows if kind == wanted]
                    assert numbers == sorted(numbers), wanted

    def failed(self) -> set[int]:
        found = set()
        for path in (self.data / "failed").glob("*"):
            if path.is_file():
                for line in path.read_text().splitlines():
                    found |= {n for n in self.logged if f'"n\\": {n},' in line or f'"n": {n},' in line}
        return found

    def drain(self) -> None:
        self.weather.away, self.weather.refusing = set(), set()
        self.on_error = "dead_letter"
        for _ in range(60):
            self.deliver(50, set())
            self.retry(set())
            with self.opened() as pipeline:
                at = pipeline.ledger.offsets(self.route)[0]
                if not pipeline.ledger.waiting_tables(self.route) and at.committed == pipeline.log.bounds(0).end:
                    assert at.hold == at.committed
                    return
        raise AssertionError("something waits for ever")

    def teardown(self) -> None:
        try:
            if self.events:
                self.drain()
                stored = self.stored()
                excused = self.done | self.failed()
                if self.keyed:
                    now = {(kind, key): n for kind, key, n in stored}
                    wanted = {self.events[n]: n for n in self.logged if n not in excused}
                    assert {place: n for place, n in wanted.items() if now.get(place, -1) < n} == {}
                else:
                    there = {n for _, _, n in stored}
                    assert [n for n in self.logged if n not in there | excused] == []
                    if not (self.adopted or self.most or self.copying):
                        with self.opened() as pipeline:
                            assert pipeline.ledger.totals(self.route).loaded == len(stored)
        finally:
            sql_marks.KEPT_MARKS = self.kept_marks
            shutil.rmtree(self.folder, ignore_errors=True)


WaitingMachine.TestCase.settings = settings(
    max_examples=5, stateful_step_count=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
TestWaiting = WaitingMachine.TestCase


def test_a_route_that_was_renamed_twice_goes_on_after_both_names_though_its_ledger_is_gone() -> None:
    machine = WaitingMachine()
    machine.begin(copying=True, keyed=False)
    machine.rename()
    machine.append(events=[("d", 0), ("b", 0), ("a", 1), ("b", 0), ("e", 1), ("d", 0)])
    machine.deliver(away=set(), size=1)
    machine.rename()
    machine.lose_the_ledger()
    machine.deliver(away={"the shared one", "b"}, size=8)
    machine.teardown()
