"""The example of traces, run as its README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from penstock.testing.waiting import eventually
from tests.cli.processes import Terminal, running
from tests.support.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "traces"


def outputs() -> list[str]:
    return re.findall(r"^```text\n(.*?)^```$", (EXAMPLE / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_example_keeps_what_its_readme_says(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data", "*.duckdb", "*.html"))
    port = str(free_port())
    # The verbs beside the pipeline run in this process.
    (folder / "pipeline.yaml").write_text((folder / "pipeline.yaml").read_text().replace("${OTLP_PORT:-4318}", port))
    terminal = Terminal(folder)

    def python(*words: str) -> str:
        return subprocess.run(
            [sys.executable, *words], cwd=folder, check=True, capture_output=True, text=True, env=dict(os.environ)
        ).stdout

    sent, kept = outputs()
    with running(folder) as run:
        eventually(lambda: f"otlp on 127.0.0.1:{port}" in run.said and terminal.route("kept"), "it runs")
        assert python("shop.py", "1000", port) == sent
        eventually(lambda: terminal.route("kept").get("in", 0) and terminal.route("kept")["lag"] == 0, "all is read")
        run.interrupt()
        run.process.wait(60)
    assert python("kept.py") == kept
    shown = terminal.penstock("sample", "status").stdout
    assert re.search(r"kept +errors +Sampled +- +20\n", shown), shown
    assert re.search(r"kept +primary +\d+ +100,000\n", shown), shown
