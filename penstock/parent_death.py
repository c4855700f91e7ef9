"""Requests a signal from the kernel for when the parent process dies. Linux only; does nothing elsewhere."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def request_death_signal(number: signal.Signals) -> None:
    """Request the signal for when the thread that started this process ends. Does not notice one that ended before."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
