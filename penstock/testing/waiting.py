"""Waiting for something to become true, with a deadline and a reason when it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
HANG = 300.0
"""Seconds after which something hangs. What works is done long before, also on a machine that is busy."""
SHARE = 0.1
"""Of a core, for looking: what is waited for needs it, too."""


def eventually(look: Callable[[], Found], what: str, seconds: float = HANG, every: float = 0.05) -> Found:
    """The first true answer of ``look``. Fails with ``what`` and the last answer when time is up."""
    deadline = time.monotonic() + seconds
    while True:
        before = time.thread_time()
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what} (last seen: {answer!r})")
        time.sleep(max(every, min((time.thread_time() - before) / SHARE, 0.5)))
