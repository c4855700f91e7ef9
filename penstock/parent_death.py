"""Asking the kernel for a signal when the parent process dies. Linux only; elsewhere nothing is asked."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def ask_for(number: signal.Signals) -> None:
    """Have this process sent the signal when the thread that started it is gone. Who died before is not noticed."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
