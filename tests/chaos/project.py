"""The pipeline under attack, and its process tree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock.demo.sender import Client
from tests.support.ports import free_port
from tests.support.waiting import eventually

SECRET = "demo"

_PIPELINE = """\
name: chaos
data_dir: ./data
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 2, tokens: [{{id: site, client_secret: {secret}}}]}}
routes:
  warehouse:
    from: [web]
    to: {{type: duckdb, path: ./warehouse.duckdb, table: events, mode: stream, every: 100ms}}
"""


@dataclass
class Project:
    folder: Path
    faults: str = ""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(_PIPELINE.format(port=self.port, secret=SECRET))
        self.fired.mkdir(exist_ok=True)

    @property
    def config(self) -> Path:
        return self.folder / "pipeline.yaml"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse.duckdb"

    @property
    def fired(self) -> Path:
        """Holds a file for every fault that has happened."""
        return self.folder / "fired"

    @property
    def log(self) -> Path:
        return self.folder / "run.log"

    def start(self) -> None:
        environment: Mapping[str, str] = {
            **os.environ,
            "PENSTOCK_FAULTS": self.faults,
            "PENSTOCK_FAULTS_ONCE": str(self.fired),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli.main", "run", "-c", str(self.config)],
                stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    def keep_up(self) -> None:
        """Start it (again) if it is not running."""
        if self.process is None or self.process.poll() is not None:
            self.start()

    def wait_until_ready(self, seconds: float = 60.0) -> None:
        def ready() -> bool:
            self.keep_up()
            return Client(self.port).ready()

        eventually(ready, f"the collector is ready (see {self.log})", seconds)

    def victims(self) -> list[psutil.Process]:
        """Every process of the pipeline: supervisor, collector and its workers, engine, JVM, Python workers."""
        assert self.process is not None
        try:
            supervisor = psutil.Process(self.process.pid)
            return [supervisor, *supervisor.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """Leave nothing running, whatever went wrong."""
        for process in self.victims():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=90)
