"""A Python process of Spark's JVM lets a fork do its work, and nobody can tell."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest

from penstock.engine.spark import fork_server
from penstock.testing.waiting import eventually

HANG = 300.0
INSTALLED = Path(pyspark.__file__).parent
WORKER_PATH = Path(fork_server.__file__).with_name("worker_path")
DRIVER = """
import sys, threading
from pathlib import Path
from penstock.engine.spark.fork_server import listen, start_fork_server
folder = Path(sys.argv[1])
listening = listen(folder)
kept = open(sys.argv[2], "w")
start_fork_server(folder, listening, {"where"}, {"null"})
threading.Thread(target=print, args=("ready",), kwargs={"flush": True}).start()
sys.stdin.read()
"""


@contextmanager
def driver(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has a fork server, until the end of its input."""
    command = [sys.executable, "-c", DRIVER, str(folder), str(folder / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def of_the_jvm(folder: Path, *words: str, **variables: str) -> dict[str, object]:
    """How the JVM starts a Python process."""
    environment = {**os.environ, "PYTHONPATH": str(WORKER_PATH), "PENSTOCK_FORK_SERVER": str(folder), **variables}
    return {"args": [sys.executable, *words], "env": environment}


def run(folder: Path, *words: str, told: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    given = of_the_jvm(folder, *words, **variables)
    return subprocess.run(**given, input=told, capture_output=True, text=True, timeout=HANG)  # type: ignore[call-overload,no-any-return]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # Longer than the path of a socket may be.
    folder = tmp_path_factory.mktemp("x" * 120)
    with driver(folder):
        yield folder


def test_what_the_fork_prints_is_what_the_process_would_have_printed(served: Path) -> None:
    ended = run(served, "-m", "pyspark.find_spark_home")
    assert (ended.stdout, ended.stderr, ended.returncode) == (f"{INSTALLED}\n", "", 0)


def test_the_fork_has_the_variables_of_the_process(served: Path, tmp_path: Path) -> None:
    assert run(served, "-m", "pyspark.find_spark_home", SPARK_HOME="/elsewhere").stdout == "/elsewhere\n"


def test_a_process_that_fails_fails_as_if_it_had_run_itself(served: Path) -> None:
    ended = run(served, "-m", "pyspark.there_is_no_such_module")
    assert ended.returncode == 1
    assert "there_is_no_such_module" in ended.stderr


def test_other_python_processes_run_by_themselves(served: Path) -> None:
    assert run(served, "-c", "import os; print(os.getppid())").stdout == f"{os.getpid()}\n"


def test_the_daemon_reads_its_input_and_ends_with_it(served: Path, tmp_path: Path) -> None:
    """Spark's way to end it: it prints a port, and waits until its input is closed."""
    forked, by_itself = (
        subprocess.run(
            **of_the_jvm(folder, "-m", "penstock.engine.spark.worker_daemon", "pyspark.worker"),  # type: ignore[call-overload]
            input=b"",
            capture_output=True,
            timeout=HANG,
        )
        for folder in (served, tmp_path)
    )
    assert (len(forked.stdout), forked.stderr) == (4, b"")
    assert forked.returncode == by_itself.returncode


def test_without_a_server_a_process_runs_by_itself(tmp_path: Path) -> None:
    assert run(tmp_path, "-m", "pyspark.find_spark_home").stdout == f"{INSTALLED}\n"


def test_a_server_that_was_killed_is_done_without_although_a_worker_lives_on(tmp_path: Path) -> None:
    """Workers of Spark's daemon end when the JVM lets them."""
    with driver(tmp_path) as parent:
        (server,) = psutil.Process(parent.pid).children()
        given = of_the_jvm(tmp_path, "-m", "penstock.engine.spark.worker_daemon", "pyspark.worker")
        with subprocess.Popen(**given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waits:  # type: ignore[call-overload]
            port = int.from_bytes(waits.stdout.read(4), "big")
            with socket.create_connection(("127.0.0.1", port)):
                (daemon,) = server.children()
                (worker,) = eventually(daemon.children, "the daemon has forked a worker")
                server.kill()
                eventually(lambda: not daemon.is_running(), "the daemon ends with the server")
                assert worker.is_running()
                assert run(tmp_path, "-m", "pyspark.find_spark_home").stdout == f"{INSTALLED}\n"
                assert waits.wait(HANG) == 1
        eventually(lambda: not worker.is_running(), "the worker ends with its connection")


def test_a_server_that_hangs_is_done_without(tmp_path: Path) -> None:
    with driver(tmp_path) as parent:
        (server,) = psutil.Process(parent.pid).children()
        eventually((tmp_path / "fork.ready").exists, "it serves")
        server.suspend()
        assert run(tmp_path, "-m", "pyspark.find_spark_home").stdout == f"{INSTALLED}\n"
        server.resume()
        assert run(tmp_path, "-m", "pyspark.find_spark_home").stdout == f"{INSTALLED}\n"


def test_a_process_that_waits_for_its_fork_ends_with_the_driver(tmp_path: Path) -> None:
    with driver(tmp_path) as parent:
        given = of_the_jvm(tmp_path, "-m", "penstock.engine.spark.worker_daemon", "pyspark.worker")
        waits = subprocess.Popen(**given, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # type: ignore[call-overload]
        with waits:
            assert len(waits.stdout.read(4)) == 4
            forks = psutil.Process(parent.pid).children(recursive=True)
            assert len(forks) == 2
            parent.send_signal(signal.SIGKILL)
            assert waits.wait(HANG) == 1
            eventually(lambda: not any(fork.is_running() for fork in forks), "no fork is left")


def test_forks_keep_nothing_of_the_driver_open(tmp_path: Path) -> None:
    """A lock that the driver held would outlive it."""
    with driver(tmp_path) as parent:
        (server,) = psutil.Process(parent.pid).children()
        assert [Path(file.path).name for file in psutil.Process(parent.pid).open_files()] == ["lock"]
        eventually(lambda: server.open_files() == [], "the server has let go")
