"""Reads a request's body: within its size, within its time, and within what a worker may hold at once.

Bytes count as held (``tally.pending_bytes``) from the moment they have arrived until ``release``; what a client merely
announces costs nothing. When there is no room for what arrives, the bodies that have been silent for longest are ended,
and for a known sender those of unknown ones, silent or not; otherwise the newcomer is refused. Bodies above
``SMALL_BYTES`` leave a quarter of the room to the others.

A chunk costs the same whatever its size. So bodies that come in tiny ones pause after a number of them, one body at a
time: together they get a share of the event loop, however many they are. Their senders wait; nothing is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # imported there to be imported from there

from penstock.sources.http import responses
from penstock.sources.http.access.auth_tokens import Headers
from penstock.sources.http.config import ServerLimits
from penstock.sources.http.metrics import Tally
from penstock.sources.http.responses import Answer, Refused

SMALL_BYTES = 16_384
"""An announced body up to this size is read at once. It is charged when it has arrived: the number of connections
bounds what is still arriving."""
SILENT_SECONDS = 0.25
"""A body that has been silent for this long may have to make room for another."""
CHUNKS_AT_ONCE = 64
"""After so many chunks a body pauses, if they were tiny."""
TINY_CHUNK_BYTES = 64
"""Chunks that are smaller than this, on average, are tiny."""
PAUSE_SECONDS = 0.004


class Incoming(Protocol):
    """RSGI's receiving end of a request: all of its body, or chunk by chunk."""

    def __call__(self) -> Awaitable[bytes]: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class BodyBudget:
    """The memory that the bodies of a worker may use together. Every charge is released by the same amount."""

    def __init__(self, limits: ServerLimits, tally: Tally) -> None:
        self._limit = limits.pending_bytes
        self._limit_for_large = limits.pending_bytes * 3 // 4
        self._tally = tally
        self._arriving: dict[ArrivingBody, float] = {}

    def charge(self, size: int, large: bool, own: ArrivingBody | None = None, mine: int = 0) -> None:
        """Charge ``size`` more bytes, or raise ``Refused``. A body that is alone is always taken: ``mine`` is what is
        charged for it already, ``own`` is the body itself while it is arriving."""
        held = self._tally.pending_bytes
        limit = self._limit_for_large if large else self._limit
        if held + size > limit:
            held = self._make_room(size, limit, own)
            if held + size > limit and held > mine:
                raise Refused(responses.closing(responses.OVERLOADED))
        self._tally.pending_bytes += size

    def release(self, size: int) -> None:
        self._tally.pending_bytes -= size

    def mark_active(self, body: ArrivingBody, now: float) -> None:
        """Note that data of this body has arrived."""
        self._arriving[body] = now

    def forget(self, body: ArrivingBody) -> None:
        """Forget a body that is complete or given up."""
        self._arriving.pop(body, None)

    def _make_room(self, size: int, limit: int, own: ArrivingBody | None) -> int:
        """End bodies of unknown senders if this one is known, then those that have been silent, the longest first;
        returns what is held then."""
        now, known = asyncio.get_running_loop().time(), own is None or own.known
        waiting = [(body.known, last, body) for body, last in self._arriving.items() if body is not own]
        for theirs, last, body in sorted(waiting, key=lambda found: found[:2]):
            if self._tally.pending_bytes + size <= limit:
                break
            if now - last >= SILENT_SECONDS or (known and not theirs):
                body.give_up(responses.closing(responses.OVERLOADED))
        return self._tally.pending_bytes


