"""What an engine does before anything else: take the lock on its data, and let Spark's JVM start beside it.

It imports neither Spark nor Arrow: the JVM starts while the process that wants it imports them.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.config.pipeline_config import PipelineConfig
from penstock.engine.data_dir import require_writable
from penstock.engine.layout import Layout
from penstock.engine.processes.engine_lock import EngineLock
from penstock.engine.spark.fork_server import FOLDER_VARIABLE, listen
from penstock.engine.spark.jvm import StartingJvm, empty_scratch, has_jvm
from penstock.engine.spark.session_settings import engine_settings


@dataclass(frozen=True)
class EngineStart:
    lock: EngineLock
    settings: Mapping[str, str]
    jvm: StartingJvm | None
    """``None``: this process has one already."""
    scratch: Path
    forks: socket.socket | None
    """Where the JVM's Python processes ask for a fork."""

    def abandon(self) -> None:
        """The engine will not run, or has run."""
        if self.jvm is not None:
            self.jvm.kill()

    def close(self) -> None:
        """Leave nothing of Spark on the disk, as far as that can be had: the next start removes the rest."""
        with suppress(OSError):
            empty_scratch(self.scratch)


def start_engine(config: PipelineConfig, fork_server: bool = False) -> EngineStart:
    """With ``fork_server`` the Python processes of the JVM wait for one, which the caller starts."""
    require_writable(config.data_dir)
    run_dir = Layout(config.data_dir).run
    lock = EngineLock(run_dir)
    lock.acquire()
    scratch = run_dir / "spark"
    settings = engine_settings(config, scratch)
    if has_jvm():
        return EngineStart(lock, settings, None, scratch, None)
    empty_scratch(scratch)
    forks = listen(scratch) if fork_server else None
    jvm = StartingJvm(settings, scratch, run_dir / "spark-traces.log", {FOLDER_VARIABLE: str(scratch)} if forks else {})
    lock.note_jvm(jvm.process.pid)
    return EngineStart(lock, settings, jvm, scratch, forks)
