"""A collector as a source: keeps its worker processes alive, and stops them cleanly."""

from __future__ import annotations

import errno
import logging
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from typing import ClassVar, TypeVar

from penstock.config.value_types.listen_address import split_address
from penstock.errors import PenstockError
from penstock.sources.contract import Source
from penstock.sources.http import metrics
from penstock.sources.http.config import CollectorConfig, HttpConfig, TlsConfig
from penstock.sources.http.worker_job import Job, metrics_dir

POLL_SECONDS = 0.1
DRAIN_SECONDS = 40.0
LONGEST_PAUSE_SECONDS = 5.0
PORT_WAIT_SECONDS = 10.0
METRICS_AWAY = 1000
LAST_PORT = 65535

_log = logging.getLogger("penstock.http")


ConfigT = TypeVar("ConfigT", bound=CollectorConfig)


class CollectorSource(Source[ConfigT]):
    """Serves until it is told to stop.

    Each worker owns the log partition (source, its index); one that dies is replaced, after a pause that grows while
    replacements die young. All workers listen on the same port; the kernel spreads connections over them.
    """

    worker_module: ClassVar[str]
    """What a worker runs: ``python -m`` this."""

    def run(self, stopping: Event, once: bool = False) -> None:
        _check_certificate(self.config.tls)
        counters = metrics_dir(self.context)
        shutil.rmtree(counters, ignore_errors=True)
        counters.mkdir(parents=True)
        with ExitStack() as stack:
            address = reserve_address(self.config.listen, stack, stopping)
            config = self.reserve_other_ports(stack, stopping)
            self._show_metrics(counters, address[1], stack)
            jobs = [Job.of(config, self.context, index, address) for index in range(config.workers)]
            workers = [_Worker(self.worker_module, job) for job in jobs]
            stack.callback(_stop, workers)
            for worker in workers:
                worker.start()
            while not stopping.wait(POLL_SECONDS):
                for worker in workers:
                    worker.restart_if_ended()

    def reserve_other_ports(self, stack: ExitStack, stopping: Event) -> ConfigT:
        """Reserve what the workers listen on besides ``listen``; returns the config that they are given."""
        return self.config

    def _show_metrics(self, counters: Path, port: int, stack: ExitStack) -> None:
        """Serve metrics. A configured address must work; if the default one is taken, the collector runs without."""
        asked = self.config.metrics
        host, at = split_address(asked) if asked is not None else ("127.0.0.1", metrics_port(port))
        try:
            stack.callback(metrics.serve_metrics(self.context.name, counters, host, at))
        except OSError as error:
            what = f"the counters of '{self.context.name}' cannot be shown on {host}:{at}: {error.strerror or error}."
            fix = "Set `metrics` of the source to an address that is free."
            if asked is not None:
                raise PenstockError("PEN-HTTP-003", what, fix) from error
            _log.warning("%s %s", what, fix)


class HttpSource(CollectorSource[HttpConfig]):
    """The collector for events."""

    worker_module = "penstock.sources.http.worker"


def metrics_port(listen: int) -> int:
    """The default port for metrics: next to the collector's port, and distinct from other collectors'."""
    return listen + METRICS_AWAY if listen + METRICS_AWAY <= LAST_PORT else listen - METRICS_AWAY


@dataclass
class _Worker:
    """A worker process and its successors."""

    module: str
    job: Job
    process: subprocess.Popen[bytes] | None = None
    started: float = field(default=0.0)
    pause: float = field(default=0.0)
    restart_at: float | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", self.module]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.started = monotonic()
        self.restart_at = None
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once; restart_if_ended sees to it
            # The pipe stays open: its end shows the worker that we are gone.
            self.process.stdin.write(self.job.model_dump_json().encode() + b"\n")
            self.process.stdin.flush()

    def restart_if_ended(self) -> None:
        if self.process is not None and self.process.poll() is not None:
            code, lived = self.process.returncode, monotonic() - self.started
            self._close_pipe()
            self.process = None
            young = lived < LONGEST_PAUSE_SECONDS
            self.pause = min(LONGEST_PAUSE_SECONDS, max(0.1, self.pause * 2)) if young else 0.0
            self.restart_at = monotonic() + self.pause
            _log.error("worker %d ended with %d after %.1f s; it is replaced", self.job.index, code, lived)
        if self.restart_at is not None and monotonic() >= self.restart_at:
            self.start()

    def ask_to_stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self._close_pipe()

    def wait(self, deadline: float) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            _log.error("worker %d did not stop in time; it is killed", self.job.index)
            self.process.kill()
            self.process.wait()

    def _close_pipe(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.ask_to_stop()
    deadline = monotonic() + DRAIN_SECONDS
    for worker in workers:
        worker.wait(deadline)


def _check_certificate(tls: TlsConfig | None) -> None:
    """Check the certificate before any worker starts: workers would fail over and over on a wrong key."""
    if tls is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key, password="")
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        raise PenstockError(
            "PEN-HTTP-002",
            f"the certificate {tls.cert} and the key {tls.key} cannot be used: {reason}.",
            "Both must be PEM files, the key without a password and made for this certificate.",
        ) from error


def reserve_address(listen: str, stack: ExitStack, stopping: Event) -> tuple[str, int]:
    """Reserve the address for our workers until the stack closes; returns it as numeric address and port."""
    host, port = split_address(listen)
    deadline = monotonic() + PORT_WAIT_SECONDS
    while True:
        try:
            held = _bind(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and not stopping.is_set() and monotonic() < deadline:
                stopping.wait(POLL_SECONDS)  # workers of a collector that was killed may still be finishing
                continue
            busy = error.errno == errno.EADDRINUSE
            fix = "Stop the other program or choose another port." if busy else "Check 'listen'."
            raise PenstockError("PEN-HTTP-001", f"cannot listen on {listen}: {error.strerror}.", fix) from error
        name = stack.enter_context(held).getsockname()
        return str(name[0]), int(name[1])


def _bind(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # First without port sharing: another program on the port must be an error, not a second collector.
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        address = probe.getsockname()
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(address)
    return held
