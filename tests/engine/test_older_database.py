"""An older copy of a database put back, with tables that get their part later than others. On a real PostgreSQL."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.delivery.halts import Halted
from penstock.engine.history.takeover import find_conflict, rewind_anyway
from penstock.engine.operate.offset_control import plan_rewind
from penstock.engine.retry_lane.retrier import RetryLane
from tests.engine.copies import OPERATOR
from tests.engine.test_waiting import Shop
from tests.support.database import Database

TABLES = ("orders", "visits", "_penstock_loads", "_penstock_tables")

Copy = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def shop(tmp_path: Path, database: Database) -> Shop:
    made = Shop(tmp_path, database)
    made.append(("orders", 0), ("visits", 0))
    made.deliver()
    return made


def keep(shop: Shop) -> None:
    for table in TABLES:
        shop.database.ask(f"DROP TABLE IF EXISTS kept_{table}; CREATE TABLE kept_{table} AS TABLE {table}")


def put_back(shop: Shop) -> None:
    for table in TABLES:
        shop.database.ask(f"TRUNCATE {table}; INSERT INTO {table} TABLE kept_{table}")


def follow(shop: Shop, advice: str) -> None:
    shop.reopen()
    for to, partition in re.findall(r"rewind out --to (\d+) --partition (\d+)", advice):
        stretches = plan_rewind(shop.pipeline, "out", int(to), int(partition))
        rewind_anyway(shop.pipeline, "out", stretches, OPERATOR, find_conflict(shop.pipeline, "out"))


def halted(shop: Shop) -> str:
    with pytest.raises(Halted) as found:
        shop.deliver()
    return str(found.value)


def test_what_a_table_got_later_is_missed(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    keep(shop)
    shop.retry()
    assert shop.rows("orders") == [0, 1]
    put_back(shop)
    shop.reopen()
    said = halted(shop)
    assert "lacks 1 rows" in said
    follow(shop, said)
    shop.deliver()
    assert shop.rows("orders") == [0, 1]


def test_what_a_table_got_later_is_among_what_comes_again(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    keep(shop)
    shop.retry()
    shop.append(("orders", 2), ("visits", 2))
    shop.deliver()
    put_back(shop)
    shop.reopen()
    said = halted(shop)
    assert "lacks 3 rows" in said
    assert "What visits has of these batches comes again" in said
    follow(shop, said)
    shop.deliver()
    # The visit of its batch comes again too: a batch is read as a whole.
    assert (shop.rows("orders"), shop.rows("visits")) == ([0, 1, 2], [0, 1, 1, 2])


def test_a_table_that_waits_gets_nothing_from_a_copy_that_lacks_what_was_before(shop: Shop) -> None:
    keep(shop)
    shop.append(("orders", 1), ("visits", 1))
    shop.deliver()
    with shop.locked("orders"):
        shop.append(("orders", 2), ("visits", 2))
        shop.deliver()
    delivery, layout = shop.delivery, shop.pipeline.layout
    delivery.check_history()
    put_back(shop)
    beside = replace(delivery, plan=replace(delivery.plan, stage_dir=layout.retry_stage("out")))
    RetryLane(beside, layout.waiting_stage("out")).retry_due_tables()
    assert "PEN-DST-113" in shop.pipeline.ledger.waiting_tables("out")["orders"].reason
    assert (shop.rows("orders"), shop.rows("visits")) == ([0], [0])
    shop.append(("visits", 3))
    shop.reopen()
    said = halted(shop)
    follow(shop, said)
    shop.deliver()
    shop.retry()
    assert (shop.rows("orders"), shop.rows("visits")) == ([0, 1, 2], [0, 1, 2, 3])
    shop.check_books()
