"""A route that keeps records back, against a reference of a few lists: whatever dies, is lost or put back between its
batches, and whatever an operator or retention does.

Two workers of its source write, and a batch takes any number of records of each. Spark's part is played as Spark plays
it: a batch's range is fixed before it runs, state has a version per batch, and a batch that was not noted as done is
run again, on the state before it. Log, ledger, tasks, state and delivery are real.
"""

from __future__ import annotations

import json
import random
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock import faults
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Capabilities,
    Destination,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
    WaitingRows,
)
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.line_files import LineStager
from penstock.engine.delivery.deliver_batch import Delivery, StateBehind
from penstock.engine.delivery.item_staging import stage_items
from penstock.engine.ledger import Operator
from penstock.engine.lost_workers.deadly_records import DeadlyRecord
from penstock.engine.lost_workers.lost_worker import LostCode
from penstock.engine.operate.offset_control import acknowledge, plan_rewind, release, rewind
from penstock.engine.pipeline import Pipeline
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.engine.route_plan import RoutePlan
from penstock.engine.route_sources import control_source
from penstock.engine.stateful import shard_home
from penstock.engine.stateful.control import ControlWriter
from penstock.engine.stateful.control_records import tick_record
from penstock.engine.stateful.releases import Releases
from penstock.engine.stateful.shard_memory import ShardMemory
from penstock.engine.stateful.state_recovery import give_up_state, recover_state
from penstock.errors import PenstockError, RefusedError
from penstock.log.read_ranges import Stretch
from penstock.outcome import PLACE_SCHEMA
from penstock.record import Record, entries
from tests.engine.projects import pipeline
from tests.engine.stateful.in_process import Store, run_tasks

CONFIG = """\
name: shop
log: {segment_bytes: 4KB, retention: {max_age: 1ms}}
sources: {web: {type: file, path: ./web.ndjson}}
routes:
  out:
    from: web
    steps: [{where: "n % 7 <> 6"}, {gather: {key: k, until: done, at_most: 10s}}]
    to: {type: file, path: ./out}
"""
ROUTE = "out"
ADA = Operator("ada@example")
AT_MOST = 10
POINTS = (
    "tasks",
    "route.range_fixed",
    "route.destination_done",
    "route.before_ledger_commit",
    "route.ledger_committed",
    "postponed.begun",
    "postponed.cut",
    "postponed.destination_done",
    "postponed.before_ledger_commit",
)
RETRY_POINTS = tuple(point for point in POINTS if point.startswith("postponed."))

rows = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([False, False, True])), min_size=1, max_size=10)
workers = st.integers(0, 1)
sizes = st.tuples(*[st.integers(0, 12)] * 3)
"""How many records a batch may have of each worker's partition, and of the route's own."""

Offsets = dict[int, int]
"""By partition."""


def is_bad(number: int) -> bool:
    """Whether the target refuses every batch that has this record."""
    return number % 11 == 10


class Table(Destination[FileConfig]):
    """A table with transactions in memory: a batch that it has changes nothing. It takes nothing of keys that are
    ``shut``, nor of keys of which something waits, and refuses batches with bad records."""

    capabilities = Capabilities(transactions=True, leaves_waiting=True)

    def __init__(self, config: FileConfig, where: Sequence[tuple[int, int]]) -> None:
        super().__init__(config)
        self.where = where
        self.batches: dict[int, list[int]] = {}
        self.left: dict[int, dict[str, list[int]]] = {}
        """What waits of each batch, by key."""
        self.shut: set[int] = set()

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return LineStager(directory, "file", whole_records=False)

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        found = [json.loads(line) for part in parts for line in Path(part.path).read_text().splitlines()]
        if any(is_bad(row["n"]) for row in found):
            raise RefusedError("PEN-TST-002", "there is a bad record in it.")
        if batch.number not in self.batches:
            left: dict[str, list[int]] = {}
            taken = []
            for row in found:
                if row["k"] in self.shut or str(row["k"]) in batch.waiting_groups:
                    left.setdefault(str(row["k"]), []).append(row["n"])
                else:
                    taken.append(row["n"])
            self.batches[batch.number], self.left[batch.number] = taken, left
        kept, left = self.batches[batch.number], self.left[batch.number]
        numbers = [*kept, *(number for own in left.values() for number in own)]
        assert sorted(numbers) == sorted(row["n"] for row in found), "a batch that is written again has the same rows"
        waiting = [WaitingRows(key, self.places(own), "shut", due=0.0) for key, own in left.items()]
        return Receipt([TableReceipt("file", len(kept), waiting=waiting)] if parts else [])

    def places(self, numbers: Sequence[int]) -> pa.RecordBatch:
        rows = [dict(zip(PLACE_SCHEMA.names, (*self.where[number], 0), strict=True)) for number in numbers]
        return pa.RecordBatch.from_pylist(rows, schema=PLACE_SCHEMA)


