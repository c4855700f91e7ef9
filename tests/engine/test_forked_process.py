"""A child of the supervisor is a copy of it with nothing of its own but what is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from penstock.testing.waiting import HANG

_SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from penstock.engine.processes.forked_process import ForkedProcess

{before}

def main(arguments):
    {body}

kept = open(os.devnull)
process = ForkedProcess(main, "some.module", ["a b", "engine"], waits=True)
{after}
process.stdin.close()
print(json.dumps(process.wait()))
"""


def fork(body: str, before: str = "", after: str = "") -> list[Any]:
    """Fork from a process that has no thread; what both print, the code of the fork last."""
    script = _SCRIPT.format(body=body, before=before, after=after)
    done = subprocess.run(
        [sys.executable, "-c", script], input="ours", capture_output=True, text=True, timeout=HANG, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return 4", 4),
        ("sys.exit(3)", 3),
        ("raise ValueError('no')", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
@pytest.mark.parametrize("before", ["", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"])
def test_it_ends_with_what_its_function_returns_raises_or_suffers(body: str, code: int, before: str) -> None:
    assert fork(body, before) == [code]


def test_it_reads_a_pipe_that_ends_when_it_is_closed() -> None:
    after = "process.stdin.write(b'theirs'); process.stdin.flush()"
    assert fork("print(json.dumps(sys.stdin.read())); return 0", after=after) == ["theirs", 0]


def test_it_has_a_session_and_a_name_of_its_own_and_no_file_of_its_parent() -> None:
    body = """
    links = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if int(number) > 2]
    print(json.dumps([os.getsid(0) == os.getpid(), any("pipe" in link or "socket" in link for link in links)]))
    print(json.dumps([sys.argv, "engine" in Path("/proc/self/cmdline").read_text()]))
    return 0
"""
    assert fork(body) == [[True, False], [["some.module", "a b", "engine"], True], 0]


def test_one_that_has_just_begun_can_be_ended_with_its_session() -> None:
    after = "os.killpg(process.pid, signal.SIGKILL)"
    assert fork("signal.pause()", after=after) == [-9]
