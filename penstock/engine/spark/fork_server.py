"""A process with everything imported, from which the Python processes of Spark's JVM are forked.

Spark starts half a dozen of them, one after the other: each would import for half a second, and have its own copy of
what it imported. ``worker_path/sitecustomize.py`` hands their work over to here, and that of processes for trials.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from setproctitle import setproctitle

from penstock import parent_death
from penstock.engine.processes.forked_process import end_with, release_files, reopen_input, set_command_line

FOLDER_VARIABLE = "PENSTOCK_FORK_SERVER"
"""Holds the folder of the socket, for ``sitecustomize.py``."""
_SOCKET = "fork.socket"
_READY = "fork.ready"
"""Is there once everything is loaded: from then on the server answers at once, unless it hangs. Where it
cannot be written, processes wait for the server as long as it takes."""
_HEADER = 8
_PATIENCE = 60.0
_GREETING = b"!"
"""Sent to a process that connects: only who has seen it hands its work over (``sitecustomize.py``). A server that hangs
sends none."""


_WORKER_PATH = Path(__file__).with_name("worker_path")

_is_fork = False


def is_fork() -> bool:
    """Whether this process was forked from a server, which has loaded everything."""
    return _is_fork


def forking_environment(folder: str | Path) -> dict[str, str]:
    """What a Python process must find in its environment to be forked from the server of that folder."""
    return {FOLDER_VARIABLE: str(folder), "PYTHONPATH": worker_path()}


def worker_path() -> str:
    """Where Python processes of Spark look for modules: first of all for the one that hands their work over."""
    return os.pathsep.join(filter(None, [str(_WORKER_PATH), os.environ.get("PYTHONPATH", "")]))


def listen(folder: Path) -> socket.socket:
    """Processes that connect wait until somebody serves. ``folder`` must be closed to other users."""
    listening = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    try:
        # Relative, because the path of a socket must be short.
        os.chdir(folder)
        for name in (_SOCKET, _READY):
            Path(name).unlink(missing_ok=True)
        listening.bind(_SOCKET)
    finally:
        os.chdir(here)
    listening.listen(64)
    return listening


def start_fork_server(folder: Path, listening: socket.socket, steps: Set[str], destinations: Set[str]) -> None:
    """Fork the server. Call it when everything that is wanted is imported, and before there is a thread."""
    driver_end, server_end = os.pipe()
    if os.fork():
        os.close(driver_end)
        # Kept open for as long as this process lives.
        os.set_inheritable(server_end, False)
        listening.close()
        return

    def serve() -> int:
        os.close(server_end)
        parent_death.request_death_signal(signal.SIGKILL)
        setproctitle("penstock: fork server")
        _detach({listening.fileno(), driver_end})
        _load(steps, destinations)
        with suppress(OSError):
            (folder / _READY).touch()
        _Server(listening, driver_end).serve()
        return 0

    end_with(serve)


def _detach(kept: Set[int]) -> None:
    """Let go of what belongs to the driver: the lock on its data, its JVM's input, its signals and log."""
    release_files(kept)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger().handlers.clear()
    logging.getLogger().setLevel(logging.WARNING)


def _load(steps: Set[str], destinations: Set[str]) -> None:
    global _is_fork
    gc.disable()
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker  # noqa: F401

    from penstock.engine.spark.warm_up import warm_up

    warm_up(steps, destinations)
    _is_fork = True
    gc.collect()
    gc.freeze()
    gc.enable()


class _Server:
    def __init__(self, listening: socket.socket, driver: int) -> None:
        self._listening = listening
        self._driver = driver
        self._waiting: dict[int, socket.socket] = {}

    def serve(self) -> None:
        """Until the driver is gone."""
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        ready = selectors.DefaultSelector()
        for watched in (self._listening, self._driver, wake):
            ready.register(watched, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is self._listening:
                    self._take()
                elif key.fileobj is wake:
                    wake.recv(4096)
                    self._tell_ended()
                else:
                    return

    def _take(self) -> None:
        connection, _ = self._listening.accept()
        connection.settimeout(_PATIENCE)
        streams: list[int] = []
        try:
            connection.sendall(_GREETING)
            header, streams, _, _ = socket.recv_fds(connection, _HEADER, 3)
            message = connection.makefile("rb").read(int.from_bytes(header, "big"))
            request = json.loads(message)
        except (OSError, ValueError):
            connection.close()
        else:
            pid = os.fork()
            if pid == 0:
                _run(request, streams)
            self._waiting[pid] = connection
        for stream in streams:
            os.close(stream)

    def _tell_ended(self) -> None:
        for pid, connection in list(self._waiting.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._waiting[pid]
                code = os.waitstatus_to_exitcode(status)
                with connection, suppress(OSError):
                    # A shell tells of a signal in the same way.
                    connection.send(bytes([code & 0xFF if code >= 0 else 128 - code]))


def _run(request: Mapping[str, Any], streams: list[int]) -> NoReturn:
    """Be the process that handed over."""

    def run() -> int:
        parent_death.request_death_signal(signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        reopen_input()
        # A worker that outlives the server must not keep its socket open: others would wait for an answer there.
        release_files()
        os.environ.clear()
        os.environ.update(request["variables"])
        os.chdir(request["folder"])
        module, *arguments = request["words"]
        set_command_line(module, arguments)
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0

    end_with(run)
