"""What every destination owes. A destination inherits one suite: the last of these that describes it.

=========================  =======================================================================================
``DestinationContract``    nobody can look at what was written (a service that answers "thank you")
``ReadableContract``       its rows can be read back; a batch that comes again may be there twice
``RepeatableContract``     a batch that comes again is there once
``CopyContract``           so it is, and other records under the same number do not replace it (files)
``TransactionalContract``  has the capability ``transactions``: knows what it has, shows nothing that is unfinished
=========================  =======================================================================================

From ``RepeatableContract`` on, ``write`` calls ``penstock.faults.reach`` at two points, where the suite breaks it off:
``"destination.writing"`` when rows were sent and are not committed, ``"destination.committed"`` when they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.destinations.contract import AnyDestination, Batch, Part, Receipt
from penstock.errors import ContradictionError
from penstock.outcome import Outcome
from penstock.record import Record, entries, placed
from penstock.testing.crash import crash_at
from penstock.testing.large_batch import LARGE, load_elsewhere, load_here

LET_GO_BY: list[dict[int, tuple[int, int]]] = [{1: (0, 1)}, {7: (0, 1)}, {}]
"""The ranges of a batch that lets rows of partition 0 go which have waited: one of another partition, one of ticks
alone, and one of what waited at the destination, which has none."""


def batch(number: int = 0, route: str = "shop", scope: str = "ledger-a") -> Batch:
    return Batch(scope, route, number, {0: (0, 100)})


def events(*values: Any) -> list[bytes]:
    return [json.dumps(value, ensure_ascii=False).encode() for value in values]


def numbered(ids: Iterable[int]) -> list[bytes]:
    return events(*({"id": number} for number in ids))


class Staging:
    """Stages like a task would, and remembers what became of the rows."""

    def __init__(self, destination: AnyDestination, directory: Path, casts: Mapping[str, str] | None = None) -> None:
        self.destination = destination
        self.casts = casts or {}
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.outcomes: list[Outcome] = []

    def stage(self, data: Sequence[bytes | None], partition: int = 0, first: int = 0, size: int = 10_000) -> list[Part]:
        stager = self.destination.stager(self.directory, self.casts)
        for start in range(0, len(data), size):
            rows = entries(Record(item, namespace="web") for item in data[start : start + size])
            self.outcomes.append(stager.add(placed(rows, partition, first + start)))
        return stager.finish()


class DestinationContract:
    """For every destination.

    Gives: ``make``, or the fixture ``destination`` if that takes more than a folder.
    Asserted: each record is staged, skipped or failed, whatever its bytes; parts say where they start; the receipt adds
    up, also for a batch without parts; ``check`` describes a usable target; to stage and to write a large batch takes
    less memory than the batch has bytes.
    """

    most_memory_to_write: ClassVar[int] = LARGE
    """Bytes, for a batch of ``LARGE`` bytes. More if the target's own memory counts (an embedded database)."""
    in_this_process: ClassVar[bool] = False
    """Whether only the test's own process has the target (a stand-in). By itself memory is measured in a process of its
    own, where nothing else takes any; it makes the destination anew from its class and config."""

    def make(self, tmp_path: Path) -> AnyDestination:
        """The destination, with a target of this test's own."""
        raise NotImplementedError

    @pytest.fixture
    def destination(self, tmp_path: Path) -> AnyDestination:
        return self.make(tmp_path)

    @pytest.fixture
    def staging(self, destination: AnyDestination, tmp_path: Path) -> Staging:
        return Staging(destination, tmp_path / "stage")

    def test_every_row_is_staged_or_accounted_for(self, staging: Staging) -> None:
        data = [*numbered(range(5)), None, b"", b"not json", b"[1]", b"{}", b'{"a":\n1}']
        parts = staging.stage(data, size=3)
        kept = sum(outcome.kept.num_rows for outcome in staging.outcomes)
        skipped = sum(outcome.skipped for outcome in staging.outcomes)
        failed = sum(outcome.failures.num_rows for outcome in staging.outcomes)
        assert kept + skipped + failed == len(data)
        assert sum(part.rows for part in parts) == kept

    def test_parts_say_where_they_start(self, staging: Staging) -> None:
        (part,) = staging.stage(numbered(range(5)), partition=3, first=40, size=2)
        assert (part.partition, part.first_offset, part.rows) == (3, 40, 5)

    def test_a_task_without_records_makes_no_parts(self, staging: Staging) -> None:
        assert staging.stage([]) == []

    def test_the_receipt_adds_up(self, destination: AnyDestination, staging: Staging) -> None:
        parts = staging.stage(numbered(range(7))) + staging.stage(numbered(range(7, 10)), partition=1)
        assert delivered_rows(destination.write(batch(), parts)) == 10

    def test_a_batch_without_parts_is_fine(self, destination: AnyDestination) -> None:
        receipt = destination.write(batch(), [])
        assert delivered_rows(receipt) == 0
        assert not receipt.repeated

    def test_two_batches_follow_each_other(self, destination: AnyDestination, staging: Staging) -> None:
        for number in range(2):
            receipt = destination.write(batch(number), staging.stage(numbered(range(3)), first=3 * number))
            assert not receipt.repeated
            assert delivered_rows(receipt) == 3

    def test_a_usable_target_passes_its_check(self, destination: AnyDestination) -> None:
        assert destination.check()

    def large_event(self, number: int) -> Any:
        """One of the events that a large batch is made of; override it if the destination wants another form."""
        return {"id": number, "text": f"{number:04000d}"}

    def test_a_large_batch_does_not_take_memory_with_it(self, destination: AnyDestination, staging: Staging) -> None:
        block = entries(Record(data, namespace="web") for data in events(*map(self.large_event, range(1_000))))
        load = load_here if self.in_this_process else load_elsewhere
        taken = load(destination, staging.directory, block)
        assert taken.rows * block.column("data").nbytes >= LARGE * block.num_rows
        assert taken.to_stage < LARGE, f"to stage {LARGE >> 20} MiB took {taken.to_stage >> 20} MiB of memory"
        assert taken.to_write < self.most_memory_to_write, (
            f"to write {LARGE >> 20} MiB took {taken.to_write >> 20} MiB of memory"
        )


