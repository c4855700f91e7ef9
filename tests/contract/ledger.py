"""What every ledger must do, on whichever database it stands. Subclass it and say how to open one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import replace

import pytest
import sqlalchemy as sa

from penstock.destinations.contract import TableReceipt
from penstock.engine.ledger import (
    Act,
    Advance,
    DeferredPart,
    Extent,
    Halt,
    Ledger,
    Operator,
    Position,
    RouteState,
    Settlement,
    TableCount,
    Totals,
)
from penstock.errors import LedgerError

ADA = Operator("ada@example", "a test order")
HALT = Halt(0, 6, "destination", "refused", "amount must be positive")


class LedgerContract(ABC):
    @abstractmethod
    def open(self) -> Ledger:
        """The same ledger at every call."""

    @pytest.fixture
    def ledger(self) -> Ledger:
        ledger = self.open()
        ledger.open_route("shop", {0: 0, 1: 100})
        return ledger

    def test_a_new_route_stands_where_it_is_told_to_start(self, ledger: Ledger) -> None:
        assert ledger.offsets("shop") == {0: Position(0, 0), 1: Position(100, 100)}

    def test_opening_a_route_again_moves_nothing(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.commit(batch, Settlement(10, 10))
        assert ledger.open_route("shop", {0: 0, 1: 0, 2: 7}) == {
            0: Position(10, 10),
            1: Position(100, 100),
            2: Position(7, 7),
        }

    def test_a_commit_moves_offsets_and_counts_together(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10), 1: (100, 105)})
        assert batch is not None
        ledger.commit(
            batch,
            Settlement(15, 9, {"where": 3, "namespace": 1}, 2, tables=[TableReceipt("a", 5), TableReceipt("b", 4)]),
        )
        assert ledger.offsets("shop") == {0: Position(10, 10), 1: Position(105, 105)}
        assert ledger.totals("shop") == Totals(items=15, loaded=9, skipped=4, failed=2)
        assert ledger.account("shop").skipped_by == {"where": 3, "namespace": 1}
        assert ledger.table_counts("shop") == {"a": TableCount(5), "b": TableCount(4)}

    @pytest.mark.parametrize(
        "settlement",
        [
            Settlement(10, 9),
            Settlement(10, 11),
            Settlement(10, 5, {"where": 4}),
            Settlement(10, 10, failed=1),
            Settlement(10, 10, waiting=1),
            Settlement(10, 10, added={"split": 1}),
        ],
    )
    def test_books_that_do_not_balance_are_refused_and_nothing_moves(
        self, ledger: Ledger, settlement: Settlement
    ) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        with pytest.raises(LedgerError, match="does not add up"):
            ledger.commit(batch, settlement)
        assert ledger.offsets("shop")[0] == Position(0, 0)
        assert ledger.totals("shop") == Totals()

    def test_items_that_a_step_added_are_accounted_for(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.commit(batch, Settlement(10, 25, added={"split": 10, "python": 5}))
        later = ledger.begin("shop", {0: (10, 12)})
        assert later is not None
        ledger.commit(later, Settlement(2, 5, added={"split": 3}))
        assert ledger.totals("shop").adds_up
        assert ledger.account("shop").added_by == {"split": 13, "python": 5}
        assert ledger.account("other").added_by == {}

    def test_a_ledger_that_knew_only_the_sum_of_what_was_added_goes_on(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.commit(batch, Settlement(10, 25, added={"split": 15}))
        with ledger.writing() as connection:
            ledger.names.additions.drop(connection)
        later_version = self.open()
        assert later_version.account("shop").added_by == {"earlier": 15}
        batch = later_version.begin("shop", {0: (10, 12)})
        assert batch is not None
        later_version.commit(batch, Settlement(2, 4, added={"split": 2}))
        assert later_version.account("shop").added_by == {"earlier": 15, "split": 2}
        assert later_version.totals("shop") == Totals(items=12, added=17, loaded=29)

    def test_rows_of_a_batch_under_way_are_told_apart_until_it_is_committed(self, ledger: Ledger) -> None:
        first = ledger.begin("shop", {0: (0, 10)})
        assert first is not None
        ledger.commit(first, Settlement(10, 10, tables=[TableReceipt("a", 6, merged=5), TableReceipt("b", 4)]))
        second = ledger.begin("shop", {0: (10, 15)})
        assert second is not None
        ledger.note_table_loaded(second, TableReceipt("a", 3, merged=1))
        assert ledger.table_counts("shop") == {"a": TableCount(6, 5, under_way=3), "b": TableCount(4)}
        account = ledger.account("shop")
        assert (account.standing.pending, account.totals.loaded) == (second, 10)
        ledger.commit(second, Settlement(5, 5, tables=[*ledger.loaded_tables(second), TableReceipt("c", 2)]))
        assert ledger.table_counts("shop") == {"a": TableCount(9, 6), "b": TableCount(4), "c": TableCount(2)}
        assert sum(count.rows for count in ledger.table_counts("shop").values()) == ledger.totals("shop").loaded

    def test_a_ledger_that_listed_rows_by_batch_only_is_summed_up_by_table(self, ledger: Ledger) -> None:
        for number, tables in enumerate([[TableReceipt("a", 5)], [TableReceipt("a", 3), TableReceipt("b", 2)]]):
            batch = ledger.begin("shop", {0: (number * 5, number * 5 + 5)})
            assert batch is not None
            ledger.commit(batch, Settlement(5, 5, tables=tables))
        begun = ledger.begin("shop", {0: (10, 11)})
        assert begun is not None
        ledger.note_table_loaded(begun, TableReceipt("b", 1))
        names = ledger.names
        with ledger.writing() as connection:
            # As the version before left it, with the first batch no longer listed.
            connection.execute(sa.delete(names.deliveries).filter_by(number=1))
            names.table_totals.drop(connection)
            connection.execute(sa.text(f"ALTER TABLE {names.deliveries.fullname} DROP COLUMN merged"))
        later_version = self.open()
        counts = {"a": TableCount(3), "b": TableCount(2, under_way=1), "earlier": TableCount(5)}
        assert later_version.table_counts("shop") == counts
        assert later_version.loaded_tables(begun) == [TableReceipt("b", 1, repeated=True)]
        later_version.commit(begun, Settlement(1, 1, tables=later_version.loaded_tables(begun)))
        assert self.open().table_counts("shop") == {**counts, "b": TableCount(3)}

    def test_waiting_items_keep_the_hold_back(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.commit(batch, Settlement(10, 8, waiting=2, holds={0: 4}))
        assert ledger.offsets("shop")[0] == Position(committed=10, hold=4)
        self.settle(ledger, {0: (10, 12)}, Settlement(2, 2))
        assert ledger.offsets("shop")[0] == Position(12, 4), "what a batch does not name stays held"
        self.settle(ledger, {0: (12, 14)}, Settlement(2, 3, waiting=-1, holds={0: 7}))
        assert ledger.offsets("shop")[0] == Position(14, 7)
        self.settle(ledger, {0: (14, 15)}, Settlement(1, 2, waiting=-1, holds={0: None}))
        assert ledger.offsets("shop")[0] == Position(15, 15)
        assert ledger.totals("shop") == Totals(items=15, loaded=15)

    def settle(self, ledger: Ledger, ranges: dict[int, tuple[int, int]], settlement: Settlement) -> None:
        batch = ledger.begin("shop", ranges)
        assert batch is not None
        ledger.commit(batch, settlement)

    def test_a_batch_of_one_partition_releases_what_is_held_in_another(self, ledger: Ledger) -> None:
        self.settle(ledger, {0: (0, 10)}, Settlement(10, 8, waiting=2, holds={0: 4}))
        self.settle(ledger, {1: (100, 101)}, Settlement(1, 3, waiting=-2, holds={0: None}))
        assert ledger.offsets("shop") == {0: Position(10, 10), 1: Position(101, 101)}
        assert self.open().totals("shop") == Totals(items=11, loaded=11)

    def test_steps_and_tables_hold_a_partition_each_for_itself(self, ledger: Ledger) -> None:
        late = DeferredPart("orders", 3, "locked")
        tables = [TableReceipt("visits", 5)]
        waits = Settlement(10, 5, waiting=2, holds={0: 4}, tables=tables, deferred=[late])
        self.settle(ledger, {0: (0, 10)}, waits)
        assert ledger.offsets("shop")[0] == Position(10, 0)
        (part,) = ledger.waiting_parts("shop")
        assert ledger.settle_waiting(part, Settlement(3, 3, tables=[TableReceipt("orders", 3)]))
        assert ledger.offsets("shop")[0] == Position(10, 4)

    def test_more_cannot_be_released_than_waits(self, ledger: Ledger) -> None:
        self.settle(ledger, {0: (0, 10)}, Settlement(10, 8, waiting=2, holds={0: 4}))
        batch = ledger.begin("shop", {0: (10, 12)})
        assert batch is not None
        with pytest.raises(LedgerError, match="PEN-LGR-002"):
            ledger.commit(batch, Settlement(2, 5, waiting=-3, holds={0: None}))
        assert ledger.offsets("shop")[0] == Position(10, 4)
        assert ledger.totals("shop") == Totals(items=10, loaded=8, waiting=2)

    def test_a_ledger_from_before_that_was_a_rule_gets_the_rule_and_keeps_its_rows(self, ledger: Ledger) -> None:
        self.settle(ledger, {0: (0, 10)}, Settlement(10, 8, waiting=2, holds={0: 4}))
        names = ledger.names
        with ledger.writing() as connection:
            columns = [sa.Column(c.name, c.type, primary_key=c.primary_key) for c in names.totals.columns]
            copy = sa.Table("copy", sa.MetaData(schema=names.totals.schema), *columns)
            copy.create(connection)
            connection.execute(sa.insert(copy).from_select(list(copy.c.keys()), sa.select(names.totals)))
            names.totals.drop(connection)
            connection.execute(sa.text(f"ALTER TABLE {copy.fullname} RENAME TO {names.totals.name}"))
        later_version = self.open()
        assert later_version.totals("shop") == Totals(items=10, loaded=8, waiting=2)
        batch = later_version.begin("shop", {0: (10, 12)})
        assert batch is not None
        with pytest.raises(LedgerError, match="PEN-LGR-002"):
            later_version.commit(batch, Settlement(2, 5, waiting=-3))

    def defer(self, ledger: Ledger, ranges: dict[int, tuple[int, int]], rows: int, table: str = "orders") -> None:
        batch = ledger.begin("shop", ranges)
        assert batch is not None
        items = sum(end - start for start, end in ranges.values())
        loaded = [TableReceipt("visits", items - rows)] if items > rows else []
        ledger.commit(
            batch, Settlement(items, items - rows, tables=loaded, deferred=[DeferredPart(table, rows, "locked")])
        )

    def test_what_waits_for_its_table_is_counted_and_keeps_the_log_until_it_is_settled(self, ledger: Ledger) -> None:
        self.defer(ledger, {0: (0, 10), 1: (100, 105)}, rows=4)
        self.defer(ledger, {0: (10, 12)}, rows=2)
        assert ledger.totals("shop") == Totals(items=17, loaded=11, waiting=6)
        assert ledger.offsets("shop") == {0: Position(12, 0), 1: Position(105, 100)}
        assert {
            table: (waiting.rows, waiting.batches, waiting.first)
            for table, waiting in ledger.waiting_tables("shop").items()
        } == {"orders": (6, 2, 1)}
        part = self.open().next_waiting_part("shop", "orders")
        assert part is not None
        assert (part.batch.number, part.batch.ranges, part.rows) == (1, {0: (0, 10), 1: (100, 105)}, 4)
        ledger.note_attempt(part, "still locked")
        waiting = ledger.waiting_tables("shop")["orders"]
        assert (waiting.attempts, waiting.reason) == (1, "still locked")
        settlement = Settlement(4, 3, failed=1, tables=[TableReceipt("orders", 3)])
        assert ledger.settle_waiting(part, settlement)
        assert not ledger.settle_waiting(part, settlement), "once"
        assert ledger.totals("shop") == Totals(items=17, loaded=14, failed=1, waiting=2)
        assert ledger.offsets("shop") == {0: Position(12, 10), 1: Position(105, 105)}
        assert ledger.table_counts("shop") == {"orders": TableCount(3), "visits": TableCount(11)}
        newest, first = ledger.batches("shop")
        assert (first.loaded, first.failed, first.waiting, newest.waiting) == (14, 1, 0, 2)

    def test_what_waited_is_not_settled_as_another_number_of_rows(self, ledger: Ledger) -> None:
        self.defer(ledger, {0: (0, 10)}, rows=4)
        part = ledger.next_waiting_part("shop", "orders")
        assert part is not None
        for wrong in (Settlement(4, 3), Settlement(4, 5), Settlement(3, 3)):
            with pytest.raises(LedgerError, match="PEN-LGR-017"):
                ledger.settle_waiting(part, wrong)
        assert ledger.totals("shop").waiting == 4

    def test_a_route_that_is_moved_back_lets_go_of_what_comes_again_and_of_nothing_else(self, ledger: Ledger) -> None:
        self.defer(ledger, {0: (0, 10)}, rows=1)
        self.defer(ledger, {0: (10, 20), 1: (100, 110)}, rows=2)
        self.defer(ledger, {0: (20, 30)}, rows=3)
        for targets in ({0: 5}, {0: 10}, {0: 15, 1: 100}):
            with pytest.raises(LedgerError, match="PEN-LGR-018"):
                ledger.rewind("shop", targets, ADA)
        ledger.rewind("shop", {0: 20}, ADA)
        assert ledger.offsets("shop") == {0: Position(20, 0), 1: Position(110, 100)}
        assert ledger.totals("shop") == Totals(items=40, loaded=34, skipped=3, waiting=3)
        ledger.rewind("shop", {0: 10, 1: 100}, ADA)
        assert ledger.offsets("shop") == {0: Position(10, 0), 1: Position(100, 100)}
        assert ledger.account("shop").skipped_by == {"rewound": 5}
        assert ledger.waiting_tables("shop")["orders"].rows == 1

    def test_records_that_a_table_waits_for_can_be_declared_done(self, ledger: Ledger) -> None:
        self.defer(ledger, {0: (0, 10), 1: (100, 110)}, rows=9)
        assert ledger.acknowledge_waiting("shop", 0, (20, 30), ADA) == 0
        assert ledger.acknowledge_waiting("shop", 0, (2, 4), ADA) == 1
        assert ledger.acknowledge_waiting("shop", 0, (3, 60), ADA) == 1
        part = ledger.next_waiting_part("shop", "orders")
        assert part is not None
        assert part.acknowledged == {0: [(2, 10)]}
        assert [each.act for each in ledger.interventions("shop")] == [Act.ACK, Act.ACK]

    def test_a_route_that_is_renamed_keeps_what_waits_under_the_name_that_it_was_delivered_by(
        self, ledger: Ledger
    ) -> None:
        self.defer(ledger, {0: (0, 10)}, rows=4)
        ledger.rename_route("shop", "store", ADA)
        part = ledger.next_waiting_part("store", "orders")
        assert part is not None
        assert (part.route, part.batch.route) == ("store", "shop")
        assert ledger.waiting_tables("shop") == {}
        ledger.drop_route("store")
        assert ledger.waiting_tables("store") == {}

    def test_the_same_range_has_the_same_number_at_every_attempt(self, ledger: Ledger) -> None:
        first = ledger.begin("shop", {0: (0, 10)})
        again = self.open().begin("shop", {0: (0, 10)})
        assert first == again
        assert ledger.standing("shop").pending == first

    def test_a_committed_range_is_known(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.commit(batch, Settlement(10, 10))
        assert ledger.begin("shop", {0: (0, 10)}) is None
        assert ledger.standing("shop").pending is None

    def test_numbers_grow_by_one(self, ledger: Ledger) -> None:
        numbers = []
        for start in range(5):
            batch = ledger.begin("shop", {0: (start, start + 1)})
            assert batch is not None
            ledger.commit(batch, Settlement(1, 1))
            numbers.append(batch.number)
        assert numbers == [1, 2, 3, 4, 5]

    def test_a_range_that_does_not_start_where_the_route_stands_is_refused(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerError, match="stands at 0"):
            ledger.begin("shop", {0: (3, 10)})

    def test_another_range_while_one_is_under_way_is_refused(self, ledger: Ledger) -> None:
        ledger.begin("shop", {0: (0, 10)})
        with pytest.raises(LedgerError, match="under way"):
            ledger.begin("shop", {0: (0, 11)})

    def test_a_batch_cannot_be_committed_twice(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.commit(batch, Settlement(10, 10))
        with pytest.raises(LedgerError, match="not under way"):
            ledger.commit(batch, Settlement(10, 10))
        assert ledger.totals("shop").items == 10

    def test_a_partition_that_appears_later_starts_at_zero(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {7: (0, 3)})
        assert batch is not None
        ledger.commit(batch, Settlement(3, 3))
        assert ledger.offsets("shop")[7] == Position(3, 3)

    def test_everything_is_there_after_opening_again(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.commit(batch, Settlement(10, 9, failed=1, failed_extent=Extent(1, 250)))
        ledger.set_state("shop", RouteState.RETRYING, "the warehouse is locked")
        reopened = self.open()
        assert reopened.scope == ledger.scope
        assert reopened.totals("shop") == ledger.totals("shop")
        assert reopened.failed_extent("shop") == Extent(1, 250)
        assert [b.number for b in reopened.batches("shop")] == [1]
        activity = reopened.activity("shop")
        assert activity is not None
        assert (activity.state, activity.message) == (RouteState.RETRYING, "the warehouse is locked")

    def test_a_batch_without_failures_leaves_the_failed_extent(self, ledger: Ledger) -> None:
        for start, settlement in ((0, Settlement(1, 0, failed=1, failed_extent=Extent(1, 99))), (1, Settlement(1, 1))):
            batch = ledger.begin("shop", {0: (start, start + 1)})
            assert batch is not None
            ledger.commit(batch, settlement)
        assert ledger.failed_extent("shop") == Extent(1, 99)

    def test_a_replay_that_reached_the_log_settles_its_entries(self, ledger: Ledger) -> None:
        ledger.begin_replay("shop", 9, 40, [0, 2])
        assert self.open().replay_under_way("shop") == (9, 40, [0, 2])
        ledger.finish_replay("shop", appended=True)
        assert ledger.settled_entries("shop") == {0: "replayed", 2: "replayed"}
        assert ledger.replay_under_way("shop") is None

    def test_a_replay_that_did_not_reach_the_log_leaves_its_entries_open(self, ledger: Ledger) -> None:
        ledger.begin_replay("shop", 9, 40, [0, 2])
        ledger.finish_replay("shop", appended=False)
        assert ledger.settled_entries("shop") == {}

    def test_routes_commit_at_the_same_time_without_losing_a_count(self, ledger: Ledger) -> None:
        routes, rounds = ["a", "b", "c"], 20
        for route in routes:
            ledger.open_route(route, {0: 0})

        def work(route: str) -> None:
            own = self.open()
            for start in range(rounds):
                batch = own.begin(route, {0: (start, start + 1)})
                assert batch is not None
                own.commit(batch, Settlement(1, 1, tables=[TableReceipt("t", 1)]))

        threads = [threading.Thread(target=work, args=(route,)) for route in routes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [ledger.totals(route).loaded for route in routes] == [rounds] * len(routes)

    def test_a_partition_that_was_made_anew_is_refused(self, ledger: Ledger) -> None:
        ledger.check_log_identity({0: "first", 1: "second"})
        self.open().check_log_identity({0: "first", 2: "third"})
        with pytest.raises(LedgerError, match="partition 1 was made again"):
            ledger.check_log_identity({0: "first", 1: "another", 2: "third"})

    def committed(self, ledger: Ledger, end: int, start: int = 0) -> None:
        batch = ledger.begin("shop", {0: (start, end)})
        assert batch is not None
        ledger.commit(batch, Settlement(end - start, end - start))

    def test_a_batch_that_was_refused_as_a_whole_goes_on_shorter_under_its_number(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.shorten(batch, {0: (0, 5)})
        assert self.open().begin("shop", {0: (0, 5)}) == replace(batch, ranges={0: (0, 5)})

    def test_a_route_that_halts_says_where_and_why_and_gives_up_what_it_had_begun(self, ledger: Ledger) -> None:
        self.committed(ledger, 6)
        begun = ledger.begin("shop", {0: (6, 7)})
        assert begun is not None
        ledger.halt("shop", HALT, "stopped before offset 6")
        standing = self.open().standing("shop")
        assert (standing.pending, standing.halt, standing.positions[0]) == (None, HALT, Position(6, 6))
        activity = ledger.activity("shop")
        assert activity is not None
        assert (activity.state, activity.message) == (RouteState.HALTED, "stopped before offset 6")
        again = ledger.begin("shop", {0: (6, 9)})
        assert again is not None
        assert again.number > begun.number

    def test_a_commit_past_the_record_ends_the_halt(self, ledger: Ledger) -> None:
        self.committed(ledger, 6)
        ledger.halt("shop", HALT, "stopped")
        self.committed(ledger, 9, start=6)
        assert ledger.standing("shop").halt is None

    def test_a_route_that_has_halted_is_not_said_to_run_by_its_start(self, ledger: Ledger) -> None:
        ledger.set_state("shop", RouteState.STARTING)
        ledger.halt("shop", HALT, "stopped")
        ledger.set_state("shop", RouteState.RUNNING, after=RouteState.STARTING)
        activity = ledger.activity("shop")
        assert activity is not None
        assert activity.state is RouteState.HALTED

    def test_records_that_are_acknowledged_where_the_route_stands_are_skipped_at_once(self, ledger: Ledger) -> None:
        self.committed(ledger, 6)
        ledger.halt("shop", HALT, "stopped")
        ledger.acknowledge("shop", 0, (6, 8), ADA, Advance(6, 8, 2), engine_runs=True)
        assert ledger.offsets("shop")[0] == Position(8, 8)
        assert ledger.totals("shop") == Totals(items=8, loaded=6, skipped=2)
        assert ledger.account("shop").skipped_by == {"acknowledged": 2}
        activity = ledger.activity("shop")
        assert activity is not None
        assert activity.state is RouteState.STARTING
        (act,) = self.open().interventions("shop")
        assert (act.act, act.who, act.reason) == (Act.ACK, "ada@example", "a test order")
        assert (act.partition, act.start, act.end) == (0, 6, 8)

    def test_an_acknowledgement_lets_go_of_nothing_that_still_waits(self, ledger: Ledger) -> None:
        batch = ledger.begin("shop", {0: (0, 10)})
        assert batch is not None
        ledger.commit(batch, Settlement(10, 8, waiting=2, holds={0: 4}))
        ledger.acknowledge("shop", 0, (10, 11), ADA, Advance(10, 11, 1))
        assert ledger.offsets("shop")[0] == Position(committed=11, hold=4)

    def test_records_that_are_acknowledged_ahead_are_remembered_until_the_route_is_past_them(
        self, ledger: Ledger
    ) -> None:
        for stretch in ((7, 9), (12, 14), (8, 10)):
            ledger.acknowledge("shop", 0, stretch, ADA)
        assert self.open().standing("shop").acknowledged == {0: [(7, 10), (12, 14)]}
        assert ledger.totals("shop") == Totals()
        self.committed(ledger, 10)
        assert ledger.standing("shop").acknowledged == {0: [(12, 14)]}
        self.committed(ledger, 13, start=10)
        assert ledger.standing("shop").acknowledged == {0: [(13, 14)]}

    def test_an_acknowledgement_ahead_is_kept_although_an_earlier_one_lets_the_route_move(self, ledger: Ledger) -> None:
        ledger.acknowledge("shop", 0, (2, 4), ADA)
        self.committed(ledger, 2)
        ledger.acknowledge("shop", 0, (7, 8), ADA, Advance(2, 4, 2))
        assert ledger.standing("shop").acknowledged == {0: [(7, 8)]}
        assert ledger.offsets("shop")[0].committed == 4

    def test_nobody_moves_a_route_that_an_engine_works_on(self, ledger: Ledger) -> None:
        ledger.set_state("shop", RouteState.RUNNING)
        assert not ledger.acknowledge("shop", 0, (0, 1), ADA, Advance(0, 1, 1), engine_runs=True)
        with pytest.raises(LedgerError, match="not halted"):
            ledger.resume("shop", ADA)
        assert ledger.offsets("shop")[0] == Position(0, 0)
        # What it comes to is passed over.
        assert ledger.acknowledged_in("shop", {0: (0, 9), 1: (0, 9)}) == {0: [(0, 1)]}

    def test_records_of_a_batch_under_way_are_acknowledged_and_the_batch_stays(self, ledger: Ledger) -> None:
        begun = ledger.begin("shop", {0: (0, 10)})
        assert begun is not None
        assert not ledger.acknowledge("shop", 0, (0, 1), ADA, Advance(0, 1, 1))
        assert not ledger.acknowledge("shop", 0, (9, 12), ADA)
        assert ledger.acknowledged_in("shop", begun.ranges) == {0: [(0, 1), (9, 10)]}
        assert (ledger.standing("shop").pending, ledger.offsets("shop")[0].committed) == (begun, 0)
        ledger.commit(begun, Settlement(10, 8, {"acknowledged": 2}))
        assert ledger.standing("shop").acknowledged == {0: [(10, 12)]}

    def test_a_rewind_to_where_a_batch_under_way_begins_keeps_the_batch(self, ledger: Ledger) -> None:
        self.committed(ledger, 10)
        begun = ledger.begin("shop", {0: (10, 12)})
        assert begun is not None
        ledger.note_table_loaded(begun, TableReceipt("orders", 1))
        ledger.acknowledge("shop", 0, (11, 12), ADA)
        ledger.rewind("shop", {0: 10}, ADA)
        assert ledger.generation("shop") == 1
        assert ledger.standing("shop").pending == begun
        assert [table.table for table in ledger.loaded_tables(begun)] == ["orders"]
        assert ledger.acknowledged_in("shop", begun.ranges) == {}

    def test_a_rewind_brings_nothing_a_second_time_that_nobody_asked_for(self, ledger: Ledger) -> None:
        first = ledger.begin("shop", {0: (0, 10), 1: (100, 110)})
        assert first is not None
        ledger.commit(first, Settlement(20, 20))
        begun = ledger.begin("shop", {0: (10, 12), 1: (110, 112)})
        assert begun is not None
        ledger.note_table_loaded(begun, TableReceipt("orders", 1))
        with pytest.raises(LedgerError, match="orders already have their part"):
            ledger.rewind("shop", {0: 3}, ADA)
        assert ledger.standing("shop").pending == begun
        ledger.rewind("shop", {0: 3, 1: 110}, ADA)
        assert ledger.standing("shop").pending is None

    def test_a_route_that_moved_meanwhile_is_not_moved_from_where_it_was(self, ledger: Ledger) -> None:
        self.committed(ledger, 6)
        with pytest.raises(LedgerError, match="has moved from 5 to 6"):
            ledger.acknowledge("shop", 0, (5, 8), ADA, Advance(5, 8, 3))

    def test_a_rewind_reads_again_under_new_numbers_and_another_checkpoint(self, ledger: Ledger) -> None:
        self.committed(ledger, 10)
        begun = ledger.begin("shop", {0: (10, 12)})
        assert begun is not None
        ledger.acknowledge("shop", 0, (20, 21), ADA)
        ledger.rewind("shop", {0: 3}, ADA)
        assert ledger.generation("shop") == 1
        standing = ledger.standing("shop")
        assert (standing.pending, standing.positions[0]) == (None, Position(3, 3))
        assert standing.acknowledged == {}
        again = ledger.begin("shop", {0: (3, 12)})
        assert again is not None
        assert again.number > begun.number
        with pytest.raises(LedgerError, match="not under way"):
            ledger.commit(begun, Settlement(2, 2))
        act = ledger.interventions("shop")[0]
        assert (act.act, act.partition, act.start, act.end) == (Act.REWIND, 0, 3, 10)

    def test_what_waited_when_a_route_was_moved_back_is_counted_again_and_the_books_still_balance(
        self, ledger: Ledger
    ) -> None:
        batch = ledger.begin("shop", {0: (0, 10), 1: (100, 110)})
        assert batch is not None
        ledger.commit(batch, Settlement(20, 15, waiting=5, holds={1: 104}))
        ledger.rewind("shop", {0: 2}, ADA)
        assert {p: position.committed for p, position in ledger.offsets("shop").items()} == {0: 2, 1: 104}
        assert ledger.totals("shop") == Totals(items=20, loaded=15, skipped=5)
        assert ledger.account("shop").skipped_by == {"rewound": 5}

    def test_a_halted_route_is_resumed_and_that_is_on_record(self, ledger: Ledger) -> None:
        self.committed(ledger, 6)
        ledger.halt("shop", HALT, "stopped")
        ledger.resume("shop", ADA)
        activity = ledger.activity("shop")
        assert activity is not None
        assert activity.state is RouteState.STARTING
        assert ledger.standing("shop").halt == HALT
        assert [(act.act, act.start) for act in ledger.interventions("shop")] == [(Act.RESUME, 6)]
