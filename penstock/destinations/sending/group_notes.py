"""Notes the progress of many keys together: one write for all that have come since the one before.

A key goes on as soon as its own progress is noted. On a quick disk that takes a fraction of a millisecond, less than a
thread needs to begin and to be heard: so it is done where the answers come in. A thread does it when there is more to
wait for; while it writes, the next ones gather.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Executor

from penstock.destinations.sending.request_protocol import NoteProgress, Progress

SLOW = 0.003
"""Seconds of a write that is too long to keep the event loop waiting."""
BY_THREAD = 20
"""So many writes are left to the thread after a slow one."""


class GroupNotes:
    """Used in one event loop."""

    def __init__(self, note: NoteProgress, executor: Executor) -> None:
        self._note = note
        self._executor = executor
        self._gathered: dict[str, Progress] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._by_thread = 0
        """Writes for which nobody asks whether they can be made at once."""

    async def add(self, key: str, progress: Progress) -> None:
        """Returns when it is noted. Raises what the write raises."""
        self._gathered[key] = progress
        noted = asyncio.get_running_loop().create_future()
        self._waiting.append(noted)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        await noted

    async def finish(self) -> None:
        """Wait for what was added."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                gathered, waiting = self._gathered, self._waiting
                self._gathered, self._waiting = {}, []
                try:
                    if not self._write_at_once(gathered):
                        await loop.run_in_executor(self._executor, self._note.note, gathered)
                    failure = None
                except Exception as error:
                    failure = error
                # Whoever added something may be gone.
                for noted in [each for each in waiting if not each.done()]:
                    if failure is None:
                        noted.set_result(None)
                    else:
                        noted.set_exception(failure)
        finally:
            self._writer = None

    def _write_at_once(self, gathered: Mapping[str, Progress]) -> bool:
        if self._by_thread:
            self._by_thread -= 1
            return False
        began = time.perf_counter()
        is_noted = self._note.note_at_once(gathered)
        if time.perf_counter() - began > SLOW:
            self._by_thread = BY_THREAD
        return is_noted
