"""Delays signals while something is done that must not be interrupted."""

from __future__ import annotations

import signal


class HeldSignals:
    """From its creation, SIGINT and SIGTERM wait until ``release``: then they act as usual.

    Blocking them would not do: another thread of the process takes them then, and Python handles them all the same.
    """

    def __init__(self) -> None:
        self._came: list[int] = []
        self._before = {
            number: signal.signal(number, lambda came, _: self._came.append(came))
            for number in (signal.SIGINT, signal.SIGTERM)
        }

    def release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for came in self._came:
            signal.raise_signal(came)
