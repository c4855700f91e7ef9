"""``penstock`` as a process of its own.

It is forked from one that has loaded everything, which saves two seconds of work each time. The commands of README,
tutorials and examples are started as a user would start them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import psutil

from penstock import faults
from penstock.cli.main import main
from penstock.engine.processes.forked_process import end_with
from penstock.testing.forked import make_process
from penstock.testing.waiting import HANG


class Command(Protocol):
    """A process, as ``subprocess.Popen`` shows it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...


def command_of(process: psutil.Process) -> list[str]:
    """The words of its command line, none if it has ended. A fork that has given itself another command line may have
    it as a single word."""
    try:
        return " ".join(process.cmdline()).split()
    except psutil.Error:
        return []


def start_penstock(
    words: Sequence[str], folder: Path, out: Path, err: Path | None = None, environment: Mapping[str, str] | None = None
) -> Command:
    """``penstock`` with these words, in that folder. What it prints is appended to ``out``, or to both files."""
    if environment and environment.keys() & {"LD_PRELOAD", "PYTHONPATH"}:
        # A program looks at these when it begins, and a fork has begun.
        return _start_program(words, folder, out, err or out, environment)
    return _Forked(words, folder, out, err or out, environment or {})


def run_penstock(
    words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``penstock`` with these words, to its end."""
    with TemporaryDirectory(prefix="penstock-command-") as printed:
        out, err = Path(printed, "out"), Path(printed, "err")
        code = start_penstock(words, folder, out, err, environment).wait(2 * HANG)
        return subprocess.CompletedProcess([*words], code, out.read_text(), err.read_text())


def _start_program(words: Sequence[str], folder: Path, out: Path, err: Path, environment: Mapping[str, str]) -> Command:
    command = [sys.executable, "-m", "penstock.cli.main", *words]
    with out.open("ab") as output, err.open("ab") as errors:
        return subprocess.Popen(command, cwd=folder, stdout=output, stderr=errors, env={**os.environ, **environment})


class _Forked:
    def __init__(
        self, words: Sequence[str], folder: Path, out: Path, err: Path, environment: Mapping[str, str]
    ) -> None:
        self._process = make_process(_run, list(words), folder, out, err, dict(environment))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("penstock", timeout or 0.0)
        return code

    def send_signal(self, sig: int, /) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self._process.kill()


def _run(words: list[str], folder: Path, out: Path, err: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    faults.arm()
    os.chdir(folder)
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), stream.fileno())
    sys.argv = ["penstock", *words]
    end_with(_main)


def _main() -> int:
    main()
    return 0
