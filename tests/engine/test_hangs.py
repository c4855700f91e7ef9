"""What lives and does nothing: the supervisor sees it, status and doctor say it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from penstock.boot import boot_id
from penstock.engine.layout import Layout
from penstock.engine.processes import hang_detection
from penstock.engine.processes.hang_detection import START_SILENCE, EngineWatch, StoppedProcesses
from penstock.engine.processes.heartbeat_writer import HeartbeatWriter
from penstock.engine.processes.idle_timer import IdleTimer
from penstock.engine.processes.presence import engine_silence, stalled_routes
from penstock.engine.processes.process_identity import start_time
from penstock.engine.spark.session_settings import master_with_slots
from penstock.heartbeat import Beat, HeartbeatFile, read_beat
from penstock.sources.http.readiness import Readiness
from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal
from tests.engine.projects import pipeline

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes: {audit: {from: web, to: {type: "null"}}}
"""


def test_time_in_which_the_watcher_itself_did_not_run_is_not_held_against_anybody() -> None:
    stillness = IdleTimer()
    assert [stillness.observe("a", now) for now in (0.0, 0.5, 1.0, 9_000.0, 9_000.5)] == [0.0, 0.5, 1.0, 2.0, 2.5]
    assert stillness.observe("b", 9_001.0) == 0.0


