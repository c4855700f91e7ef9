"""An API that accepts every request after a time, and looks at nothing: what is measured is who sends.

``python -m bench.session_server 0.05`` prints its port. A GET is told for how many seconds requests have waited on the
average since the GET before: no timer is exact, and on a busy machine it is less so.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import cast

import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_BODY = b'{"status":"success","bytesCharged":1}'
_ANSWER = _HEAD % (len(_BODY), _BODY)
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class _Waits:
    def __init__(self) -> None:
        self._seconds = 0.0
        self._count = 0

    def add(self, seconds: float) -> None:
        self._seconds += seconds
        self._count += 1

    def take_mean(self) -> float:
        mean = self._seconds / max(1, self._count)
        self._seconds, self._count = 0.0, 0
        return mean


class _Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, delay: float, waits: _Waits) -> None:
        self._loop = loop
        self._delay = delay
        self._waits = waits
        self._head = b""
        self._left = 0
        """Bytes of the body that have not come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            end = self._head.find(_END)
            if end < 0:
                return
            if self._head.startswith(b"GET"):
                mean = b"%.9f" % self._waits.take_mean()
                self._transport.write(_HEAD % (len(mean), mean))
                self._head = b""
                return
            told = self._head[:end].lower().partition(_LENGTH)[2]
            data, self._left = self._head[end + len(_END) :], int(told.partition(b"\r\n")[0])
            self._head = b""
        self._left -= len(data)
        if self._left == 0:
            self._loop.call_later(self._delay, self._answer, time.perf_counter())

    def _answer(self, came: float) -> None:
        self._transport.write(_ANSWER)
        self._waits.add(time.perf_counter() - came)


def main(delay: float) -> None:
    loop = uvloop.new_event_loop()
    waits = _Waits()
    server = loop.run_until_complete(loop.create_server(lambda: _Connection(loop, delay, waits), "127.0.0.1", 0))
    print(server.sockets[0].getsockname()[1], flush=True)
    loop.run_forever()


if __name__ == "__main__":
    main(float(sys.argv[1]))
