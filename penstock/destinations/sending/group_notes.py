"""Notes the progress of many keys together: one write for all that have come since the one before.

A key goes on as soon as its own progress is noted. The write takes a few milliseconds; while it runs, the next
ones gather.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

from penstock.destinations.sending.request_protocol import NoteProgress, Progress


class GroupNotes:
    """Used in one event loop."""

    def __init__(self, note: NoteProgress, executor: Executor) -> None:
        self._note = note
        self._executor = executor
        self._gathered: dict[str, Progress] = {}
        self._done: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    async def add(self, key: str, progress: Progress) -> None:
        """Returns when it is noted. Raises what the write raises."""
        await asyncio.shield(self._gather(key, progress))

    async def finish(self) -> None:
        """Wait for what was added."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    def _gather(self, key: str, progress: Progress) -> asyncio.Future[None]:
        self._gathered[key] = progress
        if self._done is None:
            self._done = asyncio.get_running_loop().create_future()
        done = self._done
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        return done

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._done is not None:
                gathered, done = self._gathered, self._done
                self._gathered, self._done = {}, None
                try:
                    await loop.run_in_executor(self._executor, self._write_now, gathered)
                except Exception as error:
                    done.set_exception(error)
                    # Whoever added something may be gone.
                    done.exception()
                else:
                    done.set_result(None)
        finally:
            self._writer = None

    def _write_now(self, gathered: Mapping[str, Progress]) -> None:
        self._note(gathered)
