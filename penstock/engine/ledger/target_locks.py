"""Locks that hold over all processes and machines that share the ledger, for targets that have none of their own.

A lock is a lease which its holder renews for as long as it lives, however long its work takes. Of a holder that was
killed it is free after the lease. A holder that lost its lock all the same (its machine stood still, say) is told at
the end, so that its work is done again and not taken for whole.

No clock of one machine is compared with another's, or with what it was before it was set: who wants the lock sees
whether it is renewed, and measures by itself for how long it was not.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from penstock.engine import events
from penstock.engine.ledger.database import Database
from penstock.errors import TransientError

LEASE = 120.0
_LOOK_EVERY = 0.05


_Renewal = tuple[str, float]
"""The holder of a lock and the number that it puts there anew as long as it lives."""


class Sightings:
    """Since when this process has seen a lock as it is. Kept over several tries to get it."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[_Renewal, float]] = {}

    def unchanged_for(self, lock: tuple[str, str], found: _Renewal | None, now: float) -> float:
        """Seconds, by a clock that nobody sets, for which the lock was seen like this; none if it is free."""
        if found is None:
            self._seen.pop(lock, None)
            return 0.0
        before, since = self._seen.get(lock, (found, now))
        if before != found:
            since = now
        self._seen[lock] = (found, since)
        return now - since


_SIGHTINGS = Sightings()


@contextmanager
def held(ledger: Database, name: str, patience: float, lease: float = LEASE) -> Iterator[None]:
    """Wait for the lock, for ``patience`` seconds at most, and hold it. Raises ``TransientError`` if it was not to be
    had in that time, and at the end if somebody else had it meanwhile."""
    claim = _Claim(ledger, name, uuid.uuid4().hex, lease)
    deadline = time.monotonic() + patience
    while not claim.take():
        if time.monotonic() > deadline:
            raise TransientError(
                "PEN-LGR-010", f"another engine holds the lock on '{name}'.", "The batch is tried again."
            )
        time.sleep(_LOOK_EVERY)
    done = threading.Event()
    renewing = threading.Thread(target=claim.renew_until, args=(done,), name=f"lock-{name}", daemon=True)
    renewing.start()
    try:
        yield
    except BaseException:
        done.set()
        renewing.join()
        # What went wrong is worth more than this; after the lease it is free anyway.
        with suppress(SQLAlchemyError):
            claim.free()
        raise
    done.set()
    renewing.join()
    if not claim.free():
        raise TransientError(
            "PEN-LGR-009",
            f"the lock on '{name}' went to another engine before the work under it was done.",
            "The batch is tried again.",
        )


@dataclass(frozen=True)
class _Claim:
    ledger: Database
    name: str
    holder: str
    lease: float

    def take(self) -> bool:
        locks = self.ledger.names.locks
        abandoned = self._abandoned()
        try:
            with self.ledger.writing() as connection:
                if abandoned is not None:
                    holder, until = abandoned
                    connection.execute(sa.delete(locks).filter_by(name=self.name, holder=holder, until=until))
                connection.execute(sa.insert(locks).values(name=self.name, holder=self.holder, until=self._renewed()))
        except IntegrityError:
            return False
        return True

    def _abandoned(self) -> _Renewal | None:
        """Who holds the lock and has not renewed it for a lease, as far as this process has seen."""
        locks = self.ledger.names.locks
        with self.ledger.reading() as connection:
            row = connection.execute(sa.select(locks.c.holder, locks.c.until).filter_by(name=self.name)).first()
        found = None if row is None else (str(row.holder), float(row.until))
        unchanged = _SIGHTINGS.unchanged_for((self.ledger.scope, self.name), found, time.monotonic())
        return found if unchanged > self.lease else None

    def _renewed(self) -> float:
        """A number that is another one each time. Engines of earlier versions take it for the time when it is free."""
        return time.time() + self.lease

    def renew_until(self, done: threading.Event) -> None:
        """Whether the lock was lost meanwhile shows when it is freed: only a row that is still ours can be."""
        locks = self.ledger.names.locks
        while not done.wait(self.lease / 3):
            try:
                with self.ledger.writing() as connection:
                    mine = sa.update(locks).filter_by(name=self.name, holder=self.holder)
                    connection.execute(mine.values(until=self._renewed()))
            except SQLAlchemyError as error:
                events.lock_not_renewed(self.name, str(getattr(error, "orig", error)))

    def free(self) -> bool:
        """Returns whether it was still ours."""
        locks = self.ledger.names.locks
        with self.ledger.writing() as connection:
            mine = connection.execute(sa.delete(locks).filter_by(name=self.name, holder=self.holder))
            return mine.rowcount == 1
