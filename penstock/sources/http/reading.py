"""Reading a request's body: within its size, within its time, and within what a worker may hold at once.

Bytes count as held (``tally.pending_bytes``) from the moment they are announced or arrive until ``release``. A body
that is refused on the way is released here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # imported there to be imported from there

from penstock.sources.http import answers
from penstock.sources.http.answers import Refused
from penstock.sources.http.config import LimitsConfig
from penstock.sources.http.metrics import Tally
from penstock.sources.http.tokens import Headers


class Incoming(Protocol):
    """RSGI's receiving end of a request: all of its body, or chunk by chunk."""

    def __call__(self) -> Awaitable[bytes]: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class BodyReader:
    """Reads the bodies of one worker. A client that is too slow, or one body too many, is sent away."""

    def __init__(self, limits: LimitsConfig, tally: Tally) -> None:
        self._body_bytes = limits.body_bytes
        self._pending_bytes = limits.pending_bytes
        self._timeout = limits.body_timeout
        self._tally = tally
        self._reading: dict[asyncio.Task[None], float] = {}
        self._late: set[asyncio.Task[None]] = set()

    def read(self, headers: Headers, incoming: Incoming) -> Awaitable[bytes]:
        """The whole body, held until ``release``; or ``Refused``."""
        length = _body_length(headers)
        if length is None:
            return self._read_chunks(incoming)
        if length > self._body_bytes:
            raise Refused(answers.too_large(self._body_bytes))
        tally = self._tally
        if tally.pending_bytes + length > self._pending_bytes and tally.pending_bytes:
            raise Refused(answers.closing(answers.OVERLOADED))
        tally.pending_bytes += length
        return self._in_time(incoming(), length)

    def release(self, body: bytes) -> None:
        """The body is on disk, or was not wanted."""
        self._tally.pending_bytes -= len(body)

    def expire_late(self, now: float) -> None:
        """End the requests whose body has not arrived in time; called about twice a second."""
        for task, deadline in list(self._reading.items()):
            if deadline > now:
                return  # in order of arrival, and all wait equally long
            del self._reading[task]
            self._late.add(task)
            task.cancel()

    async def _read_chunks(self, incoming: Incoming) -> bytes:
        body = bytearray()
        tally = self._tally
        try:
            async for chunk in self._chunks(incoming):
                tally.pending_bytes += len(chunk)
                body += chunk
                if len(body) > self._body_bytes:
                    raise Refused(answers.too_large(self._body_bytes))
                if tally.pending_bytes > self._pending_bytes and tally.pending_bytes > len(body):
                    raise Refused(answers.closing(answers.OVERLOADED))
        except BaseException:
            tally.pending_bytes -= len(body)
            raise
        return bytes(body)

    async def _in_time(self, part: Awaitable[bytes], held: int = 0) -> bytes:
        """A part of a body, unless it comes too late; what was held for it is then let go. A dictionary and a sweep
        cost less than a timer per request."""
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = asyncio.get_running_loop().time() + self._timeout
        try:
            return await part
        except BaseException as error:
            self._tally.pending_bytes -= held
            if not isinstance(error, asyncio.CancelledError) or task not in self._late:
                raise
            self._late.discard(task)
            task.uncancel()
            raise Refused(answers.BODY_TIMEOUT) from None
        finally:
            self._reading.pop(task, None)

    async def _chunks(self, incoming: Incoming) -> AsyncIterator[bytes]:
        """A body of unknown length. Its deadline holds for the whole, not for each chunk."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        stream = aiter(incoming)
        ended = False
        while True:
            try:
                chunk = await self._in_time(anext(stream))
            except StopAsyncIteration:
                return
            if not chunk:
                # The server marks the end of a body by one empty chunk, and a connection that broke by two.
                if ended:
                    raise ProtocolClosed
                ended = True
            elif asyncio.get_running_loop().time() > deadline:
                raise Refused(answers.BODY_TIMEOUT)
            else:
                yield chunk


def _body_length(headers: Headers) -> int | None:
    """The announced length; 0 when the request has no body, None when only its end will tell."""
    length = headers.get("content-length")
    if length is not None:
        return int(length)
    return None if headers.get("transfer-encoding") is not None else 0
