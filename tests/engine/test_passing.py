"""``offset ack`` of a batch that is under way: half of its tables written, the other half away."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.postgres.config import PostgresConfig
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.passed_records import staging_rounds
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.history.settle_adopted import settle_adopted
from penstock.engine.ledger import AdoptedBatch, Adoption, Operator, RouteState, Totals
from penstock.errors import LedgerError
from penstock.testing.waiting import HANG, eventually
from tests.engine.bench import Bench
from tests.warehouse.model import ModelDestination, Store

ADA = Operator("ada@example")
CONFIG = PostgresConfig.model_validate({"url": "host=nowhere", "table": "{{ k }}"})
RECORDS = [(0, "a"), (1, "b"), (2, "a"), (3, "b"), (4, "b"), (5, "a")]


class Shop(Bench):
    """Records for two tables, of which one is unavailable."""

    def __init__(self, folder: Path, max_tables: int = 200) -> None:
        super().__init__(folder)
        self.config = CONFIG.model_copy(update={"max_tables": max_tables})
        self.plan = replace(self.plan, steps=(), destination_name="postgres", destination_config=self.config)
        self.store = Store(away={"b"})
        self.append(*(json.dumps({"n": n, "k": k}).encode() for n, k in RECORDS))

    def delivery(self) -> Delivery:
        destination = ModelDestination(self.config, self.store)
        return Delivery(self.plan, destination, self.log, self.ledger, self.failed, self.stopping)

    def try_and_stop(self) -> None:
        """One try, and then a stop, as by a restart."""
        self.stopping.set()
        with pytest.raises(Stopped):
            self.delivery().deliver(self.report(0, 6))
        self.stopping.clear()

    def acknowledge(self, first: int, end: int) -> None:
        self.ledger.acknowledge("out", self.writer.partition, (first, end), ADA, engine_runs=True)

    def numbers(self, table: str) -> list[object]:
        return [row["n"] for row in self.store.tables[table].rows]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_records_acknowledged_in_a_batch_under_way_are_left_out_of_what_is_not_written(shop: Shop) -> None:
    shop.try_and_stop()
    assert shop.numbers("a") == [0, 2, 5]
    shop.acknowledge(2, 4)  # one of the table that has its part, one of the other
    shop.store.away.clear()
    shop.delivery().deliver(shop.report(0, 6))
    assert (shop.numbers("a"), shop.numbers("b")) == ([0, 2, 5], [1, 4])
    assert shop.ledger.totals("out") == Totals(items=6, loaded=5, skipped=1)
    assert shop.ledger.account("out").skipped_by == {"acknowledged": 1}
    assert shop.ledger.standing("out").acknowledged == {}


def test_an_acknowledgement_lets_a_batch_go_on_that_an_engine_is_trying(shop: Shop) -> None:
    shop.store.away.add("a")
    thread = threading.Thread(target=lambda: shop.delivery().deliver(shop.report(0, 6)), daemon=True)
    thread.start()

    def retries() -> bool:
        activity = shop.ledger.activity("out")
        return activity is not None and activity.state is RouteState.RETRYING

    eventually(retries, "it waits, for all tables are unavailable")
    shop.acknowledge(0, 6)
    thread.join(HANG)
    assert not thread.is_alive()
    assert shop.ledger.totals("out") == Totals(items=6, skipped=6)
    assert shop.committed == 6


def test_a_rewind_after_it_doubles_nothing(shop: Shop) -> None:
    shop.try_and_stop()
    shop.acknowledge(3, 5)
    shop.ledger.rewind("out", {shop.writer.partition: 0}, ADA)
    shop.store.away.clear()
    shop.delivery().deliver(shop.report(0, 6))
    assert (shop.numbers("a"), shop.numbers("b")) == ([0, 2, 5], [1, 3, 4])
    assert shop.ledger.totals("out") == Totals(items=6, loaded=6)


def test_a_rewind_cannot_take_back_what_a_table_was_written_without(shop: Shop) -> None:
    shop.store.away = {"a", "b"}
    shop.try_and_stop()
    shop.acknowledge(2, 3)
    shop.store.away = {"b"}
    shop.try_and_stop()
    assert shop.numbers("a") == [0, 5]
    with pytest.raises(LedgerError, match=r"^PEN-LGR-016: batch 1 is in progress"):
        shop.ledger.rewind("out", {shop.writer.partition: 0}, ADA)
    shop.store.away.clear()
    shop.delivery().deliver(shop.report(0, 6))
    assert (shop.numbers("a"), shop.numbers("b")) == ([0, 5], [1, 3, 4])
    assert shop.ledger.totals("out") == Totals(items=6, loaded=5, skipped=1)
    assert {table for table, count in shop.ledger.account("out").tables.items() if count.rows} == {"a", "b"}
    shop.ledger.rewind("out", {shop.writer.partition: 2}, ADA)
    shop.delivery().deliver(shop.report(2, 6))
    assert shop.numbers("a") == [0, 5, 2, 5]


def test_an_acknowledgement_lets_what_was_adopted_be_settled(shop: Shop) -> None:
    """Nobody can fix table `b`, and the records for it are given up while they are carried for it."""
    partition = shop.writer.partition
    shop.ledger.adopt("out", Adoption([AdoptedBatch({partition: (0, 6)}, {"a": "[]"}, settled=False)], 4), ADA)

    def carry(ranges: Ranges) -> BatchReport:
        report = stage_ranges(shop.plan, shop.log, ranges)
        for offset in (1, 3, 4) if shop.ledger.standing("out").pending is None else ():
            shop.acknowledge(offset, offset + 1)
        return report

    delivery = replace(shop.delivery(), restage_ranges=carry)
    thread = threading.Thread(target=settle_adopted, args=(delivery,), daemon=True)
    thread.start()
    thread.join(HANG)
    assert not thread.is_alive()
    assert shop.store.tables["b"].rows == []
    assert shop.ledger.totals("out") == Totals(items=6, loaded=3, skipped=3)
    assert shop.ledger.account("out").skipped_by == {"acknowledged": 3}
    assert (shop.committed, shop.ledger.adopted_batches("out")) == (6, [])


def test_an_acknowledgement_does_not_lose_what_overflows_beside_it(tmp_path: Path) -> None:
    shop = Shop(tmp_path, max_tables=1)
    shop.store.away = {"_penstock_overflow_out"}
    shop.try_and_stop()
    assert shop.numbers("a") == [0, 2, 5]
    for offset in (0, 2, 5):  # all that the table has which is written already
        shop.acknowledge(offset, offset + 1)
    shop.store.away.clear()
    shop.delivery().deliver(shop.report(0, 6))
    assert (shop.numbers("a"), shop.numbers("_penstock_overflow_out")) == ([0, 2, 5], [1, 3, 4])
    assert shop.ledger.totals("out") == Totals(items=6, loaded=6)


@given(
    st.dictionaries(st.integers(0, 2), st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda r: (r[0], sum(r)))),
    st.dictionaries(st.integers(0, 2), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), max_size=4)),
)
def test_what_is_left_is_all_but_what_is_passed_over(
    ranges: dict[int, tuple[int, int]], passed: dict[int, Sequence[tuple[int, int]]]
) -> None:
    over = {p: [(start, start + length) for start, length in each] for p, each in passed.items()}
    found = [
        (p, o) for some in staging_rounds(ranges, over) for p, (start, end) in some.items() for o in range(start, end)
    ]
    wanted = {
        (p, o)
        for p, (start, end) in ranges.items()
        for o in range(start, end)
        if not any(first <= o < last for first, last in over.get(p, ()))
    }
    assert len(found) == len(set(found))
    assert set(found) == wanted
