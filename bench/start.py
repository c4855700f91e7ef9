"""``penstock run --once`` over the project that ``penstock init`` makes, the whole command: what a person waits for.

    python -m bench.start [--before OTHER/.venv/bin/penstock] [--rounds 5]

``--before`` is the command of another version, installed beside this one: both run by turns. The limit is a bare
PySpark that starts a session in its own way and counts 20 rows. Memory is the proportional share of every process:
what forks have in common counts once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bench.measure import Comparison, Contender, Figure, Goal, Role, Setting, by_turns, machine, markdown

GOAL = 2.5
LOOK_EVERY = 0.25
IDLE = 10.0
PATIENCE = 600.0
BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.range(20).count() == 20
spark.stop()
"""
# As a user has it: Python keeps what it compiled.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(setting: Setting) -> list[Comparison]:
    return compare(setting.folder, setting.choose(5, 1), None)


def compare(folder: Path, rounds: int, before: Path | None) -> list[Comparison]:
    us = Path(sys.executable).with_name("penstock")
    commands = {"Penstock": us} if before is None else {"Penstock": us, "Penstock before": before}
    roles = {"Penstock": Role.US, "Penstock before": Role.PEER}
    projects = {
        name: _make_project(folder / name.replace(" ", "-").lower(), command) for name, command in commands.items()
    }
    contenders = [
        Contender(roles[name], name, lambda name=name: _seconds_once(commands[name], projects[name]))  # type: ignore[misc]
        for name in commands
    ]
    bare = Contender(Role.LIMIT, "bare PySpark: a session, and 20 rows counted", _seconds_bare)
    times = by_turns([*contenders, bare], rounds, warm_up=1)
    return [
        Comparison("start: run --once", "s", times, _faster(times)),
        _memory("start: peak memory of run --once", commands, lambda name: _peak_once(commands[name], projects[name])),
        _memory("start: memory of an idle run", commands, lambda name: _idle(commands[name], projects[name])),
    ]


def _faster(times: tuple[Figure, ...]) -> Goal | None:
    found = {figure.role: figure.value for figure in times}
    if Role.PEER not in found:
        return None
    ratio = found[Role.PEER] / found[Role.US]
    return Goal(f">= {GOAL} x faster than before ({ratio:.2f} x)", ratio >= GOAL)


def _memory(name: str, commands: dict[str, Path], measure: Callable[[str], float]) -> Comparison:
    roles = (Role.US, Role.PEER)
    figures = tuple(Figure(role, of, (measure(of),)) for role, of in zip(roles, commands, strict=False))
    goal = Goal("not more than before", figures[0].value <= figures[1].value) if len(figures) == 2 else None
    return Comparison(name, "MiB", figures, goal)


def _make_project(folder: Path, command: Path) -> Path:
    folder.mkdir(parents=True)
    subprocess.run([command, "init", "."], cwd=folder, env=_ENVIRONMENT, capture_output=True, check=True)
    return folder


def _seconds_once(command: Path, project: Path) -> float:
    shutil.rmtree(project / "data", ignore_errors=True)
    began = time.perf_counter()
    ended = subprocess.run([command, "run", "--once"], cwd=project, env=_ENVIRONMENT, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    assert ended.returncode == 0, ended.stderr
    assert "17 loaded, 2 skipped, 1 failed" in ended.stderr
    return seconds


def _seconds_bare() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", BARE], env=_ENVIRONMENT, capture_output=True, check=True)
    return time.perf_counter() - began


@contextmanager
def _running(command: Path, project: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    shutil.rmtree(project / "data", ignore_errors=True)
    said: list[str] = []
    with subprocess.Popen(
        [command, "run", *options],
        cwd=project,
        env=_ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        reader = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
        reader.start()
        yield process, said
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


def _peak_once(command: Path, project: Path) -> float:
    peak = 0.0
    with _running(command, project, "--once") as (process, _):
        while process.poll() is None:
            peak = max(peak, _share(process.pid))
            time.sleep(LOOK_EVERY)
    return peak


def _idle(command: Path, project: Path) -> float:
    with _running(command, project) as (process, said):
        deadline = time.monotonic() + PATIENCE
        while not any("committed" in line for line in said):
            assert time.monotonic() < deadline, said
            time.sleep(LOOK_EVERY)
        time.sleep(IDLE)
        return _share(process.pid)


def _share(pid: int) -> float:
    found = 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                found += process.memory_full_info().pss
    return found / 2**20


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.start")
    parser.add_argument("--before", type=Path, help="the command `penstock` of another version")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    title = machine()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-start-") as folder:
        found = compare(Path(folder), given.rounds, given.before)
    print(f"{title}\n\n{markdown(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
