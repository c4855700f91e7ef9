"""How much memory a piece of code takes, at most, beyond what its process had before.

Counted is anonymous memory, looked at every few milliseconds: pages of files that are mapped cost nothing that the
kernel could not have back, and the kernel's own high-water mark never falls again in a process that was larger before.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SECONDS = 0.002


class Growth:
    """The most bytes that the process has had beyond those that it began with."""

    def __init__(self) -> None:
        self._before = _anonymous_bytes()
        self.bytes = 0

    def look(self) -> None:
        self.bytes = max(self.bytes, _anonymous_bytes() - self._before)


@contextmanager
def measure_growth() -> Iterator[Growth]:
    """What the block takes; the whole process counts, so nothing else should run in it."""
    _give_back()
    growth, over = Growth(), threading.Event()

    def watch() -> None:
        while not over.wait(_SECONDS):
            growth.look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield growth
        growth.look()
    finally:
        over.set()
        watcher.join()


def _give_back() -> None:
    """Let go of what was freed and kept for later: the block could take it without growing."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)


def _anonymous_bytes() -> int:
    _, resident, of_files, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(of_files)) * _PAGE
