"""Locks that hold over all processes and machines that share the ledger, for targets that have none of their own.

A lock is a lease which its holder renews for as long as it lives, however long its work takes. Of a holder that was
killed it is free after the lease. A holder that lost its lock all the same (its machine stood still, say) is told at
the end, so that its work is done again and not taken for whole. Clocks must agree to well within a lease.
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

from penstock.engine import narrate
from penstock.engine.ledger.database import Database
from penstock.errors import TransientError

LEASE = 120.0
_LOOK_EVERY = 0.05


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
        locks, now = self.ledger.names.locks, time.time()
        try:
            with self.ledger.writing() as connection:
                connection.execute(sa.delete(locks).where(locks.c.name == self.name, locks.c.until < now))
                connection.execute(sa.insert(locks).values(name=self.name, holder=self.holder, until=now + self.lease))
        except IntegrityError:
            return False
        return True

    def renew_until(self, done: threading.Event) -> None:
        """Whether the lock was lost meanwhile shows when it is freed: only a row that is still ours can be."""
        locks = self.ledger.names.locks
        while not done.wait(self.lease / 3):
            try:
                with self.ledger.writing() as connection:
                    mine = sa.update(locks).filter_by(name=self.name, holder=self.holder)
                    connection.execute(mine.values(until=time.time() + self.lease))
            except SQLAlchemyError as error:
                narrate.lock_not_renewed(self.name, str(getattr(error, "orig", error)))

    def free(self) -> bool:
        """Returns whether it was still ours."""
        locks = self.ledger.names.locks
        with self.ledger.writing() as connection:
            mine = connection.execute(sa.delete(locks).filter_by(name=self.name, holder=self.holder))
            return mine.rowcount == 1