class ReadableContract(DestinationContract):
    """A destination whose rows can be looked at.

    Gives: ``ids``.
    Asserted: rows arrive in the order of the log, batch after batch; two pipelines or routes that have the same batch
    numbers do not disturb each other; names and values of any kind arrive; rows that waited arrive, whichever batch
    lets them go.
    """

    def ids(self, destination: AnyDestination) -> list[int]:
        """The field ``id`` of every row at the target, in the order in which they lie there."""
        raise NotImplementedError

    def test_rows_arrive_in_log_order(self, destination: AnyDestination, staging: Staging) -> None:
        late = staging.stage(numbered(range(5, 9)), partition=0, first=5, size=2)
        other = staging.stage(numbered(range(20, 23)), partition=1)
        early = staging.stage(numbered(range(5)), partition=0, first=0, size=2)
        destination.write(batch(), [*other, *late, *early])
        assert self.ids(destination) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22]

    def test_a_later_batch_comes_after(self, destination: AnyDestination, staging: Staging) -> None:
        destination.write(batch(0), staging.stage(numbered([1, 2])))
        destination.write(batch(1), staging.stage(numbered([3]), first=2))
        assert self.ids(destination) == [1, 2, 3]

    @pytest.mark.parametrize("ranges", LET_GO_BY, ids=["another partition", "no records", "no range"])
    def test_rows_that_waited_arrive_with_whatever_lets_them_go(
        self, ranges: Mapping[int, tuple[int, int]], destination: AnyDestination, staging: Staging
    ) -> None:
        """Of batch 0 a step keeps back all but one; batch 1 has other offsets, and brings them."""
        destination.write(Batch("ledger-a", "shop", 0, {0: (0, 4)}), staging.stage(numbered([3]), first=3))
        waited = staging.stage(numbered([0, 1]))
        own = staging.stage(numbered([9]), partition=1) if 1 in ranges else []
        receipt = destination.write(Batch("ledger-a", "shop", 1, ranges), [*own, *waited])
        assert delivered_rows(receipt) == 2 + len(own)
        assert sorted(self.ids(destination)) == [0, 1, 3, *([9] if own else [])]

    def test_rows_that_waited_arrive_without_those_that_were_acknowledged_meanwhile(
        self, destination: AnyDestination, staging: Staging
    ) -> None:
        destination.write(Batch("ledger-a", "shop", 0, {0: (0, 3)}), [])
        waited = staging.stage(numbered([0])) + staging.stage(numbered([2]), first=2)
        own = staging.stage(numbered([3]), first=3) + staging.stage(numbered([5]), first=5)
        destination.write(Batch("ledger-a", "shop", 1, {0: (3, 6)}), [*own, *waited])
        assert sorted(self.ids(destination)) == [0, 2, 3, 5]

    @pytest.mark.parametrize("other", [batch(scope="ledger-b"), batch(route="shop-2")], ids=["scope", "route"])
    def test_the_same_number_of_another_pipeline_is_another_batch(
        self, other: Batch, destination: AnyDestination, staging: Staging
    ) -> None:
        destination.write(batch(), staging.stage(numbered([1])))
        assert not destination.write(other, staging.stage(numbered([2]))).repeated
        assert sorted(self.ids(destination)) == [1, 2]

    def test_odd_routes_and_odd_data_are_no_trouble(self, destination: AnyDestination, staging: Staging) -> None:
        odd = [
            {"id": 1, "Größe ✓": "日本語 \u2028 \u0007", "": 0},
            {"id": 2, "quote\"'`;--": "'); DROP TABLE events; --"},
            {"id": 3, "select": {"from": {"where": None}}, "a.b": [1, {"c": "\\n"}]},
        ]
        destination.write(batch(route='a/b "c" ü\''), staging.stage(events(*odd)))
        assert self.ids(destination) == [1, 2, 3]


