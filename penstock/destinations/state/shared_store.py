"""A database that is open as long as anybody uses it: a batch, and the writes that go on after the batch has ended."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from penstock.destinations.state.store.contract import StateStore


class SharedStore:
    """Has one user at first, who made it. May be used by several threads."""

    def __init__(self, database: AbstractContextManager[StateStore]) -> None:
        """Raises ``TransientError`` if the database cannot be reached."""
        self._database = database
        self._users = 1
        self._lock = threading.Lock()
        self.store = database.__enter__()

    def share(self) -> None:
        """Count one more user."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Count one less; the last one closes the database."""
        with self._lock:
            self._users -= 1
            is_last = not self._users
        if is_last:
            self._database.__exit__(None, None, None)
