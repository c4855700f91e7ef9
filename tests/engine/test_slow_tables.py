"""A table of which many rows are refused: to find them takes time, which others do not wait for. On a real
PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.delivery import batch_writer
from penstock.engine.ledger import Totals
from tests.engine.test_waiting import Shop
from tests.support.database import Database

ONE_TABLE = "table: orders\n"


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any search takes too long."""
    monkeypatch.setattr(batch_writer, "SECONDS_PER_TABLE", 0.0)


def test_it_gets_its_part_later_and_the_others_theirs_now(tmp_path: Path, database: Database) -> None:
    shop = Shop(tmp_path, database)
    shop.append(("orders", 0), ("visits", 0))
    shop.deliver()
    database.ask("ALTER TABLE orders ADD CHECK (n % 2 = 0)")
    shop.append(*(("orders", n) for n in range(1, 9)), ("visits", 1))
    shop.deliver()
    assert shop.waiting == {"orders": (8, 1)}
    assert shop.rows("visits") == [0, 1]
    assert "PEN-DST-115" in shop.pipeline.ledger.waiting_tables("out")["orders"].reason
    shop.append(("visits", 2), ("orders", 10))
    shop.deliver()
    assert shop.rows("visits") == [0, 1, 2]
    shop.check_books()
    shop.retry()
    assert shop.rows("orders") == [0, 2, 4, 6, 8, 10]
    assert shop.totals == Totals(items=13, loaded=9, failed=4)
    shop.check_books()


def test_the_only_table_of_a_route_gets_the_time_that_it_needs(tmp_path: Path, database: Database) -> None:
    shop = Shop(tmp_path, database, ONE_TABLE)
    shop.append(("orders", 0))
    shop.deliver()
    database.ask("ALTER TABLE orders ADD CHECK (n % 2 = 0)")
    shop.append(*(("orders", n) for n in range(1, 9)))
    shop.deliver()
    assert shop.rows("orders") == [0, 2, 4, 6, 8]
    assert shop.totals == Totals(items=9, loaded=5, failed=4)


def test_so_does_one_while_the_others_wait_too(tmp_path: Path, database: Database) -> None:
    shop = Shop(tmp_path, database)
    shop.append(("orders", 0), ("visits", 0))
    shop.deliver()
    database.ask("ALTER TABLE orders ADD CHECK (n % 2 = 0); ALTER TABLE visits ADD CHECK (n % 2 = 0)")
    shop.append(*((kind, n) for n in range(1, 5) for kind in ("orders", "visits")))
    shop.deliver()
    shop.retry()
    assert (shop.rows("orders"), shop.rows("visits")) == ([0, 2, 4], [0, 2, 4])
    assert shop.totals == Totals(items=10, loaded=6, failed=4)
