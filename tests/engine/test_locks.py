"""The ledger's locks, over processes: held as long as the holder lives, taken over when it was killed, never shared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.destinations.contract import HeldLock
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.errors import TransientError
from penstock.testing.waiting import HANG, eventually

LEASE = 1.5

_HOLDER = f"""
import sys
import time
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.engine.ledger import Ledger
from penstock.errors import TransientError
try:
    with RouteBook(Ledger.open(sys.argv[1], "shop"), "warehouse", lease={LEASE}).lock("events"):
        print("held", flush=True)
        sys.stdin.readline()
    print("freed", flush=True)
except TransientError as error:
    print(error.code, flush=True)
"""


class Place:
    def __init__(self, folder: Path) -> None:
        self.url = sqlite_url(folder / "ledger.db")
        self.ledger = Ledger.open(self.url, "shop")

    def book(self, patience: float) -> RouteBook:
        return RouteBook(self.ledger, "warehouse", patience, LEASE)

    @contextmanager
    def holder(self) -> Iterator[subprocess.Popen[str]]:
        """Another process that has the lock, until it is sent a line."""
        command = [sys.executable, "-c", _HOLDER, self.url]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def holders(self) -> list[str]:
        with self.ledger.reading() as connection:
            return list(connection.execute(sa.select(self.ledger.names.locks.c.holder)).scalars())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_lock_is_held_for_longer_than_its_lease_and_free_when_its_holder_is_done(place: Place) -> None:
    with place.holder() as holder:
        wanted = place.book(patience=2 * LEASE).lock("events")
        with pytest.raises(TransientError, match="another engine holds the lock on 'events'"), wanted:
            pass
        assert holder.communicate("done\n", timeout=HANG)[0] == "freed\n"
    with place.book(patience=0).lock("events"):
        assert len(place.holders()) == 1
    assert place.holders() == []


def test_a_lock_whose_holder_was_killed_is_taken_over_after_the_lease(place: Place) -> None:
    with place.holder() as holder:
        (before,) = place.holders()
        holder.kill()
        holder.wait()
        with place.book(patience=30).lock("events"):
            assert place.holders() != [before]


def test_a_holder_that_lost_its_lock_says_so_at_the_end_and_leaves_the_new_holder_alone(place: Place) -> None:
    with place.holder() as holder:
        with place.ledger.writing() as connection:
            connection.execute(sa.delete(place.ledger.names.locks))
        with place.book(patience=30).lock("events"):
            mine = place.holders()
            assert holder.communicate("done\n", timeout=HANG)[0] == "PEN-LGR-009\n"
            assert place.holders() == mine


def test_who_holds_a_lock_knows_that_it_is_lost_before_another_one_has_it(place: Place) -> None:
    with suppress(TransientError), place.book(patience=0).lock("events") as held:
        assert not _is_lost(held)
        with place.ledger.writing() as connection:
            connection.execute(sa.delete(place.ledger.names.locks))
        eventually(lambda: _is_lost(held), "the holder knows")


def test_who_cannot_renew_a_lock_takes_it_for_lost_before_its_lease_is_over(place: Place) -> None:
    with place.book(patience=0).lock("events") as held:
        with place.ledger.writing() as connection:
            connection.execute(sa.text("ALTER TABLE locks RENAME TO locks_away"))
        eventually(lambda: _is_lost(held), "the holder knows")
        with place.ledger.writing() as connection:
            connection.execute(sa.text("ALTER TABLE locks_away RENAME TO locks"))
        eventually(lambda: not _is_lost(held), "it is renewed")


def _is_lost(held: HeldLock) -> bool:
    try:
        held.check()
    except TransientError:
        return True
    return False


def test_work_that_fails_under_the_lock_frees_it_and_keeps_its_own_error(place: Place) -> None:
    with pytest.raises(ZeroDivisionError), place.book(patience=0).lock("events"):
        raise ZeroDivisionError
    assert place.holders() == []


def test_a_lock_is_renewed_again_when_the_ledger_is_back(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.book(patience=0).lock("events"):
        with place.ledger.writing() as connection:
            connection.execute(sa.text("ALTER TABLE locks RENAME TO locks_away"))
        eventually(lambda: "the lock on 'events' was not renewed" in caplog.text, "a renewal fails")
        with place.ledger.writing() as connection:
            connection.execute(sa.text("ALTER TABLE locks_away RENAME TO locks"))
        before = _until(place)
        eventually(lambda: _until(place) > before, "the lock is renewed")
    assert place.holders() == []


def _until(place: Place) -> float:
    with place.ledger.reading() as connection:
        found: float = connection.execute(sa.select(place.ledger.names.locks.c.until)).scalar_one()
        return found
