"""One engine per data folder, also right after the last one was killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.engine.processes.engine_lock import EngineLock
from penstock.errors import RouteError


def test_a_second_engine_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    first = EngineLock(tmp_path)
    first.acquire()
    with pytest.raises(RouteError, match="another engine"):
        EngineLock(tmp_path).acquire()
    first.release()
    EngineLock(tmp_path).acquire()


def test_the_lock_of_a_killed_engine_is_free(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from penstock.engine.processes.engine_lock import EngineLock;"
        "EngineLock(Path(sys.argv[1])).acquire(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)]).returncode == -9
    EngineLock(tmp_path).acquire()


def test_a_new_engine_waits_for_the_old_ones_jvm(tmp_path: Path) -> None:
    jvm = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from penstock.engine.processes.engine_lock import EngineLock;"
        "lock = EngineLock(Path(sys.argv[1])); lock.acquire(); lock.note_jvm(int(sys.argv[2]));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path), str(jvm.pid)])
    with pytest.raises(RouteError, match="still alive"):
        EngineLock(tmp_path).acquire(patience=0.1)
    assert jvm.stdin is not None
    threading.Timer(0.2, jvm.stdin.close).start()
    EngineLock(tmp_path).acquire(patience=20)
    assert jvm.poll() is not None, "only this thread reaps it, so a process that has ended is seen to have"
