"""A process from which Spark's Python processes are forked, for all engines that tests run in their own process.

`penstock run` has one for each engine. Without it, each of these processes imports everything anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.engine.spark.fork_server import FOLDER_VARIABLE, listen

_SERVE = """
import socket, sys
from pathlib import Path
from penstock.engine.spark.fork_server import start_fork_server
steps, destinations = {"where", "map", "dedupe", "gather", "sample"}, {"duckdb", "postgres"}
start_fork_server(Path(sys.argv[2]), socket.socket(fileno=int(sys.argv[1])), steps, destinations)
sys.stdin.read()
"""


@contextmanager
def forking(folder: Path) -> Iterator[None]:
    """Every JVM of Spark that is started meanwhile has its Python processes forked. ``folder`` is for this alone."""
    with listen(folder) as listening:
        number = listening.fileno()
        command = [sys.executable, "-c", _SERVE, str(number), str(folder)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])
    os.environ[FOLDER_VARIABLE] = str(folder)
    try:
        with server:
            yield
    finally:
        del os.environ[FOLDER_VARIABLE]
