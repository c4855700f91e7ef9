"""Which step this process is in, told before each one, so that it can be named if the process does not survive it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_tell: Callable[[str], None] | None = None


def entering(label: str) -> None:
    """Called before a step gets records. Costs nothing where nobody listens."""
    if _tell is not None:
        _tell(label)


@contextmanager
def told_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Inside, every step that is entered is told. A process runs one task at a time, so there is one listener."""
    global _tell
    before, _tell = _tell, listener
    try:
        yield
    finally:
        _tell = before
