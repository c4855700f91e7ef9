"""What every ledger must do with what waits at a destination, on whichever database it stands."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa
import pytest
import sqlalchemy as sa

from penstock.destinations.contract import Superseded, TableReceipt
from penstock.engine.ledger import Ledger, Operator, Position, Postponed, Settlement, Totals
from penstock.engine.ledger import postponed_items as items
from penstock.errors import LedgerError
from penstock.outcome import PLACE_SCHEMA

ROUTE = "fleet"


def waiting(group: str, *places: tuple[int, int], about: str = "", delay: float = 3600.0) -> Postponed:
    """Items by partition and offset."""
    rows = [{"partition": partition, "offset": offset, "item": 0} for partition, offset in places]
    return Postponed(group, pa.RecordBatch.from_pylist(rows, PLACE_SCHEMA), "not yet", delay, about)


class PostponedContract(ABC):
    @abstractmethod
    def open(self) -> Ledger:
        """The same ledger at every call."""

    @pytest.fixture
    def fleet(self) -> Ledger:
        """A ledger with a route that reads two partitions."""
        ledger = self.open()
        ledger.open_route(ROUTE, {0: 0, 1: 0})
        return ledger

    def commit(self, ledger: Ledger, ends: dict[int, int], settlement: Settlement) -> dict[str, int]:
        starts = {p: position.committed for p, position in ledger.offsets(ROUTE).items()}
        batch = ledger.begin(ROUTE, {p: (starts[p], end) for p, end in ends.items()})
        assert batch is not None
        return ledger.commit(batch, settlement)

    def abouts(self, ledger: Ledger) -> list[tuple[str, str]]:
        return [(group.group, group.about) for group in ledger.postponed(ROUTE)]

    def test_what_is_superseded_is_skipped_and_lets_go_of_the_log_with_the_batch_that_says_so(
        self, fleet: Ledger
    ) -> None:
        first = [waiting("x", (0, 0), (1, 1), about="1"), waiting("y", (0, 1), about="1")]
        self.commit(fleet, {0: 2, 1: 2}, Settlement(4, 1, postponed=first))
        assert fleet.offsets(ROUTE) == {0: Position(2, 0), 1: Position(2, 1)}
        gone = [Superseded(*each, "conflated") for each in (("x", "1"), ("x", "2"), ("z", "1"))]
        second = Settlement(1, 0, postponed=[waiting("x", (0, 2), about="2")], superseded=gone)
        assert self.commit(fleet, {0: 3}, second) == {"conflated": 2}
        assert self.abouts(fleet) == [("y", "1"), ("x", "2")], "what comes with it is not meant"
        assert fleet.totals(ROUTE) == Totals(items=5, loaded=1, skipped=2, waiting=2)
        assert fleet.account(ROUTE).skipped_by == {"conflated": 2}
        assert fleet.offsets(ROUTE) == {0: Position(3, 1), 1: Position(2, 2)}
        assert self.open().postponed_groups(ROUTE) == {"y": ["1"], "x": ["2"]}

    def test_a_retry_supersedes_others_and_keeps_its_own(self, fleet: Ledger) -> None:
        groups = [waiting("x", (0, 0), about="1"), waiting("x", (0, 1), about="2"), waiting("y", (0, 2), about="1")]
        self.commit(fleet, {0: 3}, Settlement(3, 0, postponed=groups))
        number = fleet.begin_retry(ROUTE, [group.id for group in fleet.postponed(ROUTE)][:1])
        assert fleet.postponed_groups(ROUTE, but=number) == {"x": ["2"], "y": ["1"]}
        gone = [Superseded("x", "1", "conflated"), Superseded("y", "1", "conflated")]
        self.commit(fleet, {0: 4}, Settlement(1, 1, superseded=gone))
        assert self.abouts(fleet) == [("x", "1"), ("x", "2")], "it may be at the destination"
        _, superseded = fleet.settle_retry(
            ROUTE, number, Settlement(1, 1, superseded=[Superseded("x", "2", "conflated"), *gone])
        )
        assert (superseded, self.abouts(fleet)) == ({"conflated": 1}, [])
        assert fleet.totals(ROUTE) == Totals(items=4, loaded=2, skipped=2)
        assert fleet.offsets(ROUTE)[0] == Position(4, 4)

    def test_a_commit_that_is_refused_supersedes_and_wakes_nothing(self, fleet: Ledger) -> None:
        self.commit(fleet, {0: 1}, Settlement(1, 0, postponed=[waiting("x", (0, 0), about="1")]))
        batch = fleet.begin(ROUTE, {0: (1, 2)})
        assert batch is not None
        impossible = Settlement(1, 3, waiting=-2, superseded=[Superseded("x", "1", "conflated")], wakes=["x"])
        with pytest.raises(LedgerError, match="PEN-LGR-002"):
            fleet.commit(batch, impossible)
        assert (self.abouts(fleet), fleet.is_postponed_due(ROUTE)) == ([("x", "1")], False)
        assert fleet.totals(ROUTE) == Totals(items=1, waiting=1)

    def test_what_is_woken_is_due_at_once_also_for_another_process(self, fleet: Ledger) -> None:
        groups = [waiting("x", (0, 0)), waiting("x", (0, 1)), waiting("y", (0, 2))]
        self.commit(fleet, {0: 3}, Settlement(3, 0, postponed=groups))
        assert not fleet.is_postponed_due(ROUTE)
        self.commit(fleet, {0: 4}, Settlement(1, 0, postponed=[waiting("x", (0, 3))], wakes={"x", "nobody"}))
        assert [group.is_due for group in self.open().postponed_queue(ROUTE)] == [True, True, False, False]

    def test_what_was_begun_is_due_at_once_after_a_restart(self, fleet: Ledger) -> None:
        self.commit(fleet, {0: 1}, Settlement(1, 0, postponed=[waiting("x", (0, 0))]))
        fleet.begin_retry(ROUTE, [group.id for group in fleet.postponed(ROUTE)])
        assert self.open().is_postponed_due(ROUTE)

    @pytest.mark.parametrize(
        ("set_to", "is_due"), [(None, True), (-1.0, True), (1800.0, False), (3500.0, False), (7000.0, True)],
        ids=["of an older release", "its time has come", "half of it is left", "just begun", "the clock was set back"],
    )  # fmt: skip
    def test_a_group_is_due_by_the_time_of_day(self, fleet: Ledger, set_to: float | None, is_due: bool) -> None:
        self.commit(fleet, {0: 1}, Settlement(1, 0, postponed=[waiting("x", (0, 0), delay=3600.0)]))
        with fleet.writing() as connection:
            at = None if set_to is None else time.time() + set_to
            connection.execute(sa.update(fleet.names.postponed).values(due_at=at))
        assert fleet.is_postponed_due(ROUTE) == is_due
        assert [group.is_due for group in fleet.postponed_queue(ROUTE)] == [is_due]

    def test_what_a_retry_leaves_keeps_its_place_before_what_came_meanwhile(self, fleet: Ledger) -> None:
        self.commit(fleet, {0: 2}, Settlement(2, 0, postponed=[waiting("x", (0, 0), (0, 1), about="old")]))
        (before,) = fleet.postponed(ROUTE)
        number = fleet.begin_retry(ROUTE, [before.id])
        self.commit(fleet, {0: 3}, Settlement(1, 0, postponed=[waiting("x", (0, 2), about="new")]))
        halves = [[waiting("x", (0, 0), about="old")], [waiting("x", (0, 1), about="old")]]
        fleet.cut_retry(ROUTE, number, halves)
        numbers = [group.number for group in fleet.postponed(ROUTE)]
        assert numbers == [number + 2, number + 3, None]
        fleet.settle_retry(ROUTE, number + 2, Settlement(1, 0, postponed=halves[0][:1]))
        found = fleet.postponed(ROUTE)
        assert [(group.about, group.attempts, group.since == before.since) for group in found] == [
            ("old", 0, True), ("old", 1, True), ("new", 0, False),
        ]  # fmt: skip

    @pytest.mark.parametrize("most", [1, 7, 5_000])
    def test_many_groups_come_and_go_in_a_batch(
        self, fleet: Ledger, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(items, "MOST_VALUES", most)
        self.commit(fleet, {0: 20}, Settlement(20, 0, postponed=self.many(range(20), "1")))
        gone = [Superseded(str(n), "1", "conflated") for n in range(15)]
        again = Settlement(10, 0, postponed=self.many(range(20, 30), "2"), superseded=gone, wakes=["16", "17"])
        assert self.commit(fleet, {0: 30}, again) == {"conflated": 15}
        queue = fleet.postponed_queue(ROUTE)
        assert [group.group for group in queue] == [str(n) for n in range(15, 30)]
        assert [group.group for group in queue if group.is_due] == ["16", "17"]
        assert fleet.offsets(ROUTE)[0] == Position(30, 15)
        number = fleet.begin_retry(ROUTE, [group.id for group in queue])
        assert [group.places["offset"].to_pylist() for group in fleet.retry_groups(ROUTE, number)] == [
            [n] for n in range(15, 30)
        ]

    def many(self, numbers: Sequence[int], about: str) -> list[Postponed]:
        return [waiting(str(n), (0, n), about=about) for n in numbers]

    def test_what_an_operator_acknowledges_leaves_the_rest_of_its_group_as_it_was(self, fleet: Ledger) -> None:
        groups = [waiting("x", (0, 0), (0, 1), about="1"), waiting("x", (0, 2), about="2")]
        self.commit(fleet, {0: 3}, Settlement(3, 0, postponed=groups))
        fleet.acknowledge_waiting(ROUTE, 0, (0, 1), Operator("ada"))
        assert self.abouts(fleet) == [("x", "1"), ("x", "2")]
        assert fleet.totals(ROUTE) == Totals(items=3, skipped=1, waiting=2)
        assert fleet.offsets(ROUTE)[0] == Position(3, 1)

    def test_a_ledger_of_an_older_release_keeps_what_waits(self, fleet: Ledger) -> None:
        self.commit(fleet, {0: 1}, Settlement(1, 0, postponed=[waiting("x", (0, 0))]))
        table = fleet.names.postponed.fullname
        with fleet.writing() as connection:
            for column in ("about", "due_at", "queued_as"):
                connection.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        later = self.open()
        assert self.abouts(later) == [("x", "")]
        assert later.is_postponed_due(ROUTE)
        number = later.begin_retry(ROUTE, [group.id for group in later.postponed(ROUTE)])
        later.settle_retry(ROUTE, number, Settlement(1, 1))
        assert later.totals(ROUTE) == Totals(items=1, loaded=1)

    def test_what_a_destination_counts_adds_up_by_subject_over_batches_and_retries(self, fleet: Ledger) -> None:
        first = TableReceipt("bundles", 1, tallies={"x": {"received": 2, "written": 1}})
        self.commit(fleet, {0: 2}, Settlement(2, 1, tables=[first], postponed=[waiting("y", (0, 1), about="1")]))
        many = {f"subject{number}": {"received": 1} for number in range(1_200)}
        second = TableReceipt("bundles", 1, tallies={"x": {"received": 1, "failed": 1}, **many})
        gone = [Superseded("y", "1", "conflated")]
        self.commit(fleet, {0: 3}, Settlement(1, 1, tables=[second], superseded=gone))
        found = fleet.tallies(ROUTE)
        assert found["x"] == {"received": 3, "written": 1, "failed": 1}
        assert found["y"] == {"conflated": 1}, "what is superseded counts under its group"
        assert len(found) == 1_202
        assert fleet.tallies("another") == {}

    def test_what_is_forgotten_waits_and_counts_no_more(self, fleet: Ledger) -> None:
        groups = [waiting("x", (0, 0), about="1"), waiting("x", (0, 1), about="2"), waiting("y", (0, 2), about="1")]
        receipt = TableReceipt("bundles", 0, tallies={"x": {"received": 2}, "y": {"received": 1}})
        self.commit(fleet, {0: 3}, Settlement(3, 0, tables=[receipt], postponed=groups))
        assert fleet.forget_waiting(ROUTE, ["x", "z"]) == 2
        assert self.abouts(fleet) == [("y", "1")]
        assert fleet.totals(ROUTE) == Totals(items=3, skipped=2, waiting=1)
        assert fleet.account(ROUTE).skipped_by == {"forgotten": 2}
        assert (fleet.tallies(ROUTE), fleet.offsets(ROUTE)[0].hold) == ({"y": {"received": 1}}, 2)
        assert fleet.forget_waiting(ROUTE, ["x"]) == 0
