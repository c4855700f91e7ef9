"""Offsets, acknowledgements, rewinds and retention against a reference that is a list and a few numbers.

Two routes over one partition of a real log, with a real ledger: one lets what fails go to the failed store, one stops
at it. The reference walks the records one by one. Whatever the order of appends, deliveries (some killed in the
middle), acknowledgements, rewinds and retention: both agree on where each route stands, on what was delivered and how
often, and on what the log must still have.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock import faults
from penstock.config.pipeline_config import OnError
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Destination,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.line_files import LineStager
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.ledger import Operator, RouteState
from penstock.engine.operate.offset_control import acknowledge, plan_rewind, resume, rewind
from penstock.engine.pipeline import Pipeline
from penstock.errors import PenstockError, RefusedError
from tests.engine.projects import append_all, pipeline

CONFIG = """\
name: shop
log: {segment_bytes: 4KB, retention: {max_age: 1ms}}
sources: {web: {type: file, path: ./web.ndjson}}
routes:
  lenient: {from: web, steps: [{where: "n > 0"}], to: {type: file, path: ./lenient}}
  strict: {from: web, on_error: stop, steps: [{where: "n > 0"}], to: {type: file, path: ./strict}}
"""
ROUTES = ("lenient", "strict")
ADA = Operator("ada@example")
POINTS = ("route.range_fixed", "route.batch_cut", "route.destination_done", "route.before_ledger_commit")

GOOD, SKIPPED, NONSENSE, REFUSED = "good", "skipped", "nonsense", "refused"
kinds = st.sampled_from([GOOD, GOOD, GOOD, SKIPPED, NONSENSE, REFUSED])
routes = st.sampled_from(ROUTES)


class Table(Destination[FileConfig]):
    """A table with transactions in memory: a batch that it has changes nothing. Some values it refuses."""

    def __init__(self, config: FileConfig) -> None:
        super().__init__(config)
        self.batches: dict[int, list[int]] = {}
        self.refuses = True

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return LineStager(directory, "file", whole_records=False)

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        rows = [json.loads(line) for part in parts for line in Path(part.path).read_text().splitlines()]
        if batch.number not in self.batches:
            if self.refuses and any(row["kind"] == REFUSED for row in rows):
                raise RefusedError("PEN-TST-002", "refused")
            self.batches[batch.number] = [row["offset"] for row in rows]
        return Receipt([TableReceipt("file", len(self.batches[batch.number]))] if parts else [])

    @property
    def rows(self) -> Counter[int]:
        return Counter(offset for rows in self.batches.values() for offset in rows)


@dataclass
class Expected:
    """What the reference knows of a route."""

    stops: bool
    committed: int = 0
    halted: bool = False
    resumed: bool = False
    acknowledged: set[int] = field(default_factory=set)
    rows: Counter[int] = field(default_factory=Counter)
    """What the target has, by offset. More than was loaded, where a batch that it had was given up by a rewind."""
    loaded: int = 0
    failed: int = 0
    skipped: int = 0

    def deliver(self, kinds: Sequence[str], end: int, refuses: bool, written: Collection[int] = ()) -> None:
        """``written``: offsets that the target has already, from before a kill."""
        self.halted = self.resumed = False
        for offset in range(self.committed, end):
            kind = kinds[offset]
            fails = kind == NONSENSE or (kind == REFUSED and refuses and offset not in written)
            passed_over = offset in self.acknowledged and offset not in written
            self.acknowledged.discard(offset)
            if passed_over or kind == SKIPPED:
                self.skipped += 1
            elif not fails:
                self.rows[offset] += 1
                self.loaded += 1
            elif self.stops:
                self.halted = True
                return
            else:
                self.failed += 1
            self.committed = offset + 1

    def acknowledge(self, first: int, last: int, under_way: bool) -> None:
        """Of a batch under way they are left out when it is tried again, unless the target has them."""
        self.acknowledged |= set(range(max(first, self.committed), last + 1))
        if under_way:
            return
        while self.committed in self.acknowledged:
            self.acknowledged.discard(self.committed)
            self.committed += 1
            self.skipped += 1
            self.halted = False


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-offsets-")
        self.opened: Pipeline = pipeline(Path(self.folder.name), CONFIG)
        self.kinds: list[str] = []
        self.partition = 0
        self.spark = dict.fromkeys(ROUTES, 0)
        self.begun: dict[str, int] = {}
        self.under_way: set[str] = set()
        self.expected = {name: Expected(stops=name == "strict") for name in ROUTES}
        self.tables: dict[str, Table] = {}

    @initialize(kinds=st.lists(kinds, min_size=1, max_size=30))
    def some_records(self, kinds: list[str]) -> None:
        self.append(kinds)
        for name in ROUTES:
            plan = self.opened.plan(name)
            assert (plan.on_error is OnError.STOP) == self.expected[name].stops
            assert isinstance(plan.destination_config, FileConfig)
            self.tables[name] = Table(plan.destination_config)
            self.opened.ledger.open_route(name, {self.partition: 0})

    def teardown(self) -> None:
        self.opened.ledger.close()
        self.folder.cleanup()

    # What happens

    @rule(kinds=st.lists(kinds, min_size=1, max_size=20))
    def append(self, kinds: list[str]) -> None:
        data = []
        for kind in kinds:
            offset = len(self.kinds)
            # What cannot be compressed: segments are to fill up, so that retention finds some.
            pad = random.Random(offset).randbytes(300).hex()
            record = {"n": 0 if kind == SKIPPED else 1, "kind": kind, "offset": offset, "pad": pad}
            data.append(b"nonsense" if kind == NONSENSE else json.dumps(record).encode())
            self.kinds.append(kind)
        self.partition = append_all(self.opened, "web", data)

    @rule(name=routes, size=st.integers(1, 12))
    def deliver(self, name: str, size: int) -> None:
        """Spark asks from where its checkpoint stands, maybe behind the ledger; a batch that it began it asks again."""
        start, end = self.asked(name, size)
        if start >= end:
            return
        written = self.begun_and_written(name)
        self.try_to_deliver(name, start, end)
        self.under_way.discard(name)
        expected = self.expected[name]
        expected.deliver(self.kinds, end, self.tables[name].refuses, written)
        if not expected.halted:
            del self.begun[name]
            self.spark[name] = end
            self.opened.log.holds.set(name, {self.partition: end})

    @rule(name=routes, size=st.integers(1, 12), point=st.sampled_from(POINTS), nth=st.integers(1, 3))
    def be_killed_while_delivering(self, name: str, size: int, point: str, nth: int) -> None:
        start, end = self.asked(name, size)
        if start >= end:
            return
        expected, written = self.expected[name], self.begun_and_written(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "_armed", faults.parse(f"{point}@{nth}=raise"))
            try:
                self.try_to_deliver(name, start, end)
            except faults.InjectedFault:
                # Every point lies between a batch's beginning and its commit.
                self.under_way.add(name)
                reached = self.opened.ledger.offsets(name)[self.partition].committed
                if reached > expected.committed:
                    expected.deliver(self.kinds, reached, self.tables[name].refuses, written)
                return
        # The point was not reached: the batch is committed, and the kill came before Spark noted that. It asks again.
        self.under_way.discard(name)
        expected.deliver(self.kinds, end, self.tables[name].refuses, written)

    def asked(self, name: str, size: int) -> tuple[int, int]:
        committed = self.expected[name].committed
        start = min(self.spark[name], committed)
        end = self.begun.get(name) or min(len(self.kinds), committed + size)
        if start < end:
            self.begun[name] = end
        return start, end

    def begun_and_written(self, name: str) -> list[int]:
        """The rows of a batch that the target has and the ledger does not know of."""
        pending = self.opened.ledger.standing(name).pending
        return [] if pending is None else self.tables[name].batches.get(pending.number, [])

    def try_to_deliver(self, name: str, start: int, end: int) -> None:
        opened, plan = self.opened, self.opened.plan(name)
        report = stage_ranges(plan, opened.log, {self.partition: (start, end)})
        delivery = Delivery(plan, self.tables[name], opened.log, opened.ledger, opened.failed_store, Event())
        # As the engine says that starts or resumes the route.
        opened.ledger.set_state(name, RouteState.RUNNING)
        self.expected[name].resumed = True
        try:
            delivery.deliver(report)
        except Halted:
            assert self.expected[name].stops

    @rule(name=routes, ahead=st.integers(-2, 8), count=st.integers(1, 8))
    def acknowledge(self, name: str, ahead: int, count: int) -> None:
        expected = self.expected[name]
        first = max(0, expected.committed + ahead)
        last = first + count - 1
        touched = set(range(max(first, expected.committed), last + 1))
        if last >= len(self.kinds) or last < expected.committed:
            with pytest.raises(PenstockError):
                acknowledge(self.opened, name, first, last, None, ADA)
            return
        done = acknowledge(self.opened, name, first, last, None, ADA)
        assert done.records == len(touched)
        expected.acknowledge(first, last, name in self.under_way)
        assert done.committed == expected.committed

    @rule(name=routes, back=st.integers(-2, 20))
    def rewind(self, name: str, back: int) -> None:
        expected = self.expected[name]
        to = max(0, expected.committed - back)
        oldest = self.opened.log.bounds(self.partition).oldest
        if not oldest <= to <= expected.committed:
            with pytest.raises(PenstockError):
                plan_rewind(self.opened, name, to, None)
            return
        generation = self.opened.ledger.generation(name)
        stays = to == expected.committed and name in self.under_way
        if not stays:
            # What the target got from a batch that is given up stays there, beside what it gets again.
            expected.rows.update(self.begun_and_written(name))
        changes = to < expected.committed or expected.halted or expected.acknowledged or name in self.under_way
        rewind(self.opened, plan_rewind(self.opened, name, to, None), ADA)
        assert self.opened.ledger.generation(name) == generation + bool(changes)
        if not changes:
            return
        # A new checkpoint begins where the ledger stands.
        expected.committed = self.spark[name] = to
        expected.halted = False
        expected.acknowledged.clear()
        if not stays:
            self.begun.pop(name, None)
            self.under_way.discard(name)

    @rule(name=routes, refuses=st.booleans())
    def the_target_changes_its_mind(self, name: str, refuses: bool) -> None:
        self.tables[name].refuses = refuses

    @rule()
    def resume(self) -> None:
        expected = self.expected["strict"]
        if expected.halted and not expected.resumed:
            resume(self.opened, "strict", ADA)
            expected.resumed = True
        else:
            with pytest.raises(PenstockError, match="not halted"):
                resume(self.opened, "strict", ADA)

    @rule()
    def retention(self) -> None:
        self.opened.log.apply_retention(self.opened.floors(), datetime.now(UTC) + timedelta(days=1))

    # What must hold

    @invariant()
    def offsets_and_rows_are_those_of_the_reference(self) -> None:
        for name, expected in self.expected.items():
            if name not in self.tables:
                return
            assert (self.opened.ledger.standing(name).pending is not None) == (name in self.under_way)
            standing = self.opened.ledger.standing(name)
            assert standing.positions[self.partition].committed == expected.committed
            ahead = {o for start, end in standing.acknowledged.get(self.partition, ()) for o in range(start, end)}
            assert ahead == expected.acknowledged
            assert self.tables[name].rows - Counter(self.begun_and_written(name)) == expected.rows
            assert (standing.halt is not None) == expected.halted
            if standing.halt is not None:
                assert standing.halt.offset == expected.committed

    @invariant()
    def the_books_balance(self) -> None:
        for name, expected in self.expected.items():
            totals = self.opened.ledger.totals(name)
            assert totals.adds_up
            assert (totals.loaded, totals.skipped, totals.failed) == (
                expected.loaded,
                expected.skipped,
                expected.failed,
            )
            extent = self.opened.ledger.failed_extent(name)
            assert len(list(self.opened.failed_store.read(name, extent))) == expected.failed

    @invariant()
    def the_log_has_all_that_any_route_has_not_read(self) -> None:
        if not self.kinds:
            return
        needed = min(expected.committed for expected in self.expected.values())
        assert self.opened.log.bounds(self.partition).oldest <= needed
        found = [o for rows in self.opened.log.read(self.partition, needed) for o in rows.column("offset").to_pylist()]
        assert found == list(range(needed, len(self.kinds)))


TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_rewind_to_where_a_route_stands_changes_nothing_also_where_spark_is_behind() -> None:
    """The batch is committed and Spark was killed before it knew: nothing is under way, so there is nothing to undo."""
    machine = OffsetsMachine()
    try:
        machine.some_records([GOOD])
        machine.be_killed_while_delivering("lenient", size=1, point="route.batch_cut", nth=1)
        machine.rewind("lenient", back=0)
        machine.offsets_and_rows_are_those_of_the_reference()
        machine.deliver("lenient", size=1)
        machine.offsets_and_rows_are_those_of_the_reference()
    finally:
        machine.teardown()
