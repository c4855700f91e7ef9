"""Sends what a batch has, key by key, many keys at a time, and returns once each of them is settled or has to wait.

A key that fails is left alone, and a request that takes long is let go: it keeps its key busy, and nobody else waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.destinations.sending.byte_budget import ByteBudget
from penstock.destinations.sending.group_notes import GroupNotes
from penstock.destinations.sending.http_client import HttpClient
from penstock.destinations.sending.key_lane import Built, KeyLane, Line
from penstock.destinations.sending.late_requests import LateEnd, LateRequests
from penstock.destinations.sending.request_protocol import (
    Answer,
    Judgement,
    NoAnswer,
    NoteProgress,
    Request,
    RequestProtocol,
    Sent,
    Verdict,
    Work,
)
from penstock.destinations.sending.slots import Slots
from penstock.sessions.adaptive_limit import AdaptiveLimit
from penstock.sessions.error_states import ErrorStates

LOOK_EVERY = 0.05
"""Seconds between looks at what takes long."""
BUILDERS = 2
"""Threads that build and compress requests."""
SMALL = 64 << 10
"""Bytes of a request that is built and compressed in less time than a thread takes to begin, which has to wait for
the event loop's to stop."""
MOST_BUILT = 64 << 20
"""Bytes of requests that are built and not answered."""
NO_SLOT = "all connections are busy with requests that take long"
SLOW = "a request takes long"
SOON = 1.0
SLOW_SHARE = 0.1
"""Of the patience, for a key whose last request took long."""


_log = logging.getLogger("penstock")

NoteLate = Callable[[str, LateEnd], None]
"""Told, in a thread, how a request has ended that was let go."""


@dataclass(frozen=True)
class RoundSettings:
    patience: float
    """Seconds that a batch waits for one answer."""
    timeout: float
    """Seconds after which there is no answer to a request."""


