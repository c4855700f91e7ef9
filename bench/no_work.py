"""The collector's HTTP server answering 200 to everything: ``python -m bench.no_work <port>``, one worker.

Same server, same settings, same loop as the collector's workers; the body is read and forgotten.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from penstock.sources.http.app import Exchange, Scope
from penstock.sources.http.responses import ONE_ACCEPTED


class NoWork:
    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        await exchange()
        exchange.response_bytes(*ONE_ACCEPTED)


async def _serve(port: int) -> None:
    server = Server(
        NoWork(),
        address="127.0.0.1",
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=1024,
        backpressure=512,
        http1_settings=HTTP1Settings(header_read_timeout=30_000),
        log_level=LogLevels.error,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    await server.serve()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
