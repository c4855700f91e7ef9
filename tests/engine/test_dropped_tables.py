"""A table that was filled is dropped at the destination: a mirror is not made again from what happens to change, and a
plain table not without a word. On a real PostgreSQL."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.task import stage_ranges
from penstock.testing.mirror import Source
from tests.engine.test_waiting import Shop
from tests.support.database import Database

COLUMNS = {"id": "bigint", "name": "text"}
ORDERS = Source(COLUMNS, namespace="public.orders")
VISITS = Source(COLUMNS, namespace="public.visits")


@pytest.fixture
def mirror(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Two mirrored tables, one of which is dropped and has a change to come."""
    monkeypatch.chdir(tmp_path)
    shop = Shop(tmp_path, database, "load: mirror")
    shop.log(*(ORDERS.insert(id=n, name="old") for n in range(5)), VISITS.insert(id=1, name="v"))
    shop.deliver()
    database.ask("DROP TABLE orders")
    shop.log(ORDERS.update(id=1, name="new"))
    return shop


def halted(shop: Shop) -> str:
    with pytest.raises(Halted) as found:
        shop.deliver()
    return str(found.value)


def run_verb(shop: Shop, line: str) -> None:
    shop.pipeline.ledger.close()
    ran = CliRunner().invoke(app, [*line.removeprefix("penstock ").split(), "--yes"])
    assert ran.exit_code == 0, ran.stderr
    shop.pipeline = shop.open()


def orders(shop: Shop) -> list[tuple[int, str]]:
    return [(id, name) for id, name in shop.database.ask("SELECT id, name FROM orders ORDER BY 1")]


def test_a_mirror_that_lost_a_table_halts_and_all_of_it_comes_again(mirror: Shop) -> None:
    said = halted(mirror)
    assert "PEN-RTE-026" in said
    assert "the table orders" in said
    assert mirror.database.ask("SELECT to_regclass('orders')") == [(None,)]
    (verb,) = re.findall(r"(penstock offset rewind out --to 1970-01-01)", said)
    run_verb(mirror, verb)
    mirror.deliver()
    assert orders(mirror) == [(0, "old"), (1, "new"), (2, "old"), (3, "old"), (4, "old")]
    assert mirror.database.ask("SELECT id FROM visits") == [(1,)]


def test_a_mirror_goes_on_once_its_table_is_back(mirror: Shop) -> None:
    halted(mirror)
    mirror.database.ask("CREATE TABLE orders (id bigint PRIMARY KEY, name text); INSERT INTO orders VALUES (1, 'old')")
    mirror.deliver()
    assert orders(mirror) == [(1, "new")]


def test_an_operator_can_go_on_without_the_rows(mirror: Shop) -> None:
    (verb,) = re.findall(r"without them: (penstock .*)", halted(mirror))
    run_verb(mirror, verb)
    mirror.deliver()
    mirror.log(ORDERS.insert(id=9, name="later"))
    mirror.deliver()
    assert orders(mirror) == [(1, "new"), (9, "later")]


def test_a_mirror_that_runs_notices_it_at_the_table_s_next_change(mirror: Shop) -> None:
    mirror.database.ask("CREATE TABLE orders (id bigint PRIMARY KEY, name text)")
    delivery = mirror.delivery
    delivery.check_history()
    mirror.database.ask("DROP TABLE orders")
    with pytest.raises(Halted, match=r"PEN-RTE-026.*the table orders"):
        delivery.deliver(stage_ranges(delivery.plan, mirror.pipeline.log, {0: (6, 7)}))
    assert mirror.database.ask("SELECT to_regclass('orders')") == [(None,)]


def test_a_copy_that_begins_with_a_truncate_makes_the_table_again(mirror: Shop) -> None:
    (verb,) = re.findall(r"without them: (penstock .*)", halted(mirror))
    run_verb(mirror, verb)
    mirror.log(ORDERS.truncate(), *(ORDERS.insert(id=n, name="copied") for n in range(3)))
    mirror.deliver()
    assert orders(mirror) == [(n, "copied") for n in range(3)]


def test_a_table_without_rows_was_never_there(tmp_path: Path, database: Database) -> None:
    shop = Shop(tmp_path, database, "load: mirror")
    shop.log(ORDERS.truncate(), ORDERS.delete(id=1))
    shop.deliver()
    shop.log(ORDERS.insert(id=1, name="first"))
    shop.deliver()
    assert orders(shop) == [(1, "first")]


def test_a_plain_table_is_made_again_with_a_warning(
    tmp_path: Path, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(tmp_path, database)
    shop.append(("orders", 1))
    with caplog.at_level(logging.WARNING):
        shop.deliver()
        assert "made again" not in caplog.text
        database.ask("DROP TABLE orders")
        shop.append(("orders", 2))
        shop.deliver()
    assert "table 'orders', which had rows" in caplog.text
    assert database.ask("SELECT n FROM orders") == [(2,)]
