"""Writes units with several threads: each unit by one thread at a time, fairly, and without waiting for slow ones.

A write that takes longer than the patience is let go: it goes on in its thread, what its unit has left waits, and the
batch ends without it. Until such a write has ended its unit is busy. A unit that was slow the last time is not waited
for at all, so it delays the others once, and not with every batch.

Where more units wait than there are threads, a thread takes several whose next bundles are small and of one kind, and
writes them together. If something of them is not taken, each of them is tried by itself.
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
from penstock.destinations.state.writing.joined_writes import JoinedWrites
from penstock.destinations.state.writing.write_ends import Away, Divided, NotTaken, Separated, WriteEnd

_log = logging.getLogger("penstock")

BUSY = "an earlier bundle of its source is still being written"
NO_CONNECTION = "all connections are busy with writes that take long"
NOT_TOGETHER = "it could not be written together with others"


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

    @property
    def ended(self) -> list[tuple[Work, WriteEnd]]:
        """How such writes have ended, as far as nobody has taken it yet."""
        with self._lock:
            return list(self._ended)

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

    def let_go(self, works: Sequence[Work]) -> None:
        """Note that nobody waits for a write any more. Of several which are written together nobody knows which one
        is slow."""
        with self._lock:
            if len(works) == 1:
                self._slow.add(works[0].unit)
            self._busy.update({work.unit: work for work in works})

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
    """A write: of one unit, or of several together."""

    members: Sequence[tuple[UnitState, Work]]
    since: float
    is_let_go: bool = False

    @property
    def works(self) -> list[Work]:
        return [work for _, work in self.members]


class WriterPool:
    """Used for one batch."""

    def __init__(
        self,
        write: Callable[[Sequence[Work]], Sequence[WriteEnd]],
        workers: int,
        patience: float,
        slow: SlowUnits,
        close: Callable[[], None],
        joined: JoinedWrites | None = None,
    ) -> None:
        """``write`` is called by several threads, for different units, and says how the write of each has ended; it
        is given more than one only as ``joined`` allows. ``close`` is called once, when the last write has ended, also
        one that was let go."""
        self._write = write
        self._joined = joined
        self._workers = workers
        self._patience = patience
        self._slow = slow
        self._close = close
        self._changed = threading.Condition()
        self._queue: FairQueue[UnitState] = FairQueue()
        self._running: list[_Running] = []
        self._apart: set[Unit] = set()
        """Units that are not written together with others, because that has failed."""
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
                ends: Sequence[WriteEnd | BaseException] = self._write(running.works)
            except BaseException as error:
                ends = [error] * len(running.members)
            is_awaited = self._end(running, ends)
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
                    running = _Running([(state, work), *self._begin_companions(work)], time.monotonic())
                    self._running.append(running)
                    self._changed.notify_all()
                    return running
            return None

    def _begin_companions(self, work: Work) -> list[tuple[UnitState, Work]]:
        """What is written together with this: as many as leave something to the other threads."""
        if self._joined is None or not self._may_join(work, self._joined):
            return []
        joined, share = self._joined, -(-(len(self._queue) + 1) // self._workers)
        companions = self._queue.take_some(
            min(share, joined.most) - 1,
            lambda state: (
                (other := state.find_next()) is not None and other.kind is work.kind and self._may_join(other, joined)
            ),
        )
        return [(state, begun) for state in companions if (begun := state.begin_next()) is not None]

    def _may_join(self, work: Work, joined: JoinedWrites) -> bool:
        return work.unit not in self._apart and not self._slow.is_slow(work.unit) and joined.may_join(work)

    def _may_be_slow(self) -> bool:
        """Whether another slow unit leaves enough connections to the others."""
        begun = sum(self._slow.is_slow(work.unit) for running in self._running for work in running.works)
        return begun + len(self._slow.busy()) < max(1, self._workers // 2)

    def _end(self, running: _Running, ends: Sequence[WriteEnd | BaseException]) -> bool:
        """Note how a write has ended; returns whether anybody still waits for its thread."""
        with self._changed:
            if len(running.members) == 1:
                self._slow.note_speed(running.works[0].unit, time.monotonic() - running.since >= self._patience)
            if running.is_let_go:
                # Its state belongs to the batch that has gone on without it.
                for work, end in zip(running.works, ends, strict=True):
                    self._end_late(work, end)
                return False
            self._running.remove(running)
            for (state, work), end in zip(running.members, ends, strict=True):
                self._note_end(state, work, end)
            self._changed.notify_all()
            return True

    def _end_late(self, work: Work, end: WriteEnd | BaseException) -> None:
        match end:
            case Divided(why):
                self._slow.end(work, NotTaken(why, 0.0))
            case Separated():
                self._slow.end(work, NotTaken(NOT_TOGETHER, 0.0))
            case WriteEnd():
                self._slow.end(work, end)
            case _:
                self._slow.end(work, NotTaken(str(end), 0.0))
        if isinstance(end, Exception) and not isinstance(end, Away):
            _log.error("the write of %s of %s has ended with an error", work.kind.name, work.unit, exc_info=end)

    def _note_end(self, state: UnitState, work: Work, end: WriteEnd | BaseException) -> None:
        match end:
            case Away():
                state.note_failed(str(end))
                self._result.away = str(end)
                self._result.left[work.unit] = str(end)
            case BaseException():
                self._error = end
            case Divided() | Separated():
                end.tell(state)
                if isinstance(end, Separated):
                    self._apart.add(work.unit)
                self._queue.put_back(state)
            case WriteEnd():
                end.tell(state)
                self._result.ended.append((work, end))
                self._queue.put_back(state)

    def _let_go_overdue(self) -> float | None:
        """Let go of writes that take too long. Returns in how many seconds to look again, if no write ends before."""
        now, first = time.monotonic(), None
        for running in list(self._running):
            works = running.works
            expected_slow = len(works) == 1 and self._slow.is_slow(works[0].unit)
            left = 0.0 if expected_slow else running.since + self._patience - now
            if left <= 0:
                self._slow.let_go(works)
                self._result.let_go.update({work.unit: work for work in works})
                self._result.left.update({work.unit: BUSY for work in works})
                running.is_let_go = True
                self._running.remove(running)
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