class BodyReader:
    """Reads the bodies of one worker. Refuses clients that are too slow, and bodies that are too many."""

    def __init__(self, limits: ServerLimits, tally: Tally) -> None:
        self.room = BodyBudget(limits, tally)
        self.is_whole: Callable[[str], bool] = lambda _: False
        """Whether a client still has its connection open, by the connection's name."""
        self._body_bytes = limits.body_bytes
        self._timeout = limits.body_timeout
        self._pausing = {known: asyncio.Lock() for known in (True, False)}
        self._deadlines: dict[asyncio.Task[None], float] = {}
        self._given_up: dict[asyncio.Task[None], Answer] = {}

    def read(self, headers: Headers, incoming: Incoming, client: str) -> Awaitable[bytes]:
        """The whole body, held until ``release``; or ``Refused``."""
        length = self._announced(headers)
        if length is not None and length <= SMALL_BYTES:
            return self.read_in_time(incoming(), charged=True)
        return ArrivingBody(self, incoming, client, length, known=True).rest()

    def open(self, headers: Headers, incoming: Incoming, client: str) -> ArrivingBody:
        """Open the body of a sender who is not known yet, to read it in parts."""
        return ArrivingBody(self, incoming, client, self._announced(headers), known=False)

    def expire_late(self, now: float) -> None:
        """End the requests whose body has not arrived in time; called about twice a second."""
        for task in [task for task, deadline in self._deadlines.items() if deadline <= now]:
            self.give_up(task, responses.BODY_TIMEOUT)

    def give_up(self, task: asyncio.Task[None], answer: Answer) -> bool:
        """End the reading of a body with this answer; False if nobody waits for a part of it at the moment."""
        if self._deadlines.pop(task, None) is None:
            return False
        self._given_up[task] = answer
        task.cancel()
        return True

    def check_size(self, size: int) -> None:
        if size > self._body_bytes:
            raise Refused(responses.too_large(self._body_bytes))

    async def read_in_time(self, part: Awaitable[bytes], deadline: float | None = None, charged: bool = False) -> bytes:
        """A part of a body, or ``Refused`` if it comes too late; ``charged`` if it is a whole body. A dictionary and a
        periodic sweep cost less than a timer per request."""
        task = asyncio.current_task()
        assert task is not None
        self._deadlines[task] = deadline or asyncio.get_running_loop().time() + self._timeout
        try:
            found = await part
            if charged:
                self.room.charge(len(found), large=False)
            return found
        except asyncio.CancelledError:
            answer = self._given_up.pop(task, None)
            if answer is None:
                raise
            task.uncancel()
            raise Refused(answer) from None
        finally:
            self._deadlines.pop(task, None)

    async def pause(self, known: bool) -> bytes:
        """Let everybody else go on; one body after the other, those of known senders apart from all others. A part of
        the body without bytes."""
        async with self._pausing[known]:
            await asyncio.sleep(PAUSE_SECONDS)
        return b""

    @property
    def deadline(self) -> float:
        """When a body that begins now must be complete."""
        return asyncio.get_running_loop().time() + self._timeout

    def _announced(self, headers: Headers) -> int | None:
        length = _body_length(headers)
        if length is not None:
            self.check_size(length)
        return length


class ArrivingBody:
    """A body that is read chunk by chunk. What has arrived stays charged until it is handed over or given up."""

    def __init__(self, reader: BodyReader, incoming: Incoming, client: str, length: int | None, known: bool) -> None:
        self._reader = reader
        self._room = reader.room
        self._stream = aiter(incoming)
        self._client = client
        self._length = length
        self._deadline = reader.deadline
        self._task = asyncio.current_task()
        # Not a list of the chunks: an object per chunk takes forty bytes, and only what is in it is charged.
        self._received = bytearray()
        self._chunks = 0
        self._paused_at = 0
        self.held = 0
        self.complete = False
        self.known = known
        """Whether its sender has shown a token."""

    async def prefix(self, size: int) -> bytes:
        """The first bytes of the body, at least ``size`` unless it has fewer. They stay part of it."""
        await self._read_until(size)
        return bytes(self._received)

    async def rest(self) -> bytes:
        """The whole body; the charge for it is now the caller's."""
        await self._read_until(None)
        body, self._received = bytes(self._received), bytearray()
        self._room.forget(self)
        self.held = 0
        return body

    def close(self) -> None:
        """Release what was read and not handed over. Harmless if everything was."""
        self._room.forget(self)
        self._room.release(self.held)
        self.held = 0
        self._received = bytearray()

    def give_up(self, answer: Answer) -> None:
        """Make room for another body, if this one is still on its way."""
        if self._task is not None and self._reader.give_up(self._task, answer):
            self.close()

    async def _read_until(self, size: int | None) -> None:
        try:
            while not self.complete and (size is None or self.held < size):
                chunk = await self._next()
                if chunk:
                    self._reader.check_size(self.held + len(chunk))
                    self._room.charge(len(chunk), large=True, own=self, mine=self.held)
                    self.held += len(chunk)
                    self._received += chunk
                    self._room.mark_active(self, asyncio.get_running_loop().time())
                    await self._pause_if_tiny()
                else:
                    await self._check_the_end()
                    self.complete = True
        except BaseException:
            self.close()
            raise

    async def _pause_if_tiny(self) -> None:
        self._chunks += 1
        if self._chunks < CHUNKS_AT_ONCE:
            return
        if self.held - self._paused_at < CHUNKS_AT_ONCE * TINY_CHUNK_BYTES:
            await self._reader.read_in_time(self._reader.pause(self.known), self._deadline)
        self._chunks, self._paused_at = 0, self.held

    async def _next(self) -> bytes:
        """The next chunk; an empty one at the end."""
        if asyncio.get_running_loop().time() > self._deadline:
            raise Refused(responses.BODY_TIMEOUT)
        try:
            return await self._reader.read_in_time(anext(self._stream), self._deadline)
        except StopAsyncIteration:
            return b""

    async def _check_the_end(self) -> None:
        """The server marks the end of a body by an empty chunk; one more comes after trailers, and if it broke off."""
        if self._length is not None:
            if self.held != self._length:
                raise ProtocolClosed
            return
        try:
            await self._reader.read_in_time(anext(self._stream), self._deadline)
        except StopAsyncIteration:
            return
        if not await asyncio.to_thread(self._reader.is_whole, self._client):
            raise ProtocolClosed


def _body_length(headers: Headers) -> int | None:
    """The announced length; 0 when the request has no body, None when it is not announced."""
    length = headers.get("content-length")
    if length is not None:
        return int(length)
    return None if headers.get("transfer-encoding") is not None else 0
