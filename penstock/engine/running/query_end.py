"""Why a query of Spark has ended. Spark hands on what a batch raised as text only."""

from __future__ import annotations

from sqlalchemy.exc import OperationalError

from penstock.engine.delivery.batch_writer import Stopped
from penstock.errors import LedgerUnavailable, TransientError

TRANSIENT = (TransientError, LedgerUnavailable, OperationalError)
"""Errors that pass when the database is available again."""


class BeginAnew(Stopped):
    """Leaves a batch of Spark, which runs it again."""


class Cause:
    """Noted by who ends a query from within, taken by who has started it."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def note(self, error: Exception) -> None:
        self._error = error

    def take(self) -> Exception | None:
        error, self._error = self._error, None
        return error


def reason_of(error: BaseException) -> str:
    """The line of an error that says what happened, without the stack traces that Spark adds."""
    text = str(error)
    marks = [line.strip() for line in text.splitlines() if "PEN-" in line]
    if marks:
        return marks[-1][marks[-1].index("PEN-") :]
    _, traced, trace = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in trace.splitlines() if line.strip() and not (traced and line.startswith(" "))]
    name = type(error).__name__
    if not lines:
        return name
    return (lines[0] if traced else f"{name}: {lines[0].strip()}")[:500]
