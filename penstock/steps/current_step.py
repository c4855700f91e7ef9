"""Reports the step that this process enters, so that it can be named if the process does not survive it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_tell: Callable[[str], None] | None = None


def enter_step(label: str) -> None:
    """Report that a step is about to get records. Free if nobody listens."""
    if _tell is not None:
        _tell(label)


@contextmanager
def report_steps_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Report every step entered inside the block to ``listener``. There is one: a process runs one task at a time."""
    global _tell
    before, _tell = _tell, listener
    try:
        yield
    finally:
        _tell = before