class RepeatableContract(ReadableContract):
    """A destination for which a batch that is written again is there once.

    Gives: both points of ``faults.reach``.
    Asserted: a batch that is written twice, cut into other parts the second time, or written again after a crash at
    either point, is there once, with the same receipt; so are rows that waited, if their batch is decided anew.
    """

    def test_writing_a_batch_twice_is_writing_it_once(self, destination: AnyDestination, staging: Staging) -> None:
        parts = staging.stage(numbered(range(4)))
        first = destination.write(batch(), parts)
        second = destination.write(batch(), parts)
        assert self.ids(destination) == [0, 1, 2, 3]
        assert delivered_rows(second) == delivered_rows(first)

    def test_a_batch_that_was_cut_into_other_parts_replaces_nothing_twice(
        self, destination: AnyDestination, staging: Staging
    ) -> None:
        destination.write(batch(), staging.stage(numbered(range(4))))
        halves = staging.stage(numbered([0, 1])) + staging.stage(numbered([2, 3]), first=2)
        destination.write(batch(), halves)
        assert self.ids(destination) == [0, 1, 2, 3]

    @pytest.mark.parametrize("point", ["destination.writing", "destination.committed"])
    def test_a_crash_and_another_try_deliver_once(
        self, point: str, destination: AnyDestination, staging: Staging
    ) -> None:
        destination.write(batch(0), staging.stage(numbered([0])))
        parts = staging.stage(numbered([1, 2]), first=1) + staging.stage(numbered([3]), first=3)
        with crash_at(point):
            destination.write(batch(1), parts)
        receipt = destination.write(batch(1), parts)
        assert delivered_rows(receipt) == 3
        assert self.ids(destination) == [0, 1, 2, 3]

    @pytest.mark.parametrize("ranges", LET_GO_BY, ids=["another partition", "no records", "no range"])
    @pytest.mark.parametrize("point", ["destination.writing", "destination.committed"])
    def test_rows_that_waited_are_there_once_if_the_engine_is_killed_before_it_notes_them(
        self, point: str, ranges: Mapping[int, tuple[int, int]], destination: AnyDestination, staging: Staging
    ) -> None:
        """The step decides alike the second time, and its tasks share what it lets go in another way."""
        lets_go = Batch("ledger-a", "shop", 1, ranges)
        destination.write(Batch("ledger-a", "shop", 0, {0: (0, 4)}), staging.stage(numbered([3]), first=3))
        with crash_at(point):
            destination.write(lets_go, staging.stage(numbered([0, 1, 2])))
        again = staging.stage(numbered([2]), first=2) + staging.stage(numbered([0, 1]))
        assert delivered_rows(destination.write(lets_go, again)) == 3
        assert sorted(self.ids(destination)) == [0, 1, 2, 3]


