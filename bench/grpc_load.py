"""A load generator for OTLP/gRPC: bodies as they are, over several channels, all of them busy.

``python -m bench.grpc_load PORT SECONDS CONNECTIONS FILE...`` prints what it saw as JSON, as ``post_bodies.lua`` does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from pathlib import Path
from time import perf_counter

import grpc.aio

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
CHANNELS = 4
"""As connections of as many exporters; each has several requests under way."""


async def main(port: int, seconds: float, at_once: int, bodies: list[bytes]) -> None:
    taken: list[float] = []
    refused = 0
    # Channels to one address share a connection otherwise.
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) for _ in range(CHANNELS)]
    chosen = itertools.cycle(bodies)
    started = perf_counter()

    async def keep_sending(channel: grpc.aio.Channel) -> None:
        nonlocal refused
        export = channel.unary_unary(EXPORT)
        while (began := perf_counter()) < started + seconds:
            try:
                await export(next(chosen))
            except grpc.aio.AioRpcError:
                refused += 1
            taken.append(perf_counter() - began)

    await asyncio.gather(*(keep_sending(channels[number % CHANNELS]) for number in range(at_once)))
    lasted = perf_counter() - started
    for channel in channels:
        await channel.close()
    taken.sort()
    p50, p99, most = (1000 * taken[min(int(len(taken) * part), len(taken) - 1)] for part in (0.5, 0.99, 1.0))
    load = {
        "requests": len(taken), "seconds": lasted, "refused": refused, "broken": 0, "p50_ms": p50, "p99_ms": p99,
        "max_ms": most,
    }  # fmt: skip
    sys.stdout.write(json.dumps(load) + "\n")


if __name__ == "__main__":
    port, seconds, at_once, *files = sys.argv[1:]
    asyncio.run(main(int(port), float(seconds), int(at_once), [Path(file).read_bytes() for file in files]))
