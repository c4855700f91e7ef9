"""What a destination does not take yet waits, is counted and kept, and is given to it again in its order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

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
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.item_staging import stage_items
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.ledger import Operator, Totals
from penstock.engine.operate.offset_control import acknowledge, plan_rewind, rewind
from penstock.engine.operate.status import route_status
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.errors import RefusedError, TransientError
from penstock.log.read_ranges import Stretch
from penstock.outcome import PLACE_SCHEMA
from tests.engine.projects import append_all, pipeline

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes: {out: {from: web, steps: [{where: "n <> 99"}], to: {type: file, path: ./out}}}
"""


class Api(Destination[FileConfig]):
    """Takes nothing of keys that are shut, nor of keys of which something waits; refuses a batch with 13 in it."""

    capabilities = Capabilities(leaves_waiting=True)

    def __init__(self, config: FileConfig) -> None:
        super().__init__(config)
        self.shut: set[str] = set()
        self.away = False
        self.taken: list[int] = []
        self.writes = 0
        self.due = 0.0
        self.lucky = False

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return LineStager(directory, "file", whole_records=False)

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        self.writes += 1
        rows = [json.loads(line) for part in parts for line in Path(part.path).read_text().splitlines()]
        if self.away:
            raise TransientError("PEN-TST-001", "away.")
        if not self.lucky and any(row["n"] == 13 for row in rows):
            raise RefusedError("PEN-TST-002", "13 is unlucky.")
        waits: dict[str, list[int]] = {}
        for row in rows:
            if row["k"] in self.shut or row["k"] in batch.waiting_groups:
                waits.setdefault(row["k"], []).append(row["at"])
        later = [row for row in rows if row["k"] in waits]
        old = [row for row in rows if row["k"] not in waits and row.get("old")]
        self.taken += [row["n"] for row in rows if row not in later and row not in old]
        groups = [WaitingRows(key, _places(own), "too many at once", self.due) for key, own in waits.items()]
        skipped = {"superseded": len(old)} if old else {}
        return Receipt(
            [TableReceipt("file", len(rows) - len(later) - len(old), skipped=skipped, waiting=groups)] if parts else []
        )


def _places(offsets: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"partition": 0, "offset": at, "item": 0} for at in offsets], PLACE_SCHEMA)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.opened = pipeline(folder, CONFIG)
        config = self.opened.plan("out").destination_config
        assert isinstance(config, FileConfig)
        self.api = Api(config)
        self.count = 0

    def deliver(self, *rows: tuple[int, str], **more: bool) -> None:
        """A batch of records, each with a number and a key."""
        data = [json.dumps({"n": n, "k": k, "at": self.count + at, **more}).encode() for at, (n, k) in enumerate(rows)]
        append_all(self.opened, "web", data)
        start, self.count = self.count, self.count + len(rows)
        plan, log = self.opened.plan("out"), self.opened.log
        self.opened.ledger.open_route("out", {0: 0})
        report = add_up([run_task(plan, log.read(0, start, self.count), Stretch(0, start, self.count))])
        self.delivery.deliver(report)

    @property
    def delivery(self) -> Delivery:
        opened = self.opened
        plan = opened.plan("out")
        return Delivery(plan, self.api, opened.log, opened.ledger, opened.failed_store, Event())

    def retrier(self) -> PostponedRetrier:
        return PostponedRetrier(self.delivery, partial(stage_items, self.opened.plan("out"), self.opened.log))

    @property
    def totals(self) -> Totals:
        return self.opened.ledger.totals("out")

    @property
    def hold(self) -> int:
        return self.opened.ledger.offsets("out")[0].hold


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_batch_commits_with_rows_that_wait_and_they_come_later_in_their_order(bench: Bench) -> None:
    bench.api.shut = {"a"}
    bench.deliver((1, "a"), (2, "b"), (3, "a"))
    assert bench.totals == Totals(items=3, loaded=1, waiting=2)
    bench.api.shut = set()
    bench.deliver((4, "a"), (5, "b"))
    assert (bench.api.taken, bench.hold) == ([2, 5], 0)
    assert bench.totals == Totals(items=5, loaded=2, waiting=3)
    status = route_status(bench.opened, "out")
    assert (status.postponed, status.held_by_steps, status.adds_up) == (3, 0, True)
    bench.retrier().retry_due()
    assert bench.api.taken == [2, 5, 1, 3, 4]
    assert bench.totals == Totals(items=5, loaded=5)
    assert bench.hold == 5


def test_what_is_not_due_is_not_tried_and_one_that_waits_keeps_no_other_waiting(bench: Bench) -> None:
    bench.api.shut, bench.api.due = {"a", "b"}, 3600.0
    bench.deliver((1, "a"))
    bench.api.due = 0.0
    bench.deliver((2, "b"))
    bench.api.shut = {"a"}
    before = bench.api.writes
    bench.retrier().retry_due()
    assert (bench.api.taken, bench.api.writes - before) == ([2], 1)
    assert [(group.group, group.reason) for group in bench.opened.ledger.postponed("out")] == [
        ("a", "too many at once")
    ]


