"""A table waits while its route's past is lost, copied or renamed. On a real PostgreSQL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from penstock import faults
from penstock.engine.backup.create_backup import back_up
from penstock.engine.backup.restore_backup import restore
from penstock.engine.delivery.halts import Halted
from penstock.engine.history.takeover import adopt
from penstock.engine.ledger import Totals
from penstock.engine.operate.offset_control import acknowledge
from penstock.testing.mirror import Source
from tests.engine.copies import OPERATOR
from tests.engine.test_waiting import KINDS, Shop, losing_the_ledger, shop
from tests.support.database import Database

__all__ = ["shop"]

COLUMNS = {"id": "bigint", "name": "text"}


def lose_the_ledger_and_adopt(shop: Shop) -> None:
    losing_the_ledger(shop)
    with pytest.raises(Halted):
        shop.deliver()
    adopt(shop.pipeline, "out", "out", OPERATOR)


def killed(monkeypatch: pytest.MonkeyPatch, point: str, doing: Callable[[], None]) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
        with pytest.raises(faults.InjectedFault):
            doing()


NAMELESS = Source(COLUMNS, key=(), namespace="public.orders")
NAMED = Source(COLUMNS, namespace="public.orders")
VISITS = Source(COLUMNS, namespace="public.visits")


@pytest.fixture
def mirror(tmp_path: Path, database: Database) -> Shop:
    """A table waits for changes between which it gets a key and loses it again: they are applied in three stretches."""
    shop = Shop(tmp_path, database, "load: mirror")
    shop.log(NAMELESS.insert(id=1, name="a"), VISITS.insert(id=1, name="a"))
    shop.deliver()
    with shop.locked("orders"):
        shop.log(
            NAMELESS.insert(id=2, name="b"), VISITS.insert(id=2, name="b"), NAMED.update(id=1, name="c"),
            VISITS.insert(id=3, name="b"), NAMELESS.insert(id=1, name="c"),
        )  # fmt: skip
        shop.deliver()
    return shop


@pytest.mark.parametrize(("later", "nth", "again"), [(0, 1, 0), (0, 2, 0), (1, 1, 1), (1, 2, 0), (2, 3, 0), (2, 1, 2)])
def test_a_mirror_whose_lane_dies_between_two_keys_of_a_table_gets_each_change_once(
    mirror: Shop, monkeypatch: pytest.MonkeyPatch, later: int, nth: int, again: int
) -> None:
    """``again``: after so many further loads the engine that has taken over dies and loses its ledger too."""
    for n in range(later):
        mirror.log(NAMELESS.insert(id=10 + n, name="d"), VISITS.insert(id=10 + n, name="d"))
        mirror.deliver()
    killed(monkeypatch, f"destination.committed@{nth}", mirror.retry)
    lose_the_ledger_and_adopt(mirror)
    if again:
        killed(monkeypatch, f"destination.committed@{again}", mirror.deliver)
        lose_the_ledger_and_adopt(mirror)
    mirror.deliver()
    mirror.retry()
    more = [(10 + n, "d") for n in range(later)]
    assert mirror.database.ask("SELECT id, name FROM orders ORDER BY 1, 2") == [(1, "c"), (1, "c"), (2, "b"), *more]
    assert mirror.database.ask("SELECT id, name FROM visits ORDER BY 1") == [(1, "a"), (2, "b"), (3, "b"), *more]
    mirror.check_books()


@pytest.mark.parametrize(
    ("done", "orders", "loaded"),
    [
        (2, [(1, "c"), (1, "c"), (2, "b")], 3),  # It was written before it was declared done.
        (4, [(1, "a"), (1, "c"), (2, "b")], 2),  # The table has no key in between now.
        (6, [(1, "c"), (2, "b")], 2),
    ],
)
def test_a_change_that_is_declared_done_between_two_keys_takes_no_other_with_it(
    mirror: Shop, monkeypatch: pytest.MonkeyPatch, done: int, orders: list[tuple[int, str]], loaded: int
) -> None:
    killed(monkeypatch, "destination.committed@1", mirror.retry)
    acknowledge(mirror.pipeline, "out", done, done, None, OPERATOR)
    mirror.retry()
    assert mirror.waiting == {}
    assert mirror.database.ask("SELECT id, name FROM orders ORDER BY 1, 2") == orders
    assert mirror.totals == Totals(items=7, loaded=4 + loaded, skipped=3 - loaded)
    assert mirror.pipeline.ledger.account("out").skipped_by == ({"acknowledged": 1} if loaded < 3 else {})
    mirror.check_books()


def test_a_table_without_a_key_gets_no_change_twice_when_a_ledger_is_lost(tmp_path: Path, database: Database) -> None:
    shop = Shop(tmp_path, database, "load: mirror")
    orders = Source(COLUMNS, key=(), namespace="public.orders")
    for n in range(3):
        shop.log(orders.insert(id=n, name="a"))
        shop.deliver()
    lose_the_ledger_and_adopt(shop)
    shop.deliver()
    assert database.ask("SELECT id FROM orders ORDER BY id") == [(0,), (1,), (2,)]


def test_a_ledger_that_is_lost_twice_does_not_double_what_waited(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop.locked("orders"):
        for n in range(1, 6):
            shop.append(("orders", n), ("visits", n))
            shop.deliver()
    lose_the_ledger_and_adopt(shop)
    killed(monkeypatch, "destination.committed@2", shop.deliver)
    lose_the_ledger_and_adopt(shop)
    shop.deliver()
    shop.retry()
    assert shop.rows("orders") == [0, 1, 2, 3, 4, 5]
    assert shop.rows("visits") == [0, 1, 2, 3, 4, 5]


def renamed(shop: Shop, new: str) -> None:
    config = shop.folder / "pipeline.yaml"
    config.write_text(config.read_text().replace(f"  {shop.route}:\n", f"  {new}:\n"))
    shop.reopen()
    adopt(shop.pipeline, shop.route, new, OPERATOR)
    shop.route = new


@pytest.mark.parametrize(
    ("later", "given", "lost"),
    [((), 1, True), (("visits",), 0, True), (("orders",), 1, True), (KINDS, 1, True), (KINDS, 0, False)],
)
def test_a_route_that_is_renamed_while_a_table_waits_keeps_what_it_waits_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, later: Sequence[str], given: int, lost: bool
) -> None:
    """``given``: how many of the parts the table gets under the new name before the ledger is lost."""
    with shop.locked("orders"):
        for n in range(1, 4):
            shop.append(("orders", n), ("visits", n))
            shop.deliver()
    renamed(shop, "new")
    if later:
        shop.append(*((kind, 4) for kind in later))
        shop.deliver()
    if given:
        killed(monkeypatch, f"retry.destination_done@{given}", shop.retry)
    if lost:
        losing_the_ledger(shop)
        with pytest.raises(Halted) as halted:
            shop.deliver()
        advised = re.search(r"penstock offset adopt (\w+)", str(halted.value))
        assert advised is not None
        adopt(shop.pipeline, advised[1], "new", OPERATOR)
    shop.deliver()
    shop.retry()
    assert shop.waiting == {}
    assert shop.rows("orders") == [0, 1, 2, 3, *([4] if "orders" in later else [])]
    assert shop.rows("visits") == [0, 1, 2, 3, *([4] if "visits" in later else [])]
    shop.check_books()


@pytest.mark.parametrize("given", [0, 1, 2])
@pytest.mark.parametrize("later", [False, True])
def test_a_backup_that_is_put_back_gives_a_table_what_it_still_waits_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, given: int, later: bool
) -> None:
    """``given``: how many of two parts the table has got since the backup."""
    with shop.locked("orders"):
        for n in (1, 2):
            shop.append(("orders", n), ("visits", n))
            shop.deliver()
    back_up(shop.pipeline, shop.folder / "backup")
    if given:
        killed(monkeypatch, f"retry.destination_done@{given}", shop.retry)
    if later:
        with shop.locked("orders"):
            shop.append(("visits", 3), ("orders", 3))
            shop.deliver()
    shop.pipeline.ledger.close()
    restored = restore(shop.pipeline.config, shop.folder / "backup", OPERATOR, force=True)
    assert [each.unknown for each in restored.routes] == [""]
    shop.pipeline = shop.open()
    shop.append(("orders", 4), ("visits", 4))
    shop.deliver()
    shop.retry()
    assert shop.waiting == {}
    assert shop.rows("orders") == [0, 1, 2, 4], "what came after the backup is in no log any more"
    assert shop.rows("visits") == [0, 1, 2, *([3] if later else []), 4]
    shop.check_books()


def test_a_ledger_of_before_tables_could_wait_is_opened_and_tables_wait_in_it(shop: Shop) -> None:
    shop.pipeline.ledger.close()
    with closing(sqlite3.connect(shop.folder / "data" / "ledger.db")) as ledger:
        ledger.execute("DROP TABLE waiting")
        ledger.execute("DROP TABLE waiting_offsets")
        ledger.execute("ALTER TABLE adopted DROP COLUMN wanting")
    shop.pipeline = shop.open()
    shop.check_books()
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    assert shop.waiting == {"orders": (1, 1)}
    shop.retry()
    assert shop.rows("orders") == [0, 1]
    lose_the_ledger_and_adopt(shop)
    shop.deliver()
    assert shop.rows("orders") == [0, 1]
    shop.check_books()
