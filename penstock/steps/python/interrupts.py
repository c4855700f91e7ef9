"""Telling a person's Ctrl-C from a ``KeyboardInterrupt`` that a user's function raises by itself."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """``heard`` says whether the signal came inside the block. A function that raises ``KeyboardInterrupt`` without it
    has failed like any other."""

    def __init__(self) -> None:
        self.heard = False
        self._listens = False

    def __enter__(self) -> Self:
        # Signals reach the main thread alone, and who has a handler of their own hears them.
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._hear)
            self._listens = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        raise KeyboardInterrupt
