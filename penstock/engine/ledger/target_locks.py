"""Locks that hold over all processes and machines that share the ledger, for targets that have none of their own.

A lock is a lease which its holder renews for as long as it lives, however long its work takes. If the holder is killed,
the lock is free after the lease. A holder that lost its lock all the same (its machine was suspended, say) gets an
error at the end, so that its work is done again.

No clock of one machine is compared with another's, or with itself before it was set: whoever wants the lock watches
whether it is renewed, and measures for how long it was not.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from penstock.destinations.contract import HeldLock
from penstock.engine import events
from penstock.engine.ledger.database import Database
from penstock.errors import TransientError

LEASE = 120.0
SAFE_SHARE = 0.8
"""Of a lease: a holder that could not renew it for so long stops before another takes it over."""
_LOOK_EVERY = 0.05


_Renewal = tuple[str, float]
"""The holder of a lock and the number that it changes for as long as it lives."""


class Sightings:
    """How long this process has seen a lock unchanged. Kept over several attempts to take it."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[_Renewal, float]] = {}

    def unchanged_for(self, lock: tuple[str, str], found: _Renewal | None, now: float) -> float:
        """Seconds, by a monotonic clock, for which the lock was seen unchanged; 0 if it is free."""
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
def hold_lock(ledger: Database, name: str, patience: float, lease: float = LEASE) -> Iterator[HeldLock]:
    """Wait for the lock, for ``patience`` seconds at most, and hold it. Raises ``TransientError`` if it was not free in
    that time, and at the end if another engine took it meanwhile."""
    claim = _Claim(ledger, name, uuid.uuid4().hex, lease)
    deadline = time.monotonic() + patience
    while not claim.take():
        if time.monotonic() > deadline:
            raise TransientError(
                "PEN-LGR-010",
                f"another engine holds the lock on '{name}'.",
                "Let it finish, or stop it: one engine at a time loads a destination.",
            )
        time.sleep(_LOOK_EVERY)
    done = threading.Event()
    renewing = threading.Thread(target=claim.renew_until, args=(done,), name=f"lock-{name}", daemon=True)
    renewing.start()
    try:
        yield claim
    except BaseException:
        done.set()
        renewing.join()
        # The original error matters more; after the lease the lock is free anyway.
        with suppress(SQLAlchemyError):
            claim.free()
        raise
    done.set()
    renewing.join()
    if not claim.free():
        raise claim.lost


@dataclass
class _Claim(HeldLock):
    ledger: Database
    name: str
    holder: str
    lease: float
    _renewed_at: float = field(default=float("-inf"), init=False)
    """By a monotonic clock, before the ledger was told: nobody else has the lock for a lease from then on."""

    def check(self) -> None:
        if time.monotonic() - self._renewed_at >= SAFE_SHARE * self.lease:
            raise self.lost

    @property
    def lost(self) -> TransientError:
        return TransientError(
            "PEN-LGR-009",
            f"the lock on '{self.name}' went to another engine before the work under it was done.",
            "Let it finish, or stop it: one engine at a time loads a destination.",
        )

    def take(self) -> bool:
        locks, now = self.ledger.names.locks, time.monotonic()
        abandoned = self._expired_renewal()
        try:
            with self.ledger.writing() as connection:
                if abandoned is not None:
                    holder, until = abandoned
                    connection.execute(sa.delete(locks).filter_by(name=self.name, holder=holder, until=until))
                connection.execute(
                    sa.insert(locks).values(name=self.name, holder=self.holder, until=self._next_renewal())
                )
        except IntegrityError:
            return False
        self._renewed_at = now
        return True

    def _expired_renewal(self) -> _Renewal | None:
        """The holder that has not renewed the lock for a lease, as far as this process has seen."""
        locks = self.ledger.names.locks
        with self.ledger.reading() as connection:
            row = connection.execute(sa.select(locks.c.holder, locks.c.until).filter_by(name=self.name)).first()
        found = None if row is None else (str(row.holder), float(row.until))
        unchanged = _SIGHTINGS.unchanged_for((self.ledger.scope, self.name), found, time.monotonic())
        return found if unchanged > self.lease else None

    def _next_renewal(self) -> float:
        """A new number each time. Engines of earlier versions take it for the time when the lock is free."""
        return time.time() + self.lease

    def renew_until(self, done: threading.Event) -> None:
        """Renew until ``done``. ``free`` tells whether the lock was lost: it only deletes a row that is still ours."""
        locks = self.ledger.names.locks
        while not done.wait(self.lease / 3):
            now = time.monotonic()
            try:
                with self.ledger.writing() as connection:
                    mine = sa.update(locks).filter_by(name=self.name, holder=self.holder)
                    found = connection.execute(mine.values(until=self._next_renewal())).rowcount
                self._renewed_at = now if found else float("-inf")
            except SQLAlchemyError as error:
                events.lock_not_renewed(self.name, str(getattr(error, "orig", error)))

    def free(self) -> bool:
        """Free the lock; returns whether it was still ours."""
        locks = self.ledger.names.locks
        with self.ledger.writing() as connection:
            mine = connection.execute(sa.delete(locks).filter_by(name=self.name, holder=self.holder))
            return mine.rowcount == 1
