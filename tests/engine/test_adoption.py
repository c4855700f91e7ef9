"""What is taken over of a history that did not go straight on: it went back, gave a batch up, or was adopted before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock import faults
from penstock.destinations.contract import Batch, LoadedTable
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.history.adoption import LogPart, lost_replays, plan_adoption
from penstock.engine.history.batch_origin import Origin, OriginStretch
from penstock.engine.history.settle_adopted import settle_adopted
from penstock.engine.ledger import AdoptedBatch, Adoption, Operator, Totals
from penstock.engine.lost_workers.lost_worker import LostCode, WorkerLost
from penstock.log.lineage import Incarnation, Lineage
from tests.engine.bench import Bench

Ranges = Mapping[int, tuple[int, int]]
OURS = Lineage((Incarnation(0, "ours"),))
LOG = {p: LogPart(f"log{p}", 0, 100, OURS) for p in (0, 1)}


class ByPlace:
    """Partition by partition."""

    def before(self, ranges: Ranges, place: tuple[int, int]) -> dict[int, tuple[int, int]]:
        partition, offset = place
        ends = {p: end if p < partition else offset for p, (_, end) in ranges.items() if p <= partition}
        return {p: (ranges[p][0], end) for p, end in ends.items() if ranges[p][0] < end}

    def first(self, ranges: Ranges, records: int) -> dict[int, tuple[int, int]]:
        raise NotImplementedError


def load(number: int, table: str, ranges: Ranges) -> LoadedTable:
    stretches = {p: OriginStretch(f"log{p}", start, end, OURS.within(start, end)) for p, (start, end) in ranges.items()}
    return LoadedTable(Batch("scope", "a", number, {}, Origin(stretches).to_text()), table, 1)


def both(number: int, ranges: Ranges) -> list[LoadedTable]:
    return [load(number, table, ranges) for table in ("x", "y")]


def planned(*loads: LoadedTable) -> list[tuple[Ranges, set[str], bool]]:
    batches = plan_adoption(loads, LOG, {0: 0, 1: 0}, {}, ByPlace()).batches
    return [(batch.ranges, set(batch.tables), batch.settled) for batch in batches]


def test_what_was_given_up_for_a_rewind_is_not_taken_for_delivered() -> None:
    # Table `y` was unavailable when the route was moved back to the beginning.
    found = planned(*both(1, {0: (0, 50)}), load(2, "x", {0: (50, 60)}), *both(3, {0: (0, 30)}))
    assert found == [({0: (0, 30)}, {"x", "y"}, True)]


def test_a_batch_that_was_given_up_is_filled_in_where_the_history_has_not_gone_back_behind_it() -> None:
    found = planned(*both(1, {0: (0, 50)}), load(2, "x", {0: (50, 60), 1: (0, 9)}), *both(3, {0: (0, 60)}))
    assert found == [
        ({0: (0, 50)}, {"x", "y"}, True),
        ({0: (50, 60)}, {"x", "y"}, False),
        ({1: (0, 9)}, {"x"}, False),
    ]


@pytest.mark.parametrize(
    ("loads", "missing"),
    [
        ([load(3, "y", {0: (50, 60)})], set()),
        ([load(3, "y", {0: (50, 55)}), load(4, "y", {0: (55, 60)})], set()),
        ([load(3, "y", {0: (50, 55)})], {"y"}),
        ([load(3, "y", {0: (50, 60)}), *both(4, {0: (60, 70)})], set()),
    ],
)
def test_what_an_earlier_adoption_has_filled_in_is_there(loads: list[LoadedTable], missing: set[str]) -> None:
    batches = plan_adoption(
        [*both(1, {0: (0, 50)}), load(2, "x", {0: (50, 60)}), *loads], LOG, {0: 0, 1: 0}, {}, ByPlace()
    ).batches
    (filled,) = (batch for batch in batches if dict(batch.ranges) == {0: (50, 60)})
    assert {"x", "y"} - filled.tables.keys() == missing
    assert not filled.settled


def test_a_table_that_was_left_in_the_middle_of_its_part_gets_the_rest() -> None:
    left = replace(load(2, "y", {0: (50, 60), 1: (0, 9)}), upto=(1, 3))
    loads = [*both(1, {0: (0, 50)}), load(2, "x", {0: (50, 60), 1: (0, 9)}), left, load(3, "x", {0: (60, 70)})]
    loads[-1] = replace(loads[-1], waiting={"y": 2})
    batches = plan_adoption(loads, LOG, {0: 0, 1: 0}, {}, ByPlace()).batches
    assert [(batch.ranges, set(batch.tables), set(batch.wanting)) for batch in batches] == [
        ({0: (0, 50)}, {"x", "y"}, set()),
        ({0: (50, 60), 1: (0, 4)}, {"x", "y"}, set()),
        ({1: (4, 9)}, {"x"}, {"y"}),
        ({0: (60, 70)}, {"x"}, set()),
    ]


@pytest.mark.parametrize("killed_after_a_half", [False, True])
def test_what_is_adopted_is_settled_also_if_a_record_of_it_ends_its_process(
    tmp_path: Path, killed_after_a_half: bool
) -> None:
    """The history that had found the record may be long gone, and with it the batches around it."""
    bench = Bench(tmp_path)
    bench.append(*(b'{"n": %d}' % n for n in range(2, 8)))
    partition = bench.writer.partition
    bench.ledger.adopt("out", Adoption([AdoptedBatch({partition: (0, 6)})], 9), Operator("ada"))

    def carry(ranges: Ranges) -> BatchReport:
        start, end = ranges[partition]
        if start <= 4 < end:
            raise WorkerLost("where", LostCode.KILLED_WORKER, "ended its process")
        return bench.report(start, end)

    parts = (bench.plan, bench.destination, bench.log, bench.ledger, bench.failed, bench.stopping)
    if killed_after_a_half:
        faults._armed = faults.parse("route.before_ledger_commit=raise")
        with pytest.raises(faults.InjectedFault):
            settle_adopted(Delivery(*parts, restage_ranges=carry))
        faults._armed = {}
    settle_adopted(Delivery(*parts, restage_ranges=carry))
    assert [(entry.record.offset, entry.code) for entry in bench.failures()] == [(4, "killed_worker")]
    assert bench.ledger.totals("out") == Totals(items=6, skipped=5, failed=1)
    assert (bench.committed, bench.ledger.adopted_batches("out")) == (6, [])


def test_a_history_that_goes_straight_on_is_taken_over_as_it_is() -> None:
    found = planned(*both(1, {0: (0, 10)}), *both(3, {0: (20, 30), 1: (0, 5)}), load(4, "x", {1: (5, 8)}))
    assert found == [
        ({0: (0, 10)}, {"x", "y"}, True),
        ({0: (10, 20)}, set(), True),
        ({0: (20, 30), 1: (0, 5)}, {"x", "y"}, True),
        ({1: (5, 8)}, {"x"}, False),
    ]


@pytest.mark.parametrize(
    ("loads", "known", "lost"),
    [
        ([load(3, "x", {0: (50, 60), 1: (0, 9)})], 2, 0),
        ([load(3, "x", {0: (50, 160)}), load(4, "x", {0: (160, 190)})], 2, 0),
        ([load(3, "x", {1: (90, 110)}), load(3, "y", {1: (90, 110)}), load(4, "x", {1: (110, 115)})], 2, 15),
        ([load(3, "x", {7: (0, 20)})], 2, 20),  # A partition that this log never had.
        ([load(3, "x", {1: (90, 110)})], 3, 0),  # An operator has decided about it.
        ([load(1, "x", {0: (0, 9)}), load(5, "x", {0: (90, 120)})], 2, 0),  # Those between had no rows.
        ([load(5, "x", {0: (90, 120)})], 2, None),  # Those between are forgotten.
        ([load(5, "x", {0: (90, 100)})], 2, 0),  # This log has whatever was replayed.
    ],
)
def test_replayed_records_that_only_the_destination_has_are_counted(
    loads: list[LoadedTable], known: int, lost: int | None
) -> None:
    assert lost_replays(loads, LOG, {1}, known) == lost
