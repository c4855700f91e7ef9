"""Writes units with several threads: each unit by one thread at a time, fairly, and without waiting for slow ones.

A write that takes longer than the patience is let go: it goes on in its thread, what its unit has left waits, and the
batch ends without it. Until such a write has ended its unit is busy. A unit that was slow the last time is not waited
for at all, so it delays the others once, and not with every batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.conflation.bundle import Unit
from penstock.conflation.fair_queue import FairQueue
from penstock.conflation.unit_state import UnitState, Work
from penstock.destinations.state.write_ends import Away, Divided, NotTaken, WriteEnd

_log = logging.getLogger("penstock")

BUSY = "an earlier bundle of its source is still being written"
NO_CONNECTION = "all connections are busy with writes that take long"


class SlowUnits:
    """Which units are slow, from one batch to the next. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slow: set[Unit] = set()
        self._busy: dict[Unit, Work] = {}
        self._ended: list[tuple[Work, WriteEnd]] = []

    def busy(self) -> dict[Unit, Work]:
        """What is being written though its batch has ended."""
        with self._lock:
            return dict(self._busy)

    def take_ended(self) -> list[tuple[Work, WriteEnd]]:
        """How such writes have ended, since this was asked last."""
        with self._lock:
            taken, self._ended = self._ended, []
            return taken

    def is_slow(self, unit: Unit) -> bool:
        """Whether the last write of a unit took longer than the patience."""
        with self._lock:
            return unit in self._slow

    def note_speed(self, unit: Unit, is_slow: bool) -> None:
        with self._lock:
            (self._slow.add if is_slow else self._slow.discard)(unit)

    def let_go(self, work: Work) -> None:
        with self._lock:
            self._slow.add(work.unit)
            self._busy[work.unit] = work

    def end(self, work: Work, end: WriteEnd) -> None:
        """Note how a write has ended that was let go."""
        with self._lock:
            del self._busy[work.unit]
            self._ended.append((work, end))


@dataclass
class PoolResult:
    """What became of the units, beside what each of them knows itself."""

    ended: list[tuple[Work, WriteEnd]] = field(default_factory=list)
    let_go: dict[Unit, Work] = field(default_factory=dict)
    """What is still being written."""
    left: dict[Unit, str] = field(default_factory=dict)
    """Units that were not tried to their end, and why."""
    away: str = ""
    """Why the database cannot be reached; empty if it can."""


@dataclass
class _Running:
    state: UnitState
    work: Work
    since: float


class WriterPool:
    """Used for one batch."""

    def __init__(
        self,
        write: Callable[[Work], WriteEnd],
        workers: int,
        patience: float,
        slow: SlowUnits,
        close: Callable[[], None],
    ) -> None:
        """``write`` is called by several threads, for different units. ``close`` is called once, when the last write
        has ended, also one that was let go."""
        self._write = write
        self._workers = workers
        self._patience = patience
        self._slow = slow
        self._close = close
        self._changed = threading.Condition()
        self._queue: FairQueue[UnitState] = FairQueue()
        self._running: dict[Unit, _Running] = {}
        self._result = PoolResult()
        self._error: BaseException | None = None
        self._threads = 0
        self._awaited = 0
        """Threads that are at work, without those whose write was let go."""
        self._has_returned = False

    def run(self, units: Sequence[UnitState]) -> PoolResult:
        """Write all that is ready. Raises what ``write`` raises, but for ``Away``."""
        busy = self._slow.busy()
        for state in units:
            if state.unit in busy:
                self._result.left[state.unit] = BUSY
            else:
                self._queue.put_back(state)
        with self._changed:
            self._threads = self._awaited = max(0, min(self._workers - len(busy), len(units)))
            for number in range(self._threads):
                threading.Thread(target=self._work, name=f"state-writer-{number}", daemon=True).start()
            while True:
                pause = self._let_go_overdue()
                if not self._awaited:
                    break
                self._changed.wait(pause)
            self._leave_rest()
            self._has_returned = True
            is_last = not self._threads
        if is_last:
            self._close()
        if self._error is not None:
            raise self._error
        return self._result

    def _work(self) -> None:
        is_awaited = True
        while is_awaited and (running := self._begin()) is not None:
            try:
                end: WriteEnd | BaseException = self._write(running.work)
            except BaseException as error:
                end = error
            is_awaited = self._end(running, end)
        with self._changed:
            self._threads -= 1
            self._awaited -= is_awaited
            is_last = self._has_returned and not self._threads
            self._changed.notify_all()
        if is_last:
            self._close()

    def _begin(self) -> _Running | None:
        """What to write next; waits while a unit that is being written may have more. ``None`` at the end."""
        with self._changed:
            while not self._result.away and self._error is None:
                state = self._queue.take()
                if state is None:
                    if not self._running:
                        return None
                    self._changed.wait()
                elif self._slow.is_slow(state.unit) and not self._may_be_slow():
                    self._result.left[state.unit] = NO_CONNECTION
                elif (work := state.begin_next()) is not None:
                    running = self._running[state.unit] = _Running(state, work, time.monotonic())
                    self._changed.notify_all()
                    return running
            return None

    def _may_be_slow(self) -> bool:
        """Whether another slow unit leaves enough connections to the others."""
        begun = sum(self._slow.is_slow(unit) for unit in self._running)
        return begun + len(self._slow.busy()) < max(1, self._workers // 2)

    def _end(self, running: _Running, end: WriteEnd | BaseException) -> bool:
        """Note how a write has ended; returns whether anybody still waits for its thread."""
        unit, work = running.state.unit, running.work
        with self._changed:
            self._slow.note_speed(unit, time.monotonic() - running.since >= self._patience)
            if unit in self._result.let_go:
                # Its state belongs to the batch that has gone on without it.
                match end:
                    case Divided(why):
                        self._slow.end(work, NotTaken(why, 0.0))
                    case WriteEnd():
                        self._slow.end(work, end)
                    case _:
                        self._slow.end(work, NotTaken(str(end), 0.0))
                if isinstance(end, Exception) and not isinstance(end, Away):
                    _log.error("the write of %s of %s has ended with an error", work.kind.name, unit, exc_info=end)
                return False
            del self._running[unit]
            match end:
                case Away():
                    running.state.note_failed(str(end))
                    self._result.away = str(end)
                    self._result.left[unit] = str(end)
                case BaseException():
                    self._error = end
                case Divided():
                    end.tell(running.state)
                    self._queue.put_back(running.state)
                case WriteEnd():
                    end.tell(running.state)
                    self._result.ended.append((work, end))
                    self._queue.put_back(running.state)
            self._changed.notify_all()
            return True

    def _let_go_overdue(self) -> float | None:
        """Let go of writes that take too long. Returns in how many seconds to look again, if no write ends before."""
        now, first = time.monotonic(), None
        for unit, running in list(self._running.items()):
            left = 0.0 if self._slow.is_slow(unit) else running.since + self._patience - now
            if left <= 0:
                self._slow.let_go(running.work)
                self._result.let_go[unit] = running.work
                self._result.left[unit] = BUSY
                del self._running[unit]
                self._awaited -= 1
                self._changed.notify_all()
            elif first is None or left < first:
                first = left
        return None if first is None or first == float("inf") else first

    def _leave_rest(self) -> None:
        why = self._result.away or NO_CONNECTION
        while (state := self._queue.take()) is not None:
            if state.waiting():
                self._result.left[state.unit] = why
