"""A process that begins as a copy of this one: what is imported here need not be imported again there."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from typing import BinaryIO, NoReturn

from setproctitle import setproctitle


def release_files(kept: Set[int] = frozenset()) -> None:
    """Let go of every open file but the three standard streams and ``kept``."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        # Replaced and not closed: an object that still names one must not close what gets its number next.
        if number > 2 and number not in kept and number != null:
            with suppress(OSError):
                os.dup2(null, number, inheritable=False)


def reopen_input() -> None:
    """After a fork has been given another standard input: what Python has read ahead of the old one is not its own."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # it is the process's own, to its end


class ForkedProcess:
    """Runs ``main`` with ``arguments`` in a session of its own; what it returns is the exit code. ``module`` names it
    to whoever lists processes. With ``waits`` its standard input is a pipe, of which ``stdin`` is our end. The rest is
    as in ``subprocess.Popen``. The process that forks must have no thread. Linux only."""

    def __init__(
        self, main: Callable[[list[str]], int], module: str, arguments: Sequence[str], waits: bool = False
    ) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # Whoever started us may have ignored it, which we inherit: then the system forgets how children end.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        begun, begins = os.pipe()
        their_input, our_end = os.pipe() if waits else (None, None)
        self.stdin: BinaryIO | None = None if our_end is None else os.fdopen(our_end, "wb")
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            end_with(lambda: _run(main, module, arguments, their_input))
        for end in (begins, their_input):
            if end is not None:
                os.close(end)
        # From then on it has a session, and whoever ends that ends it.
        os.read(begun, 1)
        os.close(begun)

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; ``None`` while it runs."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self) -> int:
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def _run(main: Callable[[list[str]], int], module: str, arguments: Sequence[str], standard_input: int | None) -> int:
    os.setsid()
    if standard_input is not None:
        os.dup2(standard_input, 0)
        reopen_input()
    release_files()
    set_command_line(module, arguments)
    return main([*arguments])


def set_command_line(module: str, arguments: Sequence[str]) -> None:
    """Look like a Python that was started with ``-m module``."""
    sys.argv = [module, *arguments]
    setproctitle(f"{sys.executable} -m {' '.join(sys.argv)}")


def end_with(run: Callable[[], int]) -> NoReturn:
    """Run it, and end this process with what it returns, whatever happens: a fork must never go on as its parent."""
    code = 1
    try:
        code = run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)
