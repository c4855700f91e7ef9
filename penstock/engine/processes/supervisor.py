"""The supervisor: keeps the collector, the readers and the engine running, and stops them in the right order.

Sources stop first, so that nothing new comes in; then the engine delivers what the log holds, for as long as the drain
time allows. It imports neither Spark nor Arrow: it must be the last process to fail.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from penstock.backoff import Backoff
from penstock.engine import events
from penstock.engine.processes.child import EXIT_FATAL, EXIT_UNFINISHED, SUPERVISOR_VARIABLE
from penstock.engine.processes.child import main as run_child
from penstock.engine.processes.forked_process import ForkedProcess
from penstock.engine.processes.hang_detection import EngineWatch, StoppedProcesses
from penstock.stop_signals import STOP_SIGNALS

POLL = 0.05


@dataclass
class Child:
    """A process that should be running."""

    name: str
    arguments: Sequence[str]
    waits: bool = False
    """Until ``let_begin``."""
    process: ForkedProcess | subprocess.Popen[bytes] | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5))
    due: float = 0.0
    started: float = 0.0

    def start(self) -> None:
        """In a session of its own: Ctrl-C reaches only the supervisor, which then stops everything in order."""
        # Signals stay blocked, in the child too, until it can handle them: an earlier stop would look like a crash.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self.process = self._fork() if sys.platform == "linux" else self._spawn()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.started = time.monotonic()
        events.process_started(self.name, self.process.pid)

    def _fork(self) -> ForkedProcess:
        supervisor = str(os.getpid())

        def run(arguments: list[str]) -> int:
            os.environ[SUPERVISOR_VARIABLE] = supervisor
            return run_child(arguments)

        return ForkedProcess(run, run_child.__module__, self.arguments, self.waits)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", run_child.__module__, *self.arguments],
            stdin=subprocess.PIPE if self.waits else None,
            start_new_session=True,
            env={**os.environ, SUPERVISOR_VARIABLE: str(os.getpid())},
        )

    def let_begin(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    @property
    def code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def terminate(self) -> None:
        if self.alive and self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """End it and its children at once: Spark's JVM would log at length that its driver is gone."""
        if self.alive and self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Supervisor:
    """``run`` keeps all children running until ``stopping`` is set; ``hurry`` stops them at once."""

    def __init__(
        self, config_path: Path, sources: Sequence[str], drain: float, run_dir: Path, silence: float = 60.0
    ) -> None:
        path = str(config_path)
        self._sources = [Child(f"source {name}", [path, "source", name]) for name in sources]
        self._engine = Child("engine", [path, "engine"])
        self._drain = drain
        self._life = EngineWatch(run_dir, silence)
        self._stopped = StoppedProcesses()

    def run(self, stopping: Event, hurry: Event) -> int:
        """Returns the exit code of the pipeline: 0 if everything that was begun was finished."""
        children = [*self._sources, self._engine]
        for child in children:
            child.start()
        while not stopping.wait(POLL):
            self._watch_for_hangs()
            for child in children:
                if self._restart_if_ended(child) == EXIT_FATAL:
                    self._stop(children, hurry, grace=5.0)
                    return EXIT_FATAL
        self._stop(self._sources, hurry, grace=10.0)
        self._stop([self._engine], hurry, grace=self._drain + 10.0)
        return self._engine.code or 0

    def _watch_for_hangs(self) -> None:
        self._stopped.resume_stopped()
        pid = self._engine.process.pid if self._engine.alive and self._engine.process is not None else None
        if pid is not None and (silent := self._life.silent_too_long(pid)):
            events.process_silent("engine", pid, silent)
            self._engine.kill()

    def _restart_if_ended(self, child: Child) -> int | None:
        if child.alive:
            if child.backoff.waited and time.monotonic() - child.started > 60:
                child.backoff.reset()
            return None
        code = child.code
        if code == EXIT_FATAL:
            return code
        now = time.monotonic()
        if child.due == 0.0:
            wait = child.backoff.next()
            child.due = now + wait
            events.process_ended(child.name, code, wait)
        elif now >= child.due:
            child.due = 0.0
            child.start()
        return None

    def _stop(self, children: Sequence[Child], hurry: Event, grace: float) -> None:
        for child in children:
            child.terminate()
        deadline = time.monotonic() + grace
        while any(child.alive for child in children) and time.monotonic() < deadline and not hurry.is_set():
            time.sleep(POLL)
        for child in children:
            child.kill()
            events.process_ended(child.name, child.code, None)


def run_once(
    config_path: Path, bounded_sources: Sequence[str], stopping: Event, hurry: Event, patience: float | None = None
) -> int:
    """Run the bounded sources to their end, then every route over what the log holds, and finish. A source or route
    that waits longer than ``patience`` seconds for something unavailable is given up; the others finish."""
    path = str(config_path)
    limit = [] if patience is None else ["--patience", str(patience)]
    sources = [Child(f"source {name}", [path, "source", name, "--once", *limit]) for name in bounded_sources]
    # Spark starts while the sources read.
    engine = Child("engine", [path, "engine", "--once", "--wait", *limit], waits=True)
    engine.start()
    code = 0
    for source in sources:
        source.start()
        code = _wait_for_end(source, stopping, hurry) or code
        if source.code not in (0, EXIT_UNFINISHED) or stopping.is_set():
            engine.kill()
            return code
    engine.let_begin()
    return _wait_for_end(engine, stopping, hurry) or code


def _wait_for_end(child: Child, stopping: Event, hurry: Event) -> int:
    """Wait until it ends, and return its exit code. A stop is passed on to it."""
    asked = False
    stopped = StoppedProcesses()
    while child.alive:
        stopped.resume_stopped()
        if stopping.wait(POLL) and not asked:
            child.terminate()
            asked = True
        if hurry.is_set():
            child.kill()
    return child.code or 0
