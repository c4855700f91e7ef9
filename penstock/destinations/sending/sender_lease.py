"""One engine at a time sends for a client id: while a request is in flight, this process holds a lock in the ledger."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from penstock.destinations.contract import TableBook

LEASE = 10.0
"""Seconds after which another engine takes over from one that was killed."""


class SenderLease:
    """May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: ExitStack | None = None

    def take(self, book: TableBook) -> None:
        """Hold it, if that is not so yet. Raises ``TransientError`` if another engine does."""
        with self._lock:
            if self._held is None:
                held = ExitStack()
                held.enter_context(book.lock(f"sending:{book.client_id()}", LEASE))
                self._held = held

    def give_back(self) -> None:
        """Raises ``TransientError`` if another engine has it meanwhile: then both may have sent."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held.close()
