"""One worker process of a collector: owns one partition of the log and serves HTTP into it.

Started by ``CollectorSource`` with its job as one line of JSON on standard input (secrets are neither on the command
line nor on disk). SIGTERM, or the end of standard input because the parent is gone, stops it: no new connections,
requests under way are answered after their commit, the log is closed, exit 0.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from penstock import parent_death
from penstock.backoff import Reminder
from penstock.config.secrets import secrets_in_options
from penstock.errors import LogError
from penstock.log.config import LogConfig
from penstock.log.group_commit import Entry, GroupCommit, entry_batch
from penstock.log.local_log import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.redaction import add_secrets, redact_stderr
from penstock.sources.http.access.client_address import ClientAddress
from penstock.sources.http.access.connections import LOOK_SECONDS, Connections
from penstock.sources.http.application import Application
from penstock.sources.http.config import CollectorConfig
from penstock.sources.http.intake.pending_commits import PendingCommits
from penstock.sources.http.metrics import Tally
from penstock.sources.http.worker_job import Job

SWEEP_SECONDS = 0.5
RETRY_SECONDS = 0.2
ORPHAN_SECONDS = 30.0
FILES_OF_OUR_OWN = 256
BACKLOG = 4096
"""Connections that the system keeps for us until we accept them; it may allow fewer."""
HEAD_BYTES = 96 * 1024
"""The longest head of a request: 64 KB for its URL, and 32 KB for its headers. Each connection can make us hold this
much without a token."""
SAY_SECONDS = 10.0
COLLECT_AFTER = (20_000, 20, 50)
"""When Python collects cyclic garbage. A large body creates 100,000 objects, none of them garbage, and every full
collection stops the process."""

ConfigT = TypeVar("ConfigT", bound=CollectorConfig)
AnyApplication = Application[Any]
Make = Callable[[ConfigT, str, Tally, Connections], AnyApplication]
"""Makes the application of a worker, given also the name of its source."""

_log = logging.getLogger("penstock.http")


def run_worker(config_class: type[ConfigT], make: Make[ConfigT]) -> None:
    """Serve until told to stop, then end the process."""
    redact_stderr()
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # A suspended worker would not see the end of its input, and keep the port.
    parent_death.request_death_signal(signal.SIGCONT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops us
    job = Job.model_validate_json(sys.stdin.buffer.readline())
    gc.set_threshold(*COLLECT_AFTER)
    uvloop.run(_serve(job, config_class, make))
    # The server's native threads may still be releasing Python objects, and would abort a regular exit.
    logging.shutdown()
    os._exit(0)


async def _serve(job: Job, config_class: type[ConfigT], make: Make[ConfigT]) -> None:
    config = config_class.model_validate(job.config)
    add_secrets(secrets_in_options(config))
    connections = Connections(config.limits, job.port, ClientAddress(config.trusted_proxies).is_trusted)
    _raise_file_limit(connections.accepted)
    loop = asyncio.get_running_loop()
    tally_path = job.metrics_dir / f"{job.index}.json"
    collector = make(config, job.source, Tally.load(tally_path), connections)
    collector.tally.pending_bytes = 0
    collector.readiness.run_dir = job.log_dir.parent / "run"
    server = _server(config, job, collector)

    def stop() -> None:
        collector.readiness.stopping = True
        server.stop()  # type: ignore[no-untyped-call]  # granian says nothing of its types here

    collector.intake.log_broke = stop
    loop.add_signal_handler(signal.SIGTERM, stop)
    Thread(target=_wait_for_parent, args=(loop, stop), daemon=True).start()
    # Listen only now: the kernel would give connections to a worker that cannot take anything yet.
    group, writer = await _own_partition(job, config, collector)
    if group is None or writer is None:
        return
    if not collector.readiness.stopping:
        Thread(target=_watch, args=(connections,), daemon=True).start()
        sweep = asyncio.create_task(_run_periodic_checks(collector, server, job, tally_path))
        await collector.open_other_ports()
        await server.serve()
        await collector.close_other_ports()
        sweep.cancel()
    await asyncio.to_thread(group.close)
    writer.close()
    collector.tally.try_save(tally_path)


def _raise_file_limit(connections: int) -> None:
    """Raise the limit on open files: each connection is one, and the usual limit is lower than necessary."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES_OF_OUR_OWN
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            _log.warning("only %d files may be open, which is too few for %d connections", allowed, connections)


def _watch(connections: Connections) -> None:
    ended, said = 0, -SAY_SECONDS
    while True:
        time.sleep(LOOK_SECONDS)
        ended += connections.end_surplus()
        if ended and time.monotonic() - said > SAY_SECONDS:
            _log.warning("%d connections were ended: too many had shown no token, or were idle", ended)
            ended, said = 0, time.monotonic()


def _server(config: CollectorConfig, job: Job, collector: AnyApplication) -> Server:
    limits = config.limits
    return Server(
        collector,
        address=job.address,
        port=job.port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=collector.connections.accepted,
        http1_settings=HTTP1Settings(
            header_read_timeout=max(1, int(limits.header_timeout * 1000)), max_buffer_size=HEAD_BYTES
        ),
        log_level=LogLevels.error,
        ssl_cert=config.tls.cert if config.tls else None,
        ssl_key=config.tls.key if config.tls else None,
    )


async def _own_partition(
    job: Job, config: CollectorConfig, collector: AnyApplication
) -> tuple[GroupCommit | None, PartitionWriter | None]:
    """Open the log; waits while another process (our predecessor, perhaps) still holds the partition."""
    log = LocalLog(job.log_dir, LogConfig.model_validate_json(job.log_options or "{}"))
    reminder = Reminder()
    while not collector.readiness.stopping:
        try:
            writer = await asyncio.to_thread(log.writer, job.source, job.index)
        except LogError as error:
            if reminder.is_due(time.monotonic()):
                _log.warning("worker %d waits for its partition: %s", job.index, error)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        # The first conversion to Arrow loads pandas: better now than while the first clients wait.
        await asyncio.to_thread(entry_batch, [Entry(0, "", None, (("", ""),), b"")])
        group = GroupCommit(writer, config.limits.pending_bytes)
        collector.intake.commits = PendingCommits(group, asyncio.get_running_loop(), collector.tally)
        gc.collect()
        gc.freeze()  # what is loaded by now lives as long as the process: not worth a look at every collection
        return group, writer
    return None, None


async def _run_periodic_checks(collector: AnyApplication, server: Server, job: Job, tally_path: Path) -> None:
    readiness, saved = collector.readiness, True
    while True:
        if readiness.stopping:
            # A stop that came while the server was starting was lost.
            server.stop()  # type: ignore[no-untyped-call]
        collector.bodies.expire_late(asyncio.get_running_loop().time())
        readiness.disk_free = shutil.disk_usage(job.log_dir).free
        readiness.check_targets(job.source)
        saved = collector.tally.try_save(tally_path, failing=not saved)
        if not saved and readiness.problem is not None:
            readiness.commit_failed()  # nothing can be written still, although nobody may have tried
        await asyncio.sleep(SWEEP_SECONDS)


def _wait_for_parent(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    sys.stdin.buffer.read()
    loop.call_soon_threadsafe(stop)
    # The parent is gone: nobody else would end a worker that hangs.
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)
