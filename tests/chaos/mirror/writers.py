"""pgbench, kept writing while the server goes and comes.

A transaction whose commit got no answer may have happened or not. Nobody here remembers: what the source has is true.
"""

from __future__ import annotations

import re
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.mirror.tables import SCRIPTS

SLICE_SECONDS = 5
_OWN_WEIGHT = 20
_PASSING = re.compile(
    "server closed the connection|terminating connection|connection to server|could not|no connection"
    "|the database system is|SSL|in recovery mode|Connection refused|crash of another server process"
    "|perhaps the backend died|Run was aborted"
)
"""What pgbench says when its server goes away."""


@dataclass
class Writers:
    """Runs pgbench again and again until told to stop. ``complaints``: whatever else than a lost server it met."""

    pgbench: Path
    url: str
    folder: Path
    seed: int
    rate: int
    clients: int = 4
    transactions: int = 0
    interrupted: int = 0
    complaints: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def initialise(self) -> None:
        subprocess.run([self.pgbench, "-i", "-q", "-s", "1", self.url], check=True, capture_output=True)

    def start(self) -> None:
        files = []
        for name, (weight, text) in SCRIPTS.items():
            path = self.folder / f"{name.replace(' ', '-')}.sql"
            # pgbench takes a line for a statement's part; a statement ends with its semicolon.
            path.write_text(f"\\set some random(1, 10)\n{text}\n")
            files.append(f"-f{path}@{weight}")
        self._thread = threading.Thread(target=self._write, args=(files,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _write(self, files: list[str]) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            command = [
                str(self.pgbench), "-n", "-c", str(self.clients), "-j1", f"-T{SLICE_SECONDS}", f"-R{self.rate}",
                "--max-tries=10", f"--random-seed={self.seed * 1000 + number}",
                f"-btpcb-like@{_OWN_WEIGHT}", *files, self.url,
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found = re.search(r"actually processed: (\d+)", done.stdout)
            self.transactions += int(found[1]) if found else 0
            if done.returncode != 0:
                self.interrupted += 1
                said = [line for line in done.stderr.splitlines() if "ERROR" in line or "error:" in line]
                self.complaints += [line for line in said if not _PASSING.search(line)]
                self._stopping.wait(0.2)