@dataclass
class Dying:
    dead: bool = False


@dataclass
class Query:
    """Spark's checkpoint: where each batch ends, the state before each, and how many are done."""

    start: Offsets
    ends: list[Offsets] = field(default_factory=list)
    states: list[Store] = field(default_factory=lambda: [Store()])
    done: int = 0
    deadly: tuple[int, int] = (-1, -1)
    """A batch, and the number of the record that it is run without."""

    @property
    def next_start(self) -> Offsets:
        return self.ends[self.done - 1] if self.done else self.start

    @property
    def next_deadly(self) -> int | None:
        batch, number = self.deadly
        return number if batch == self.done else None


@dataclass
class Expected:
    """What the reference knows of the route: how far it is in each partition, which records wait, by key, and from
    where on they would be read again."""

    committed: Offsets
    held: Offsets = field(default_factory=dict)
    waiting: dict[int, list[int]] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    now: int = -1
    rows: Counter[int] = field(default_factory=Counter)

    def take(
        self, records: Sequence[tuple[int, int, bool]], ticks: Sequence[int], releases: Sequence[int]
    ) -> list[int]:
        """The numbers that go on. ``records`` are number, key and whether it closes its group; ``releases`` how many
        records there were when an operator asked."""
        gone: list[int] = []
        ticked = bool(self.waiting) and max(ticks, default=self.now) > self.now
        if ticked:
            self.now = max(ticks)
            self.since = {key: self.since.get(key, self.now) for key in self.waiting}
        for number, key, closes in records:
            if number % 7 == 6:
                continue
            self.waiting.setdefault(key, []).append(number)
            if closes:
                gone += self.release(key)
        for key in [key for key, since in self.since.items() if ticked and since <= self.now - AT_MOST]:
            gone += self.release(key)
        for key in [key for key, own in self.waiting.items() if min(own) < max(releases, default=0)]:
            gone += self.release(key)
        return gone

    def release(self, key: int) -> list[int]:
        self.since.pop(key, None)
        return self.waiting.pop(key)

    @property
    def oldest(self) -> int | None:
        return min((min(own) for own in self.waiting.values()), default=None)

    def go_back(self, to: Offsets) -> None:
        self.committed |= to
        self.held, self.waiting, self.since, self.now = {}, {}, {}, -1


@dataclass(frozen=True)
class Control:
    """A control record: a tick with its time, or a release with the number of records up to its point."""

    tick: int = -1
    release: int = 0


class HoldingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        shard_home._memories.clear()
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-holding-")
        self.opened: Pipeline = pipeline(Path(self.folder.name), CONFIG)
        self.records: list[tuple[int, int, bool]] = []
        self.where: list[tuple[int, int]] = []
        """The partition and offset of each record."""
        self.numbers: dict[int, list[int]] = {}
        """The records of each partition."""
        self.control_records: list[Control] = []
        self.asked = 0
        """How many records there were when an operator last asked for a release that is not carried out."""
        self.elsewhere: dict[tuple[str, int], ShardMemory] = {}
        self.older: Query | None = None
        self.deadly: set[int] = set()
        """The numbers of all records that were ever left out."""

    @initialize(come=rows, worker=workers)
    def begin(self, come: list[tuple[int, bool]], worker: int) -> None:
        for source, number in ((control_source(ROUTE), 0), ("web", 0), ("web", 1)):
            self.opened.log.writer(source, number).close()
        (self.control,) = self.opened.log.partitions([control_source(ROUTE)])
        self.web = sorted(self.opened.log.partitions(["web"]))
        self.numbers = {partition: [] for partition in self.web}
        self.append(come, worker)
        plan = self.opened.plan(ROUTE)
        assert isinstance(plan.destination_config, FileConfig)
        self.table = Table(plan.destination_config, self.where)
        start = dict.fromkeys([*self.web, self.control], 0)
        self.opened.ledger.open_route(ROUTE, start)
        self.expected, self.query = Expected(dict(start)), Query(start)

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.shut.clear()
            for _ in range(8):
                self.retry(None)
            assert self.opened.ledger.postponed(ROUTE) == [], "what the target takes does not wait"
            self.every_item_is_in_one_place()
        self.opened.ledger.close()
        self.folder.cleanup()

    # What happens

    @rule(come=rows, worker=workers)
    def append(self, come: list[tuple[int, bool]], worker: int) -> None:
        partition, data = self.web[worker], []
        for key, closes in come:
            number = len(self.records)
            pad = random.Random(number).randbytes(200).hex()
            data.append(json.dumps({"n": number, "k": key, "done": closes, "pad": pad}).encode())
            self.records.append((number, key, closes))
            self.where.append((partition, len(self.numbers[partition])))
            self.numbers[partition].append(number)
        with self.opened.log.writer("web", worker) as writer:
            writer.append(entries(Record(text, namespace="web") for text in data))

    @rule(later=st.integers(1, 12))
    def tick(self, later: int) -> None:
        now = max((each.tick for each in self.control_records), default=0) + later
        self.control_records.append(Control(tick=now))
        with self.opened.log.writer(control_source(ROUTE)) as writer:
            writer.append(entries([tick_record(now * 10**6)]))

    @rule()
    def ask_for_a_release(self) -> None:
        ends = {p: len(self.numbers[p]) for p in self.web}
        starts = {p: self.expected.held.get(p, self.expected.committed[p]) for p in self.web}
        places = {p: (starts[p], end) for p, end in ends.items() if starts[p] < end}
        done = release(self.opened, ROUTE, ADA)
        assert (done is not None) == bool(places)
        if done is not None:
            self.asked = len(self.records)
            noted = self.opened.ledger.interventions(ROUTE, last=len(places))
            assert {each.partition: (each.start, each.end) for each in noted} == places

    @rule(dies=st.booleans())
    def carry_out_what_was_asked(self, dies: bool) -> None:
        log, ledger = self.opened.log, self.opened.ledger
        if self.asked:
            self.control_records.append(Control(release=self.asked))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "_armed", faults.parse("control.release_appended=raise" if dies else ""))
            try:
                with ControlWriter(log, ROUTE) as writer:
                    Releases(log, ledger, self.opened.plan(ROUTE), writer).release_due()
                self.asked = 0
            except faults.InjectedFault:
                assert dies
        assert self.opened.log.bounds(self.control).end == len(self.control_records)
        assert bool(self.opened.ledger.release_requests(ROUTE)) == bool(self.asked)

    @rule(size=sizes)
    def deliver(self, size: tuple[int, ...]) -> None:
        self.run_batch(size, None)

    @rule(size=sizes, point=st.sampled_from([None, *POINTS]))
    def deliver_after_a_worker_was_lost(self, size: tuple[int, ...], point: str | None) -> None:
        if self.opened.ledger.standing(ROUTE).pending is None:
            mark = self.opened.plan(ROUTE).set_aside_mark
            mark.parent.mkdir(exist_ok=True)
            mark.touch()
        self.run_batch(size, point)

    @rule(size=sizes, point=st.sampled_from([None, *POINTS]), worker=workers, ahead=st.integers(0, 8))
    def deliver_without_a_deadly_record(
        self, size: tuple[int, ...], point: str | None, worker: int, ahead: int
    ) -> None:
        """One that no step before the holding step survives: found in a batch that was not begun."""
        query, partition = self.query, self.web[worker]
        left = self.numbers[partition][query.next_start[partition] :]
        begun = self.opened.ledger.standing(ROUTE).pending is not None
        if ahead < len(left) and not begun and query.next_start == self.expected.committed:
            query.deadly = (query.done, left[ahead])
        self.run_batch(size, point)

    @rule(size=sizes, point=st.sampled_from(POINTS))
    def be_killed_while_delivering(self, size: tuple[int, ...], point: str) -> None:
        self.run_batch(size, point)

    @rule(keys=st.sets(st.integers(0, 4)))
    def shut(self, keys: set[int]) -> None:
        self.table.shut = keys

    @rule(point=st.sampled_from([None, *RETRY_POINTS]))
    def retry(self, point: str | None) -> None:
        with self.dying(point):
            self.retrier().retry_due()

    @rule()
    def move_to_another_worker(self) -> None:
        here = dict(shard_home._memories)
        shard_home._memories.clear()
        shard_home._memories.update(self.elsewhere)
        self.elsewhere = here

    @rule()
    def start_again(self) -> None:
        shard_home._memories.clear()
        self.elsewhere.clear()

    @rule()
    def copy_the_checkpoint(self) -> None:
        self.older = deepcopy(self.query)

    @rule()
    def put_the_older_checkpoint_back(self) -> None:
        if self.older is not None:
            self.query = deepcopy(self.older)
            if not self.query.ends:
                self.lose_the_checkpoint()

    @rule()
    def lose_the_checkpoint(self) -> None:
        self.note_unfinished()
        self.note_dropped(self.expected.held)
        recover_state(self.opened.ledger, self.opened.log, self.opened.plan(ROUTE), has_state=False)
        self.go_back()
        self.new_query()

    @rule(worker=workers, back=st.integers(0, 20))
    def rewind(self, worker: int, back: int) -> None:
        chosen = self.web[worker]
        to = max(0, self.expected.committed[chosen] - back)
        if to < self.opened.log.bounds(chosen).oldest or not back:
            return
        pending = self.opened.ledger.standing(ROUTE).pending
        found = plan_rewind(self.opened, ROUTE, to, chosen)
        if not found:
            return
        # What waits is forgotten, and must come again.
        held = self.expected.held
        starts = {chosen: to, **held, **({chosen: min(to, held[chosen])} if chosen in held else {})}
        assert {each.partition: each.start for each in found} == starts
        if pending is not None and pending.ranges.keys() - starts.keys() and self.table.batches.get(pending.number):
            # What it has of other partitions, or its ticks, would not come again, and its rows would.
            with suppress(PenstockError):
                rewind(self.opened, found, ADA)
                raise AssertionError("a rewind that doubles rows nobody asked for is refused")
            return
        if pending is not None:
            self.expected.rows.update(self.table.batches.get(pending.number, []))
        self.note_dropped(starts)
        rewind(self.opened, found, ADA)
        self.expected.go_back(starts)
        self.new_query()

    @rule(worker=workers)
    def acknowledge(self, worker: int) -> None:
        chosen = self.web[worker]
        if self.opened.log.bounds(chosen).end > self.opened.log.bounds(chosen).oldest:
            with pytest.raises(PenstockError, match="PEN-ENG-075"):
                acknowledge(self.opened, ROUTE, self.expected.committed[chosen], None, chosen, ADA)

    @rule()
    def retention(self) -> None:
        self.opened.log.apply_retention(self.opened.floors(), datetime.now(UTC) + timedelta(days=1))

    # How Spark and the route's thread do it

    def run_batch(self, size: tuple[int, ...], dies_at: str | None) -> None:
        query, opened = self.query, self.opened
        start = query.next_start
        if query.done == len(query.ends):
            most = dict(zip([*self.web, self.control], size, strict=True))
            ends = {p: min(opened.log.bounds(p).end, at + most[p]) for p, at in start.items()}
            if ends == start:
                return
            pending = opened.ledger.standing(ROUTE).pending
            if pending is not None and all(start[p] == first for p, (first, _) in pending.ranges.items()):
                ends = start | {p: end for p, (_, end) in pending.ranges.items()}
            query.ends.append(ends)
        end = query.ends[query.done]
        ranges = {p: (start[p], end[p]) for p in end if start[p] < end[p]}
        with self.dying(dies_at) as dying:
            self.retrier().settle_refused()
        if dying.dead:
            return
        self.kept_from = {p: position.hold for p, position in opened.ledger.offsets(ROUTE).items()}
        store = query.states[query.done].copy()
        stretches = [Stretch(p, *each) for p, each in ranges.items()]
        report = run_tasks(self.plan(), opened.log, store, stretches)
        if dies_at == "tasks":
            return
        behind = dead = False
        with self.dying(dies_at) as dying:
            try:
                self.delivery.deliver(report)
                opened.plan(ROUTE).set_aside_mark.unlink(missing_ok=True)
                self.note_committed(ranges)
                self.retrier().settle_refused()
            except StateBehind:
                behind = True
        dead = dying.dead
        if behind:
            assert self.is_behind(ranges), "the state is the one that belongs to the ledger"
            self.note_unfinished()
            self.note_dropped(self.expected.held)
            give_up_state(opened.ledger, opened.log, opened.plan(ROUTE))
            self.go_back()
            self.new_query()
            return
        self.note_committed(ranges)
        if dead:
            return
        if dies_at is None:
            del query.states[query.done + 1 :]
            query.states.append(store)
            query.done += 1
            opened.log.holds.set(ROUTE, end)

    def plan(self) -> RoutePlan:
        """The route's plan for the next batch."""
        number = self.query.next_deadly
        lost = LostCode.KILLED_WORKER, "ended its process"
        deadly = () if number is None else (DeadlyRecord(*self.where[number], "where", *lost),)
        return replace(self.opened.plan(ROUTE), deadly_records=deadly)

    @property
    def delivery(self) -> Delivery:
        opened = self.opened
        return Delivery(opened.plan(ROUTE), self.table, opened.log, opened.ledger, opened.failed_store, Event())

    def retrier(self) -> PostponedRetrier:
        """Of a new process: it knows of no backoff."""
        return PostponedRetrier(self.delivery, partial(stage_items, self.opened.plan(ROUTE), self.opened.log))

    @contextmanager
    def dying(self, point: str | None) -> Iterator[Dying]:
        found = Dying()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "_armed", faults.parse(f"{point}=raise" if point else ""))
            try:
                yield found
            except faults.InjectedFault:
                found.dead = True

    def note_dropped(self, starts: Offsets) -> None:
        """What waits at the target and comes again waits no more, unless it is being tried."""
        for group in self.opened.ledger.postponed(ROUTE):
            if group.number is None:
                self.expected.rows.subtract(
                    number for number in self.numbers_of(group.places) if self.is_from(starts, number)
                )
        self.expected.rows = +self.expected.rows

    def is_from(self, starts: Offsets, number: int) -> bool:
        """Whether a record is one of those from ``starts`` on."""
        partition, offset = self.where[number]
        return partition in starts and offset >= starts[partition]

    def numbers_of(self, places: pa.RecordBatch) -> list[int]:
        at = zip(places.column("partition").to_pylist(), places.column("offset").to_pylist(), strict=True)
        return [self.numbers[partition][offset] for partition, offset in at]

    def is_behind(self, ranges: dict[int, tuple[int, int]]) -> bool:
        return any(start != self.expected.committed[p] for p, (start, _) in ranges.items()) or self.older is not None

    def note_committed(self, ranges: dict[int, tuple[int, int]]) -> None:
        """What the ledger has committed is counted in the reference too."""
        committed = {p: position.committed for p, position in self.opened.ledger.offsets(ROUTE).items()}
        if committed == self.expected.committed:
            return
        before = dict(self.expected.committed)
        self.expected.committed = committed
        read = sorted(number for p in self.web for number in self.numbers[p][before[p] : committed[p]])
        records = [self.records[number] for number in read]
        told = self.control_records[before[self.control] : committed[self.control]]
        ticks = [each.tick for each in told if each.tick >= 0]
        deadly = [number for number, _, _ in records if number == self.query.next_deadly]
        self.deadly.update(deadly)
        self.expected.rows.update(deadly)
        given = [record for record in records if record[0] not in deadly]
        self.expected.rows.update(self.expected.take(given, ticks, [each.release for each in told]))
        self.expected.held = self.held_from(self.kept_from)

    def held_from(self, kept_from: Offsets) -> Offsets:
        """Of each partition, everything since the oldest record that waits came may have to be read again: what closed
        a group is not where the group is. What the log need not have any more is not."""
        oldest = self.expected.oldest
        starts = {p: max(bisect_left(self.numbers[p], oldest or 0), kept_from[p]) for p in self.web}
        return {p: at for p, at in starts.items() if oldest is not None and at < self.expected.committed[p]}

    def note_unfinished(self) -> None:
        """What the target got from a batch that is given up stays there, beside what it gets again."""
        pending = self.opened.ledger.standing(ROUTE).pending
        if pending is not None:
            self.expected.rows.update(self.table.batches.get(pending.number, []))

    def go_back(self) -> None:
        self.expected.go_back(self.expected.held)

    def new_query(self) -> None:
        """A new checkpoint begins where the ledger stands."""
        assert self.opened.ledger.standing(ROUTE).pending is None
        self.older = None
        self.query = Query(dict(self.expected.committed))

    # What must hold

    @invariant()
    def every_item_is_in_one_place(self) -> None:
        """What the reference has let go, or what was deadly, is at the target, waits there, or has failed."""
        if not hasattr(self, "table"):
            return
        ledger = self.opened.ledger
        pending, groups = ledger.standing(ROUTE).pending, ledger.postponed(ROUTE)
        begun = {group.number for group in groups} | ({pending.number} if pending is not None else set())
        there = Counter(n for number, rows in self.table.batches.items() if number not in begun for n in rows)
        waits = Counter(n for group in groups for n in self.numbers_of(group.places))
        found = [entry.record for entry in self.opened.failed_store.read(ROUTE, ledger.failed_extent(ROUTE))]
        failed = Counter(self.numbers[record.partition][record.offset] for record in found)
        assert there + waits + failed == self.expected.rows
        assert all(is_bad(number) or number in self.deadly for number in failed)
        assert not any(is_bad(number) for number in there)

    @invariant()
    def the_books_say_what_waits_and_where(self) -> None:
        if not hasattr(self, "table"):
            return
        ledger = self.opened.ledger
        totals = ledger.totals(ROUTE)
        assert totals.adds_up
        postponed = [n for group in ledger.postponed(ROUTE) for n in self.numbers_of(group.places)]
        assert totals.waiting == sum(map(len, self.expected.waiting.values())) + len(postponed)
        held, committed = self.expected.held, self.expected.committed
        assert ledger.held(ROUTE) == held
        positions = ledger.offsets(ROUTE)
        assert {p: position.committed for p, position in positions.items()} == committed
        for p in self.web:
            waits = [offset for partition, offset in map(self.where.__getitem__, postponed) if partition == p]
            assert positions[p].hold == min([committed[p], held.get(p, committed[p]), *waits])

    @invariant()
    def the_log_has_what_is_needed(self) -> None:
        if hasattr(self, "table"):
            positions = self.opened.ledger.offsets(ROUTE)
            assert all(self.opened.log.bounds(p).oldest <= positions[p].hold for p in self.web)


TestHolding = HoldingMachine.TestCase
TestHolding.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
