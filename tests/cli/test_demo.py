"""``penstock demo``, the first thing that people run."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import psutil

from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import COMMAND, works
from tests.support.console import ends_in_the_form

README = Path(__file__).parents[2] / "README.md"


def test_the_demo_shows_that_every_event_is_accounted_for(tmp_path: Path) -> None:
    words = [*COMMAND, "demo", "--events", "3000", "--singles", "50"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=2 * HANG, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Every event is accounted for." in ran.stdout
    assert "Stopped clean: yes" in ran.stdout.replace("\n", " ")
    (shown,) = re.findall(r"^```text\n(Accounting\n.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert ends_in_the_form(shown, ran.stdout), "the README shows another demo"


def test_a_demo_that_is_told_to_end_leaves_no_pipeline_behind(tmp_path: Path) -> None:
    words = [*COMMAND, "demo", "--events", "1000", "--singles", "0"]
    demo = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    family = eventually(lambda: psutil.Process(demo.pid).children(recursive=True), "it has started a pipeline")
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(timeout=HANG) == 128 + signal.SIGTERM
    eventually(lambda: not any(works(each) for each in family), "nothing of it runs")