class CopyContract(RepeatableContract):
    """A destination of files: what a number that comes again brings stands beside what is there.

    Gives: nothing more; ``make_again`` if it is not made of its config alone.
    Asserted: another batch of the same number (``batch.origin`` differs) takes nobody's place.
    """

    def test_another_batch_of_the_same_number_takes_no_ones_place(
        self, destination: AnyDestination, staging: Staging
    ) -> None:
        destination.write(replace(batch(), origin="one"), staging.stage(numbered([1])))
        again = self.make_again(destination)
        again.write(replace(batch(), origin="other"), staging.stage(numbered([2])))
        again.write(replace(batch(), origin="other"), staging.stage(numbered([2])))
        assert sorted(self.ids(destination)) == [1, 2]

    def make_again(self, destination: AnyDestination) -> AnyDestination:
        """As a restarted engine has it."""
        return type(destination)(destination.config)


class TransactionalContract(RepeatableContract):
    """A destination with ``transactions``: nothing of an unfinished batch is ever seen, and it knows what it has.

    Gives: ``newest_loads`` and ``loads`` of the destination.
    Asserted: a batch that it has is ``repeated`` and changes nothing; nothing of one that was broken off is seen; other
    records under the number of a batch that it has are a ``ContradictionError`` that says what to do; it remembers what
    its batches were made of.
    """

    contradiction: ClassVar[str] = "penstock offset adopt shop"
    """What a person is told if the target has other records under the number of a batch; a regular expression."""

    def test_it_says_that_it_has_the_batch_already(self, destination: AnyDestination, staging: Staging) -> None:
        assert destination.capabilities.transactions
        parts = staging.stage(numbered([1]))
        assert not destination.write(batch(), parts).repeated
        assert destination.write(batch(), parts).repeated

    def test_nothing_of_an_unfinished_batch_is_seen(self, destination: AnyDestination, staging: Staging) -> None:
        destination.write(batch(0), staging.stage(numbered([0])))
        parts = staging.stage(numbered([1, 2]), first=1)
        with crash_at("destination.writing"):
            destination.write(batch(1), parts)
        assert self.ids(destination) == [0]

    def test_another_batch_of_the_same_number_is_not_taken_for_it(
        self, destination: AnyDestination, staging: Staging
    ) -> None:
        """As after an older ledger was put back: its numbers come again, for other records."""
        first, second = replace(batch(), origin="one"), replace(batch(), origin="other")
        destination.write(first, staging.stage(numbered([1])))
        with pytest.raises(ContradictionError, match=self.contradiction):
            destination.write(second, staging.stage(numbered([2])))
        assert destination.write(first, staging.stage(numbered([1]))).repeated
        assert self.ids(destination) == [1]

    def test_it_remembers_what_its_batches_were_made_of(self, destination: AnyDestination, staging: Staging) -> None:
        assert destination.newest_loads() == []
        for number, route in [(0, "shop"), (1, "shop"), (7, "other")]:
            made = replace(batch(number, route), origin=f"{route} {number}")
            destination.write(made, staging.stage(numbered([number])))
        newest = [(load.batch.route, load.batch.number, load.batch.origin) for load in destination.newest_loads()]
        assert sorted(newest) == [("other", 7, "other 7"), ("shop", 1, "shop 1")]
        loads = destination.loads("ledger-a", "shop")
        assert [(load.batch.number, load.batch.origin, load.rows) for load in loads] == [
            (0, "shop 0", 1),
            (1, "shop 1", 1),
        ]
        assert destination.loads("ledger-b", "shop") == []


def delivered_rows(receipt: Receipt) -> int:
    """Rows that arrived or were refused by name: all that were staged."""
    refused: int = sum(failures.num_rows for failures in receipt.failures)
    return receipt.rows + refused
