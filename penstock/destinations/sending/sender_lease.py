"""One engine at a time sends for a client id: while a request is in flight, this process holds a lock in the ledger.

The lock is shared by all that have requests in flight: the batch that is written, and requests that were let go. It is
given back when the last of them is done. Whoever cannot be sure of it any more sends nothing, and ends what is in
flight, before another engine can have it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from penstock.destinations.contract import HeldLock, TableBook
from penstock.errors import TransientError

LEASE = 10.0
"""Seconds after which another engine takes over from one that was killed."""


class SenderLease:
    """May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._held = HeldLock()
        self._open = ExitStack()

    @contextmanager
    def held(self, book: TableBook) -> Iterator[None]:
        """Hold it for a batch. Raises ``TransientError`` if another engine has it, and at the end if another one may
        have had it meanwhile: then both may have sent."""
        with self._lock:
            if self._users == 0:
                self._held = self._open.enter_context(book.lock(f"sending:{book.client_id()}", LEASE))
            self._users += 1
        try:
            yield
            self.check()
        except BaseException:
            # The first error says more.
            with suppress(TransientError):
                self.give_back()
            raise
        self.give_back()

    def share(self) -> None:
        """Hold it for longer than the batch that holds it now: until ``give_back``."""
        with self._lock:
            self._users += 1

    def give_back(self) -> None:
        """Raises ``TransientError`` if another engine has it."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._open.close()

    def check(self) -> None:
        """Raises ``TransientError`` if another engine may have it by now."""
        self._held.check()
