"""A process of the pipeline never outlives its supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from penstock.engine.child import SUPERVISOR_VARIABLE
from tests.support.waiting import eventually

PIPELINE = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes: {out: {from: web, to: {type: stdout}}}
"""


def command(folder: Path) -> list[str]:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "web.ndjson").write_text('{"n": 1}\n')
    return [sys.executable, "-m", "penstock.engine.child", str(folder / "pipeline.yaml"), "source", "web"]


def test_a_child_whose_supervisor_died_while_it_started_ends_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, SUPERVISOR_VARIABLE: "1"}
    assert subprocess.run(command(tmp_path), env=environment, timeout=60).returncode == 1
    assert not (tmp_path / "data").exists()


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
