"""A process of the pipeline never outlives its supervisor, and does not end it for what passes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import psutil

from penstock.engine.processes.child import EXIT_RETRY, SUPERVISOR_VARIABLE
from penstock.testing.waiting import HANG, eventually

PIPELINE = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes: {out: {from: web, to: {type: stdout}}}
"""


def command(folder: Path) -> list[str]:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "web.ndjson").write_text('{"n": 1}\n')
    return [sys.executable, "-m", "penstock.engine.processes.child", str(folder / "pipeline.yaml"), "source", "web"]


def test_a_child_whose_supervisor_died_while_it_started_ends_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, SUPERVISOR_VARIABLE: "1"}
    assert subprocess.run(command(tmp_path), env=environment, timeout=HANG).returncode == 1
    assert not (tmp_path / "data").exists()


def test_a_source_that_finds_no_room_is_started_again_and_takes_nobody_with_it(tmp_path: Path) -> None:
    """The others go on: of them, the engine's retention may be what makes room."""

    def fill_the_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    ran = subprocess.run(
        command(tmp_path), preexec_fn=fill_the_disk, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert "PEN-LOG-004" in ran.stderr
    assert ran.returncode == EXIT_RETRY


def test_a_child_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, signal, subprocess, sys;"
        f"child = subprocess.Popen(sys.argv[1:], env={{**os.environ, '{SUPERVISOR_VARIABLE}': str(os.getpid())}});"
        "print(child.pid, flush=True); signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, *command(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    eventually(lambda: (tmp_path / "data" / "log").exists(), "the source works")
    parent.kill()
    parent.communicate()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the child is gone")
