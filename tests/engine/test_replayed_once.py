"""A record that failed and was replayed is in the log twice: whatever is moved or put back, it is delivered once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.config.loading import load
from penstock.engine.backup.create_backup import back_up
from penstock.engine.backup.restore_backup import Restored, restore
from penstock.engine.failed.replay import replay
from penstock.engine.failed.selection import Choice, open_entries
from penstock.engine.history.takeover import accept_history, find_conflict, rewind_anyway
from penstock.engine.ledger import Act
from penstock.engine.operate.offset_control import plan_rewind
from penstock.errors import PenstockError
from tests.engine.copies import ONE_ROUTE, OPERATOR, Site
from tests.support.duckdb_file import open_file

BROKEN = ONE_ROUTE.replace("      - where", "      - set: {n.x: 1}\n      - where")


class Shop(Site):
    """A site whose records fail while its config is wrong, and can be replayed when it is fixed."""

    def __init__(self, folder: Path, good: str = ONE_ROUTE, broken: str = BROKEN) -> None:
        super().__init__(folder, good)
        self.good, self.broken = good, broken

    def fail(self, numbers: Iterable[int], worker: int = 0) -> None:
        self.write(self.broken)
        self.append(numbers, worker=worker)
        assert self.deliver() == ""
        self.write(self.good)

    def replay(self, ids: Sequence[int] = (), not_delivered: bool = False) -> int:
        pipeline = self.open()
        try:
            chosen = list(open_entries(pipeline, Choice("a", ids=frozenset(ids))))
            return replay("a", chosen, pipeline.log, pipeline.ledger, not_delivered)
        finally:
            pipeline.ledger.close()

    def rewind(self, to: int, partition: int) -> None:
        pipeline = self.open()
        try:
            stretches = plan_rewind(pipeline, "a", to, partition)
            rewind_anyway(pipeline, "a", stretches, OPERATOR, find_conflict(pipeline, "a"))
        finally:
            pipeline.ledger.close()

    def back_up(self) -> None:
        pipeline = self.open()
        try:
            back_up(pipeline, self.folder / "backup")
        finally:
            pipeline.ledger.close()

    def restore(self) -> Restored:
        return restore(load(self.folder / "pipeline.yaml"), self.folder / "backup", OPERATOR, force=True)

    def empty(self) -> None:
        (self.folder / "warehouse.duckdb").unlink()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def follow(shop: Shop, advice: str) -> None:
    """Do what is printed, to the letter."""
    for to, partition in re.findall(r"penstock offset rewind a --to (\d+) --partition (\d+)", advice):
        shop.rewind(int(to), int(partition))


def wanted(*ranges: range) -> list[int]:
    return sorted(n for numbers in ranges for n in numbers if n % 10 != 9)


def test_what_a_restore_advises_beside_an_emptied_destination_delivers_each_record_once(shop: Shop) -> None:
    shop.append(range(30))
    shop.append(range(100, 130), worker=1)
    assert shop.deliver() == ""
    shop.fail(range(30, 40))
    shop.fail(range(130, 140), worker=1)
    assert shop.replay() == 20
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(40), range(100, 140))
    shop.back_up()
    shop.empty()
    (route,) = shop.restore().routes
    assert "lacks 72 rows" in route.missing
    follow(shop, route.missing)
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(40), range(100, 140))


@pytest.mark.parametrize("places", [[(0, 0), (0, 1)], [(0, 1), (0, 0)]], ids=["copies last", "copies first"])
def test_a_rewind_of_records_and_of_their_copies_delivers_each_once(shop: Shop, places: list[tuple[int, int]]) -> None:
    shop.fail(range(10))
    shop.replay()
    assert shop.deliver() == ""
    shop.empty()
    for to, partition in places:
        shop.rewind(to, partition)
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(10))


def test_a_copy_that_is_not_delivered_yet_is_passed_over_if_its_original_comes_again(shop: Shop) -> None:
    shop.fail(range(10))
    shop.replay()
    shop.rewind(0, partition=0)
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(10))


def test_copies_whose_originals_do_not_come_again_are_delivered(shop: Shop) -> None:
    shop.fail(range(10))
    shop.replay()
    assert shop.deliver() == ""
    shop.empty()
    shop.rewind(4, partition=0)
    shop.rewind(0, partition=1)
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(10))


def test_what_failed_again_is_delivered_once_from_its_copies_too(shop: Shop) -> None:
    shop.fail(range(10))
    shop.replay()
    shop.fail([])
    assert shop.replay() == 10
    assert shop.deliver() == ""
    shop.empty()
    shop.rewind(0, partition=1)
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(10))
    shop.empty()
    shop.rewind(0, partition=1)
    shop.rewind(0, partition=0)
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(10))


def test_a_destination_that_is_only_older_gets_the_copies_of_what_it_was_never_sent(shop: Shop) -> None:
    shop.append(range(20, 40))
    assert shop.deliver() == ""
    shop.fail(range(10))
    older = (shop.folder / "warehouse.duckdb").read_bytes()
    shop.append(range(40, 50))
    assert shop.deliver() == ""
    shop.fail(range(10, 20))
    shop.replay()
    assert shop.deliver() == ""
    shop.back_up()
    (shop.folder / "warehouse.duckdb").write_bytes(older)
    (route,) = shop.restore().routes
    assert "--partition 1" in route.missing
    follow(shop, route.missing)
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(50))


def test_copies_are_delivered_where_retention_has_taken_their_originals(tmp_path: Path) -> None:
    kept = "log: {segment_bytes: 4KB, retention: {max_age: 1ms}}\nsources:"
    shop = Shop(tmp_path, *(text.replace("sources:", kept) for text in (ONE_ROUTE, BROKEN)))
    shop.fail(range(10))
    shop.replay()
    # Retention takes closed segments only, so it leaves the copies, which are few.
    shop.append(range(10, 400))
    assert shop.deliver() == ""
    shop.append(range(400, 410))
    assert shop.deliver() == ""
    pipeline = shop.open()
    time.sleep(0.01)
    assert pipeline.log.apply_retention(pipeline.floors(), datetime.now(UTC))
    first = pipeline.log.first_offset(0)
    pipeline.ledger.close()
    assert 10 <= first < 410
    shop.back_up()
    shop.empty()
    (route,) = shop.restore().routes
    assert "The log no longer has all of them" in route.missing
    follow(shop, route.missing)
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(10), range(first, 410))


def test_delivering_everything_again_without_the_ledger_delivers_each_record_once(shop: Shop) -> None:
    shop.append(range(10))
    assert shop.deliver() == ""
    shop.fail(range(10, 20))
    shop.replay()
    assert shop.deliver() == ""
    (shop.data / "ledger.db").unlink()
    assert "penstock offset rewind a --to 1970-01-01" in shop.deliver()
    with open_file(shop.folder / "warehouse.duckdb") as connection:
        connection.execute("DELETE FROM events")
    pipeline = shop.open()
    assert plan_rewind(pipeline, "a", datetime(1970, 1, 1, tzinfo=UTC), None) == []
    accept_history(pipeline, "a", OPERATOR, Act.REWIND)
    pipeline.ledger.close()
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(20))


# An older copy beside a destination that has replayed records


@pytest.mark.parametrize("replayed_before", [False, True])
def test_what_was_replayed_after_the_backup_is_not_replayed_again_unasked(shop: Shop, replayed_before: bool) -> None:
    shop.append(range(20))
    assert shop.deliver() == ""
    shop.fail(range(20, 40))
    if replayed_before:
        shop.replay([0, 1])
        assert shop.deliver() == ""
    shop.back_up()
    shop.replay()
    assert shop.deliver() == ""
    (route,) = shop.restore().routes
    assert f"has {18 if replayed_before else 20} replayed records that this log does not have" in route.replayed
    assert shop.deliver() == ""
    with pytest.raises(PenstockError, match=r"PEN-FLD-002.*failed drop --route a.*--not-delivered"):
        shop.replay()
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(40))
    # What fails from now on cannot have been replayed.
    shop.fail(range(40, 50))
    assert shop.replay(range(20, 30)) == 10
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(50))


def test_who_has_looked_can_replay_what_is_in_doubt(shop: Shop) -> None:
    shop.append(range(10))
    assert shop.deliver() == ""
    shop.fail(range(10, 20))
    shop.back_up()
    shop.replay([0, 1, 2])
    assert shop.deliver() == ""
    shop.restore()
    assert shop.deliver() == ""
    with pytest.raises(PenstockError, match="PEN-FLD-002"):
        shop.replay([7])
    assert shop.replay(range(3, 10), not_delivered=True) == 7
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(20))


def test_records_that_fail_again_while_they_are_adopted_are_in_doubt_too(shop: Shop) -> None:
    shop.append(range(10))
    assert shop.deliver() == ""
    shop.append(range(10, 20))
    shop.back_up()
    shop.fail([])
    shop.replay()
    assert shop.deliver() == ""
    assert "10 replayed records" in shop.restore().routes[0].replayed
    shop.fail([])
    with pytest.raises(PenstockError, match="PEN-FLD-002"):
        shop.replay()


def test_a_restore_after_which_nothing_was_replayed_asks_nobody_to_look(shop: Shop) -> None:
    shop.append(range(10))
    assert shop.deliver() == ""
    shop.fail(range(10, 20))
    shop.back_up()
    shop.append(range(20, 30))
    assert shop.deliver() == ""
    assert shop.restore().routes[0].replayed == ""
    assert shop.deliver() == ""
    assert shop.replay() == 10
    assert shop.deliver() == ""
    assert shop.rows() == wanted(range(30))
