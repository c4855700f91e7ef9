"""Work on a log in a process that is killed at a named point, again and again without starting Python each time."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import penstock.log

_ROOT = Path(__file__).parents[2]

_SERVER = """
import importlib, os, sys
from pathlib import Path
from penstock import faults
from penstock.log.maintenance.compaction import compact
from penstock.log.maintenance.compaction_keys import KeyHash
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.repair import repair
from tests.contract.log import config
from tests.log.samples import numbered
import numpy as np

OPTIONS = config(segment_bytes=6000, retention={"max_age": None})
WORK = {
    "compact": lambda log: compact(log, {0: log.bounds(0).end}),
    "repair": lambda log: repair(log),
}
KeyHash().hash(numbered([1]), np.empty(1, np.uint64), np.empty(1, np.uint64))
for line in sys.stdin:
    work, folder, fault = line.split()
    child = os.fork()
    if child == 0:
        os.environ["PENSTOCK_FAULTS"] = fault
        importlib.reload(faults)
        WORK[work](LocalLog(Path(folder), OPTIONS))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Crashing:
    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def dies(self, work: str, folder: Path, fault: str) -> bool:
        """Do the work on a log; whether it came to the fault, ``point@nth``, and was killed there."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(f"{work} {folder} {fault}=kill\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        assert code in (0, -9)
        return code == -9


@contextmanager
def crashing() -> Iterator[Crashing]:
    command = [sys.executable, "-c", _SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env={"PYTHONPATH": str(_ROOT)}, **pipes) as server:
        yield Crashing(server)
        assert server.stdin is not None
        server.stdin.close()


def fault_points(*kinds: str) -> list[str]:
    """Every point of these kinds that the log's code names: a new one is tried without being listed here."""
    found: set[str] = set()
    for path in Path(penstock.log.__path__[0]).rglob("*.py"):
        found.update(re.findall(r'reach\("(log\.\w+\.\w+)"\)', path.read_text()))
    return sorted(point for point in found if point.split(".")[1] in kinds)
