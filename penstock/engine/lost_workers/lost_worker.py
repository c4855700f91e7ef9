"""A worker process that records killed, or that never finished them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from penstock.engine.lost_workers.task_note import UnfinishedTask


class LostCode(StrEnum):
    """Why a record failed that no step returned."""

    KILLED_WORKER = "killed_worker"
    TIMED_OUT = "timed_out"
    RAISED = "raised"


RECORDS_FAULT = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What code raises that was not written for a record. Disks, memory, networks and our own errors are none of these."""


class WorkerLost(Exception):
    """The process of some records ended without an answer, was killed because it took too long, or raised what nobody
    has foreseen."""

    def __init__(self, step: str, code: LostCode, what: str) -> None:
        super().__init__(step, code, what)
        self.step = step
        self.code = code
        self.what = what

    def __str__(self) -> str:
        return f"step '{self.step}' {self.what}" if self.step else self.what


STALLED = "penstock: stalled"
"""The reason given to Spark when we cancel a job that makes no progress."""

NO_CONNECTION = "Python worker failed to connect back"
"""What Spark says when a Python process took too long to start."""

_SIGNS = (
    "Python worker exited unexpectedly",
    NO_CONNECTION,
    "java.io.EOFException",
    "Connection reset",
    "Broken pipe",
    "ExecutorLostFailure",
    STALLED,
)
"""What Spark says when a Python worker is gone. If a step raises, its process lives, and the text is another."""


def lost_worker(error: BaseException, tasks: Sequence[UnfinishedTask]) -> WorkerLost | None:
    """The ``WorkerLost`` behind the error of a Spark job, if a worker was lost. ``tasks`` are those left unfinished."""
    text = str(error)
    hung = tasks[0] if tasks and tasks[0].hung_at else None
    if hung is not None:
        return WorkerLost(hung.step, LostCode.TIMED_OUT, f"took too long, at {hung.hung_at}")
    if not any(sign in text for sign in _SIGNS):
        return None
    step = tasks[0].step if tasks else ""
    if STALLED in text:
        return WorkerLost(step, LostCode.TIMED_OUT, "does not go on")
    return WorkerLost(step, LostCode.KILLED_WORKER, "ended its process")
