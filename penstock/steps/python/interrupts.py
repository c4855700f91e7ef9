"""Telling a person's Ctrl-C from a ``KeyboardInterrupt`` that a user's function raises by itself."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class Interrupts:
    """Hears the signal inside the block, and passes it on to whoever heard it before."""

    def __init__(self) -> None:
        self._heard = False
        self._before: signal._HANDLER = None

    def __enter__(self) -> Self:
        # Signals reach the main thread alone.
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def caused(self, error: BaseException) -> bool:
        """Whether a person is behind it. A function that raises ``KeyboardInterrupt`` by itself has failed like any
        other."""
        return self._heard and isinstance(error, KeyboardInterrupt)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard = True
        if callable(self._before):
            self._before(number, frame)
