"""Clocks that are set while a pipeline runs: what is measured goes by a clock that nobody can set."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.engine.ledger.target_locks import Sightings
from penstock.engine.processes.process_identity import start_time
from penstock.engine.steady_clock import Clocks, ClockState, SteadyClock, observe
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
from tests.support.clock import DAY, HOUR, SteppedClock

WEEK = 7 * DAY


@dataclass
class Machine:
    """Its clocks, and what a pipeline on it has seen of them."""

    wall: float = 1_800_000_000.0
    running: float = 1_000.0
    boot: str = "first"
    seen: ClockState | None = field(default=None)

    def look(self) -> float:
        self.seen = observe(self.seen, Clocks(self.wall, self.running, self.boot), WEEK)
        return self.seen.trusted

    def live(self, seconds: float) -> float:
        """Let time pass, with a look every minute or so, as retention has it."""
        for _ in range(100):
            self.wall += seconds / 100
            self.running += seconds / 100
            self.look()
        return self.look()


@pytest.mark.parametrize("step", [2 * DAY, 30 * DAY, 56 * 365 * DAY])
def test_what_was_just_written_is_not_old_because_the_clock_was_set_forward(step: float) -> None:
    machine = Machine()
    machine.look()
    machine.live(HOUR)
    written = machine.wall
    machine.wall += step
    assert machine.look() == pytest.approx(written, abs=10)
    assert machine.live(3 * DAY) == pytest.approx(written + 3 * DAY, abs=10)
    # What is as old as it looks may go: a clock that was wrong and was set right holds the log for no longer than that.
    assert machine.live(4.1 * DAY) == pytest.approx(machine.wall, abs=10)


def test_a_clock_that_is_set_back_makes_nothing_older() -> None:
    machine = Machine()
    machine.look()
    machine.wall -= 3 * HOUR
    assert machine.look() == machine.wall
    machine.wall += 2 * DAY
    machine.look()
    machine.wall -= 2 * DAY
    assert machine.look() == pytest.approx(machine.wall, abs=10)


def test_small_corrections_and_time_that_the_machine_slept_are_believed() -> None:
    machine = Machine()
    machine.look()
    machine.wall += 2.0
    assert machine.look() == machine.wall
    machine.wall += 5 * DAY
    machine.running += 5 * DAY
    assert machine.look() == machine.wall


@pytest.mark.parametrize("off", [30.0, 3 * DAY])
def test_time_that_the_machine_was_off_is_believed_once_it_has_run_for_an_hour(off: float) -> None:
    machine = Machine()
    machine.look()
    before = machine.live(HOUR)
    machine.wall, machine.running, machine.boot = machine.wall + off, 5.0, "second"
    assert machine.look() == pytest.approx(before, abs=10)
    assert machine.live(1.1 * HOUR) == machine.wall


def test_a_clock_that_is_wrong_at_the_boot_and_set_right_makes_nothing_older() -> None:
    machine = Machine()
    machine.look()
    before = machine.live(HOUR)
    machine.wall, machine.running, machine.boot = machine.wall + 9 * 365 * DAY, 5.0, "second"
    assert machine.live(60.0) == pytest.approx(before + 60.0, abs=10)
    machine.wall -= 9 * 365 * DAY
    assert machine.look() == pytest.approx(machine.wall, abs=10)
    assert machine.live(DAY) == pytest.approx(machine.wall, abs=10)


def test_a_machine_that_is_switched_off_every_night_does_not_fall_behind() -> None:
    machine = Machine()
    machine.look()
    for day in range(30):
        machine.wall, machine.running, machine.boot = machine.wall + 14 * HOUR, 5.0, f"boot {day}"
        machine.look()
        machine.live(10 * HOUR)
    assert machine.look() == machine.wall


def test_a_restart_of_the_engine_or_of_the_machine_does_not_believe_a_step(tmp_path: Path) -> None:
    path = tmp_path / "run" / "clock.json"
    assert SteadyClock(path).now(WEEK, Clocks(1000.0, 10.0, "first")) == 1000.0
    assert SteadyClock(path).now(WEEK, Clocks(1060.0 + 2 * DAY, 70.0, "first")) == pytest.approx(1060.0)
    assert SteadyClock(path).now(WEEK, Clocks(1090.0 + 2 * DAY, 5.0, "second")) == pytest.approx(1065.0)
    for content in ("{", '{"clocks": {"wall": "x", "running": 1, "boot": "second"}, "ahead": 0, "since": 0}'):
        path.write_text(content)
        assert SteadyClock(path).now(WEEK, Clocks(7.0, 6.0, "second")) == 7.0


def test_a_full_disk_does_not_keep_retention_from_making_room(tmp_path: Path) -> None:
    path = tmp_path / "run" / "clock.json"
    clock = SteadyClock(path)
    assert clock.now(WEEK, Clocks(1000.0, 10.0, "first")) == 1000.0
    path.with_suffix(".new").symlink_to("/dev/full")
    assert clock.now(WEEK, Clocks(1060.0 + 2 * DAY, 70.0, "first")) == pytest.approx(1060.0)
    assert clock.now(WEEK, Clocks(1120.0 + 2 * DAY, 130.0, "first")) == pytest.approx(1120.0), "it is not forgotten"


def test_a_lock_is_abandoned_when_it_was_not_renewed_for_as_long_as_one_has_looked() -> None:
    seen, lock = Sightings(), ("scope", "events")
    assert seen.unchanged_for(lock, ("ada", 5.0), 100.0) == 0
    assert seen.unchanged_for(lock, ("ada", 5.0), 190.0) == 90.0
    assert seen.unchanged_for(lock, ("ada", 4.0), 200.0) == 0, "renewed, by a clock that was set back"
    assert seen.unchanged_for(lock, ("bob", 4.0), 300.0) == 0, "somebody else has it"
    assert seen.unchanged_for(lock, None, 350.0) == 0
    assert seen.unchanged_for(lock, ("bob", 4.0), 400.0) == 0
    assert seen.unchanged_for(lock, ("bob", 4.0), 521.0) == 121.0


def test_a_process_is_known_by_its_birth_whatever_the_clock_says(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    script = f"from penstock.engine.processes.process_identity import start_time; print(start_time({os.getpid()}))"
    told = []
    for step in (0, 2 * DAY, -5 * DAY):
        clock.step(step)
        environment = {**os.environ, **clock.environment}
        told.append(subprocess.check_output([sys.executable, "-c", script], env=environment, text=True).strip())
    assert set(told) == {start_time(os.getpid())}
    ended = subprocess.Popen([sys.executable, "-c", ""])
    number = ended.pid
    os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)
    assert start_time(number) is None, "nobody has asked for how it ended, and it runs no more"
    ended.wait()
    assert start_time(number) is None


_WRITER = """
import sys, time
from pathlib import Path
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
with LocalLog(Path(sys.argv[1]), LogConfig(segment_age=3600)).writer("web") as writer:
    for line in sys.stdin:
        writer.append(entries([Record(b"{}")]))
        print(len(list(Path(sys.argv[1]).glob("*/*.seg"))), flush=True)
"""


def test_segments_grow_old_with_the_time_that_passes(tmp_path: Path) -> None:
    clock, log = SteppedClock(tmp_path), tmp_path / "log"
    with LocalLog(log, LogConfig()).writer("web") as writer:
        writer.append(entries([Record(b"{}")]))
    environment = {**os.environ, **clock.environment}
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for step in (0, 2 * DAY, -5 * DAY):
            clock.step(step)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "1\n"
        process.stdin.close()