@dataclass(eq=False)
class SendingRound:
    """Used once, in an event loop of its own. ``returned`` gets what became of each key; requests that were let go are
    waited for after that."""

    works: Sequence[Work]
    protocol: RequestProtocol
    client: HttpClient
    note: NoteProgress
    note_late: NoteLate
    limit: AdaptiveLimit
    errors: ErrorStates
    slow: set[str]
    """Keys whose last request took long."""
    late: LateRequests
    settings: RoundSettings
    check_lease: Callable[[], None]
    """Raises if somebody else may send: then nothing is sent, and what is in flight ends."""
    count: Callable[[Mapping[str, int]], None]
    """Told what answers say of numbers."""
    returned: Future[dict[str, Sent]]
    _lanes: dict[asyncio.Task[None], KeyLane] = field(default_factory=dict)
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    """Of the lanes those that have a slot."""
    _noter: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "noting"))

    async def run(self) -> None:
        builders = ThreadPoolExecutor(BUILDERS, "building")
        try:
            async with self.client:
                await self._run(builders)
        except BaseException as error:
            if self.returned.done():
                raise
            self.returned.set_exception(error)
        finally:
            builders.shutdown(wait=False, cancel_futures=True)
            self._noter.shutdown(wait=False)

    async def _run(self, builders: ThreadPoolExecutor) -> None:
        budget, notes = ByteBudget(MOST_BUILT), GroupNotes(self.note, self._noter)
        # What was let go by others is in flight still.
        slots = Slots(self.limit, lambda: self.late.count(but=self))
        # Those that take long never have all slots: the others would wait for them.
        slow_slots = Slots(AdaptiveLimit(max(1, self.limit.value // 2)), lambda: self.late.count(but=self))
        loop = asyncio.get_running_loop()

        async def build(key: str, start: int, most: int | None) -> Built:
            await budget.wait_for_room()
            end = self.protocol.cut(key, start)
            end = end if most is None else min(end, start + most)
            if self.protocol.bytes_of(key, start, end) <= SMALL:
                built = self._build(key, start, end)
            else:
                built = await loop.run_in_executor(builders, self._build, key, start, end)
            budget.take(len(built.request.body))
            return built

        async def send(request: Request) -> Answer:
            self.check_lease()
            sent = loop.time()
            try:
                answer = await self.client.send(request)
            except NoAnswer:
                slots.observe(loop.time() - sent, False)
                raise
            slots.observe(loop.time() - sent, answer.status < 500 and answer.status != 429)
            return answer

        line = Line(
            build,
            lambda: budget.has_room,
            lambda built: budget.give_back(len(built.request.body)),
            send,
            self.protocol.judge,
            notes.add,
            self.count,
        )
        for work in self.works:
            lane = KeyLane(work)
            own = slow_slots if work.key in self.slow else None
            self._lanes[loop.create_task(self._run_lane(lane, line, slots, own))] = lane
        late = await self._wait((slots, slow_slots))
        await notes.finish()
        self.returned.set_result({lane.work.key: self._sent(lane) for lane in self._lanes.values()})
        while late:
            self.check_lease()
            done, late = await asyncio.wait(late, timeout=LOOK_EVERY)
            for task in done:
                # How it has ended is not noted: what it had is sent again.
                if (error := task.exception()) is not None:
                    _log.error("a request that was let go has ended with an error", exc_info=error)

    def _build(self, key: str, start: int, end: int) -> Built:
        return Built(start, end, self.protocol.build(key, start, end))

    async def _run_lane(self, lane: KeyLane, line: Line, slots: Slots, slow_slots: Slots | None) -> None:
        if slow_slots is not None:
            async with slow_slots.taken(), slots.taken():
                await self._run_begun(lane, line, slots)
        else:
            async with slots.taken():
                await self._run_begun(lane, line, slots)

    async def _run_begun(self, lane: KeyLane, line: Line, slots: Slots) -> None:
        key, task = lane.work.key, asyncio.current_task()
        assert task is not None, "a lane is one"
        self._running.add(task)
        try:
            late = await lane.run(line)
        except BaseException:
            if lane.is_let_go:
                self.late.end(key)
            raise
        finally:
            self._running.discard(task)
        if late is not None:
            try:
                await self._end_late(lane, late)
            finally:
                self.late.end(key)

    async def _end_late(self, lane: KeyLane, judgement: Judgement) -> None:
        key, built = lane.work.key, lane.in_flight
        assert built is not None, "it was in flight when it was let go"
        if judgement.verdict is Verdict.ACCEPTED or judgement.verdict is Verdict.REFUSED:
            places = self.protocol.place(key, built.start), self.protocol.place(key, built.end - 1)
            refused = "" if judgement.verdict is Verdict.ACCEPTED else judgement.message
            end = LateEnd(*places, built.end - built.start, refused)
            await asyncio.get_running_loop().run_in_executor(self._noter, self.note_late, key, end)
            self.errors.note_success(key, time.monotonic())
        elif judgement.verdict is Verdict.RETRY:
            self._note_failure(key, judgement)

    async def _wait(self, slots: Sequence[Slots]) -> set[asyncio.Task[None]]:
        """Wait for all keys but for those whose request takes long; returns these."""
        waited, late = set(self._lanes), set[asyncio.Task[None]]()
        ended, all_ended = list[asyncio.Task[None]](), asyncio.Event()

        def note_end(task: asyncio.Task[None]) -> None:
            if task in waited:
                waited.discard(task)
                ended.append(task)
                if not waited:
                    all_ended.set()

        # There may be very many: those that wait for a slot are not looked at.
        for task in self._lanes:
            task.add_done_callback(note_end)
        while waited or ended:
            with suppress(TimeoutError):
                await asyncio.wait_for(all_ended.wait(), LOOK_EVERY)
            for task in ended:
                task.result()
                lane = self._lanes[task]
                if lane.stopped is None:
                    self.slow.discard(lane.work.key)
                    if lane.has_progress:
                        self.errors.note_success(lane.work.key, time.monotonic())
            ended.clear()
            self.check_lease()
            running = self._running & waited
            for task in [each for each in running if self._is_overdue(self._lanes[each])]:
                self._let_go(self._lanes[task])
                running.discard(task)
                waited.discard(task)
                late.add(task)
            for each in slots:
                each.look_again()
            if waited and not running and (late or not all(each.are_there for each in slots)):
                # Their slots are taken by what was let go.
                for task in waited:
                    task.cancel()
                break
        return late

    def _is_overdue(self, lane: KeyLane) -> bool:
        if lane.in_flight is None:
            return False
        patience = self.settings.patience * (SLOW_SHARE if lane.work.key in self.slow else 1)
        return asyncio.get_running_loop().time() - lane.sent_at >= patience

    def _let_go(self, lane: KeyLane) -> None:
        lane.is_let_go = True
        self.slow.add(lane.work.key)
        self.late.let_go(lane.work.key, self)

    def _sent(self, lane: KeyLane) -> Sent:
        key, now = lane.work.key, time.monotonic()
        if lane.is_let_go:
            return Sent(key, lane.progress, SLOW, self.settings.timeout)
        if lane.stopped is not None:
            if lane.has_progress:
                # What fails now is another request than the one that failed before.
                self.errors.note_success(key, now)
            due = self._note_failure(key, lane.stopped)
            exhausted = lane.stopped_at if self.errors.is_over(key, now) else None
            return Sent(key, lane.progress, lane.stopped.message, due, exhausted)
        if lane.settled < lane.work.rows:
            return Sent(key, lane.progress, NO_SLOT, SOON)
        return Sent(key, lane.progress)

    def _note_failure(self, key: str, judgement: Judgement) -> float:
        return self.errors.note_failure(key, judgement.message, time.monotonic(), judgement.status, judgement.wait)