def test_a_retry_that_was_begun_is_tried_again_with_all_that_it_had(bench: Bench) -> None:
    bench.api.shut = {"a", "b"}
    bench.deliver((1, "a"))
    bench.api.due = 3600.0
    bench.deliver((2, "b"))
    bench.api.shut = set()
    # Both were due by the clock of an engine that then was killed.
    ledger = bench.opened.ledger
    ledger.begin_retry("out", [group.id for group in ledger.postponed("out")])
    bench.retrier().retry_due()
    assert (bench.api.taken, bench.totals) == ([1, 2], Totals(items=2, loaded=2))


def test_what_is_asked_for_at_once_and_not_taken_again_is_tried_once_a_time(bench: Bench) -> None:
    bench.api.shut = {"a", "b"}
    bench.deliver((1, "a"), (2, "b"))
    for tries in range(1, 4):
        bench.retrier().retry_due()
        assert bench.api.writes == 1 + tries
    assert bench.totals == Totals(items=2, waiting=2)


def test_a_destination_that_is_away_is_tried_under_the_same_number(bench: Bench) -> None:
    bench.api.shut = {"a"}
    bench.deliver((1, "a"))
    bench.api.shut, bench.api.away = set(), True
    bench.retrier().retry_due()
    (group,) = bench.opened.ledger.postponed("out")
    assert (group.attempts, group.number, group.reason) == (1, 2, "PEN-TST-001: away.")
    bench.api.away = False
    bench.retrier().retry_due()
    assert (bench.api.taken, bench.opened.ledger.postponed("out")) == ([1], [])
    bench.deliver((2, "b"))
    assert bench.opened.ledger.batches("out")[0].number == 3


def test_a_refused_row_among_those_that_waited_fails_alone(bench: Bench) -> None:
    bench.api.shut, bench.api.lucky = {"a", "b"}, True
    bench.deliver((1, "a"), (13, "a"), (2, "a"), (3, "b"))
    bench.api.shut, bench.api.lucky = set(), False
    for _ in range(4):
        bench.retrier().retry_due()
    assert sorted(bench.api.taken) == [1, 2, 3]
    assert bench.totals == Totals(items=4, loaded=3, failed=1)
    (entry,) = bench.opened.failed_store.read("out", bench.opened.ledger.failed_extent("out"))
    assert (entry.record.offset, entry.step, entry.code) == (1, "destination", "refused")


def test_a_retry_that_was_begun_is_finished_though_its_route_was_rewound_before_it(bench: Bench) -> None:
    bench.deliver((1, "b"))
    bench.api.shut = {"a"}
    bench.deliver((2, "b"), (3, "a"))
    ledger = bench.opened.ledger
    ledger.begin_retry("out", [group.id for group in ledger.postponed("out")])
    rewind(bench.opened, plan_rewind(bench.opened, "out", 0, 0), Operator("ada"))
    assert (bench.hold, bench.totals.waiting) == (0, 1)
    bench.api.shut = set()
    bench.retrier().retry_due()
    assert (bench.api.taken, bench.totals.waiting, bench.totals.adds_up) == ([1, 2, 3], 0, True)


def test_what_the_destination_does_not_need_is_skipped_by_its_reason(bench: Bench) -> None:
    bench.deliver((1, "a"), (2, "b"), old=True)
    assert bench.totals == Totals(items=2, skipped=2)
    assert bench.opened.ledger.account("out").skipped_by == {"superseded": 2}


def test_what_waits_can_be_acknowledged_and_waits_no_more(bench: Bench) -> None:
    bench.api.shut = {"a"}
    bench.deliver((1, "a"), (2, "a"), (3, "b"))
    acknowledge(bench.opened, "out", 0, 0, 0, Operator("ada"))
    assert bench.totals == Totals(items=3, loaded=1, skipped=1, waiting=1)
    assert bench.hold == 1
    bench.api.shut = set()
    bench.retrier().retry_due()
    assert bench.api.taken == [3, 2]
    assert bench.totals == Totals(items=3, loaded=2, skipped=1)


def test_an_item_that_the_steps_no_longer_make_fails_as_lost(bench: Bench, tmp_path: Path) -> None:
    bench.api.shut = {"a"}
    bench.deliver((1, "a"), (2, "a"))
    bench.api.shut = set()
    changed = pipeline(tmp_path, CONFIG.replace("n <> 99", "n <> 1"))
    retrier = PostponedRetrier(bench.delivery, partial(stage_items, changed.plan("out"), changed.log))
    retrier.retry_due()
    assert (bench.api.taken, bench.totals) == ([2], Totals(items=2, loaded=1, failed=1))
    (entry,) = bench.opened.failed_store.read("out", bench.opened.ledger.failed_extent("out"))
    assert (entry.record.offset, entry.code) == (0, "lost")
