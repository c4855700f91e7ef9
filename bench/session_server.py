"""An API that accepts every request after a time, and looks at nothing: what is measured is who sends.

``python -m bench.session_server 0.05`` prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

_BODY = b'{"status":"success","bytesCharged":1}'
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class _Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, delay: float) -> None:
        self._loop = loop
        self._delay = delay
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
            told = self._head[:end].lower().partition(_LENGTH)[2]
            data, self._left = self._head[end + len(_END) :], int(told.partition(b"\r\n")[0])
            self._head = b""
        self._left -= len(data)
        if self._left == 0:
            self._loop.call_later(self._delay, self._transport.write, _ANSWER)


def main(delay: float) -> None:
    loop = uvloop.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: _Connection(loop, delay), "127.0.0.1", 0))
    print(server.sockets[0].getsockname()[1], flush=True)
    loop.run_forever()


if __name__ == "__main__":
    main(float(sys.argv[1]))