class Clock:
    """The clock of a watcher, in steps of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr("penstock.engine.processes.hang_detection.time.monotonic", lambda: self.now)


def watch(clock: Clock, life: EngineWatch, pid: int, seconds: float) -> float:
    """The longest silence that is found too long in so many seconds of looking."""
    found = 0.0
    for _ in range(int(seconds)):
        clock.now += 1.0
        found = max(found, life.silent_too_long(pid))
    return found


def test_an_engine_is_given_up_when_its_number_does_not_move_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, life, file = Clock(monkeypatch), EngineWatch(tmp_path, 60.0), HeartbeatFile(tmp_path, 1)
    assert watch(clock, life, 7, START_SILENCE - 10) == 0, "it is starting, and may take its time"
    for number in range(100):
        file.write(Beat(7, number, 0.0, running=True))
        assert watch(clock, life, 7, 2) == 0
    clock.now += 100_000
    assert watch(clock, life, 7, 50) == 0, "the machine slept, and the engine with it"
    assert watch(clock, life, 7, 15) > 60
    assert watch(clock, life, 8, 100) == 0, "its successor starts"
    assert watch(clock, life, 8, START_SILENCE) > START_SILENCE, "and never comes to an end with it"


def running_script(parent: int, script: str) -> psutil.Process | None:
    """The child of a process that has begun to run a script."""
    return next((each for each in psutil.Process(parent).children() if script in each.cmdline()), None)


def test_a_stopped_process_is_told_to_go_on(capfd: pytest.CaptureFixture[str]) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as child:
        # A process that is not yet what it will be holds its parent up, which then is stopped later than it is told.
        grandchild = eventually(lambda: running_script(child.pid, "input()"), "it has a child of its own")
        both = [psutil.Process(child.pid), grandchild]
        for process in both:
            process.suspend()
        eventually(lambda: all(each.status() == psutil.STATUS_STOPPED for each in both), "both are stopped")
        stopped = StoppedProcesses(stopped_for=1.5)

        def go_on() -> bool:
            stopped.resume_stopped()
            return psutil.STATUS_STOPPED not in {each.status() for each in both}

        assert not go_on(), "somebody may look at it for a moment"
        eventually(go_on, "both go on")
        child.communicate(b"\n")
        assert child.returncode == 0


def test_a_stopped_process_that_is_ended_at_that_moment_takes_nobody_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        child.wait()
    monkeypatch.setattr(hang_detection, "_stopped", lambda: [(child, "engine")])
    clock, stopped = Clock(monkeypatch), StoppedProcesses(stopped_for=1.5)
    for _ in range(5):
        clock.now += 1.0
        stopped.resume_stopped()


def test_an_engine_with_fewer_routes_than_the_one_before_is_heard(tmp_path: Path) -> None:
    many = {f"route-{n}-{'x' * 50}": 100.0 for n in range(9)}
    HeartbeatFile(tmp_path, len(many)).write(Beat(7, 1, 0.0, running=True, routes=many))
    HeartbeatFile(tmp_path, 1).write(Beat(8, 1, 0.0, running=True))
    assert read_beat(tmp_path) == Beat(8, 1, 0.0, running=True)


@pytest.mark.parametrize(
    ("boot", "later"),
    [("another", -5.0), ("another", 3600.0), (boot_id(), 3600.0)],
    ids=["the clock is past it", "the clock is not there yet", "no names for boots"],
)
def test_a_beat_from_before_the_machine_started_is_no_sign_of_life(tmp_path: Path, boot: str, later: float) -> None:
    readiness, file = Readiness(), HeartbeatFile(tmp_path, 1)
    readiness.run_dir = tmp_path
    file.write(Beat(os.getpid(), 1, time.monotonic() + later, running=True, boot=boot))
    assert readiness.engine == "unknown"
    file.write(Beat(os.getpid(), 2, time.monotonic(), running=True))
    assert readiness.engine == "ok"


def test_status_and_doctor_and_the_collector_say_that_an_engine_is_silent(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(CONFIG)
    (tmp_path / "web.ndjson").write_text("")
    terminal, layout = Terminal(tmp_path), Layout(tmp_path / "data")
    layout.run.mkdir(parents=True)
    (layout.run / "engine.lock").write_text(f"{os.getpid()} {start_time(os.getpid())}")
    pipeline(tmp_path, CONFIG).ledger.close()
    readiness, file = Readiness(), HeartbeatFile(layout.run, 1)
    readiness.run_dir = layout.run
    assert readiness.engine == "unknown"

    file.write(Beat(os.getpid(), 1, time.monotonic(), True, {"audit": 40.0}))
    assert engine_silence(layout, os.getpid()) is None
    assert readiness.engine == "ok"
    assert stalled_routes(layout, os.getpid()) == {"audit": 40.0}
    assert "audit: its tasks have not moved for 40 s" in terminal.penstock("status").stdout

    file.write(Beat(os.getpid(), 2, time.monotonic() - 100, True))
    assert readiness.engine.startswith("silent for 10")
    assert "has given no sign of life for 1" in terminal.penstock("status").stdout
    assert terminal.json("status")["engine_silent_seconds"] > 99
    examined = terminal.penstock("doctor", "--json")
    (engine,) = [found for found in json.loads(examined.stdout) if found["subject"] == "engine"]
    assert engine["verdict"] == "fail"
    assert "has given no sign of life" in engine["found"]


def test_the_heartbeat_stops_with_a_jvm_that_does_not_answer_and_survives_a_full_disk(tmp_path: Path) -> None:
    heartbeat = HeartbeatWriter(tmp_path / "run", 7, 1)
    heartbeat.running = True
    heartbeat.start()
    eventually(lambda: (beat := read_beat(tmp_path / "run")) is not None and beat.number > 0, "it beats")

    def fail() -> None:
        raise OSError("No space left on device")

    heartbeat.ping_jvm = fail
    eventually(lambda: (beat := read_beat(tmp_path / "run")) is not None and beat.silence() > 3, "it is silent")
    assert heartbeat.is_alive()
    heartbeat.ping_jvm = lambda: None
    eventually(lambda: (beat := read_beat(tmp_path / "run")) is not None and beat.silence() < 2, "it beats again")
    heartbeat.stop()
    heartbeat.join(HANG)


@pytest.mark.parametrize(
    ("master", "routes", "tasks", "chosen"),
    [
        ("local[*]", 1, 3, "local[2]"),
        ("local[*]", 2, 3, "local[6]"),
        ("local[*]", 2, 1, "local[4]"),
        ("local[*]", 9, 1, "local[6]"),
        ("local[4]", 2, 3, "local[8]"),
        ("local", 2, 3, "local"),
        ("spark://host:7077", 2, 3, "spark://host:7077"),
    ],
)
def test_a_route_whose_tasks_all_hang_leaves_places_for_the_others(
    master: str, routes: int, tasks: int, chosen: str
) -> None:
    assert master_with_slots(master, 2, routes, tasks) == chosen
