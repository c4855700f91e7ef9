"""A process that did not survive its records, or did not come to an end with them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from penstock.engine.lost_workers.task_note import Trace


class LostCode(StrEnum):
    """Why a record failed that never came out of a step."""

    KILLED_WORKER = "killed_worker"
    TIMED_OUT = "timed_out"


class WorkerLost(Exception):
    """The process that carried some records has ended without a word, or was ended because it took too long."""

    def __init__(self, step: str, code: LostCode, what: str) -> None:
        super().__init__(step, code, what)
        self.step = step
        self.code = code
        self.what = what

    def __str__(self) -> str:
        return f"step '{self.step}' {self.what}" if self.step else self.what


STALLED = "penstock: stalled"
"""Spark is given this as the reason when we cancel a job that does not move any more."""

NO_CONNECTION = "Python worker failed to connect back"
"""What Spark says of a Python process that took longer to start than it waits."""

_SIGNS = (
    "Python worker exited unexpectedly",
    NO_CONNECTION,
    "java.io.EOFException",
    "Connection reset",
    "Broken pipe",
    "ExecutorLostFailure",
    STALLED,
)
"""What Spark says when a Python worker is gone. A step that raises is another matter: its process lives."""


def lost_worker(error: BaseException, traces: Sequence[Trace]) -> WorkerLost | None:
    """What a job that Spark gave up says, if it is that a worker was lost. ``traces`` are the notes of its tasks."""
    text = str(error)
    hung = traces[0] if traces and traces[0].hung_at else None
    if hung is not None:
        return WorkerLost(hung.step, LostCode.TIMED_OUT, f"took too long, at {hung.hung_at}")
    if not any(sign in text for sign in _SIGNS):
        return None
    step = traces[0].step if traces else ""
    if STALLED in text:
        return WorkerLost(step, LostCode.TIMED_OUT, "does not go on")
    return WorkerLost(step, LostCode.KILLED_WORKER, "ended its process")
