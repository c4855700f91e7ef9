"""The processes under the supervisor: ``python -m penstock.engine.processes.child <config> engine|source [name]
[--once] [--patience SECONDS] [--wait]``. With ``--wait`` the engine begins its routes at the end of its standard input.

A child ends on SIGTERM (the first: finish, the second: now) and never outlives its supervisor.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from penstock import parent_death
from penstock.config.loading import load
from penstock.config.pipeline_config import PipelineConfig
from penstock.engine.data_dir import require_writable
from penstock.engine.layout import Layout
from penstock.engine.processes.engine_start import start_engine
from penstock.engine.spark.fork_server import FOLDER_VARIABLE, start_fork_server
from penstock.engine.spark.jvm import JvmDied
from penstock.errors import LedgerUnavailable, LogFull, PenstockError, SourceUnavailable
from penstock.redaction import redact_stderr
from penstock.registry import Kind, component
from penstock.sources.contract import AnySource, SourceContext
from penstock.stop_signals import STOP_SIGNALS, call_on_stop_signals

EXIT_UNFINISHED = 3
"""The stop, or the end of patience, came before the work was done. The rest is in the log, or in the source."""
EXIT_RETRY = 4
"""Something it needs is missing: the ledger, its JVM, or disk space. Starting again may help."""
EXIT_FATAL = 78
"""Starting again would fail the same way."""

SUPERVISOR_VARIABLE = "PENSTOCK_SUPERVISOR"
"""Holds the pid of the supervisor."""


def main(arguments: list[str]) -> int:
    redact_stderr()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    _end_with_parent()
    with _stopped_by_signals() as stopping:
        return _run(arguments, stopping)


def _run(arguments: list[str], stopping: Event) -> int:
    path, role, *rest = arguments
    once = "--once" in rest
    try:
        config = load(Path(path))
        os.umask(config.file_mask)
        patience = float(rest[rest.index("--patience") + 1]) if "--patience" in rest else None
        if role == "source":
            _defer_pandas()
            build_source(config, rest[0], patience).run(stopping, once)
            return 0
        return _run_engine(config, stopping, once, patience, "--wait" in rest)
    except PenstockError as error:
        logging.getLogger("penstock").error("%s", error)
        match error:
            case LedgerUnavailable() | LogFull():
                return EXIT_RETRY
            case SourceUnavailable():
                return EXIT_UNFINISHED
            case _:
                return EXIT_FATAL


def _run_engine(config: PipelineConfig, stopping: Event, once: bool, patience: float | None, wait: bool) -> int:
    start = start_engine(config, fork_server=sys.platform == "linux")
    try:
        _defer_pandas()
        # All that is imported stays: looking through it for garbage takes a sixth of the time.
        gc.disable()
        from penstock.engine.engine import Engine
        from penstock.engine.pipeline import Pipeline
        from penstock.engine.processes.early_exit import leave

        gc.freeze()
        gc.enable()
        if start.forks is not None:
            routes = config.routes.values()
            steps = {name for route in routes for name, _ in route.step_configs}
            start_fork_server(start.scratch, start.forks, steps, {route.to.type for route in routes})
            os.environ[FOLDER_VARIABLE] = str(start.scratch)
        may_begin = _wait_for_end_of_input() if wait else None
        engine = Engine(Pipeline.open(config), once, patience, leave, start, may_begin)
        try:
            code = 0 if engine.run(stopping) else EXIT_UNFINISHED
        except JvmDied as error:
            logging.getLogger("penstock").error("%s", error)
            code = EXIT_RETRY
        logging.shutdown()
        # Spark's own cleanup would wait for answers from a JVM that is gone, and complain that there are none.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        start.abandon()
        start.lock.release()
        start.close()
        os._exit(code)
    except PenstockError:
        start.abandon()
        raise
    finally:
        start.close()


def _wait_for_end_of_input() -> Event:
    ended = Event()

    def read() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=read, name="may-begin", daemon=True).start()
    return ended


def _defer_pandas() -> None:
    # Imported here: it imports Arrow, and Spark's JVM should start first.
    from penstock import pandas_on_demand

    pandas_on_demand.defer_pandas()


def build_source(config: PipelineConfig, name: str, patience: float | None = None) -> AnySource:
    layout = Layout(config.data_dir)
    require_writable(layout.root)
    state = layout.source_state(name)
    state.mkdir(parents=True, exist_ok=True)
    chosen = config.sources[name]
    context = SourceContext(name, layout.log, config.log.model_dump_json(), state, patience)
    built: AnySource = component(Kind.SOURCE, chosen.type).implementation_class()(chosen, context)
    return built


def _end_with_parent() -> None:
    """Ask the kernel for SIGKILL when the supervisor dies, so that a killed supervisor leaves no child behind.

    It may have died before we could ask: then our parent has another pid.
    """
    parent_death.request_death_signal(signal.SIGKILL)
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is not None and os.getppid() != int(supervisor):
        os._exit(1)


@contextmanager
def _stopped_by_signals() -> Iterator[Event]:
    """The supervisor started us with these signals blocked: one that came earlier is heard now."""
    stopping = Event()

    def stop() -> None:
        if stopping.is_set():
            os._exit(EXIT_UNFINISHED)
        stopping.set()

    with call_on_stop_signals(stop):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        yield stopping


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
