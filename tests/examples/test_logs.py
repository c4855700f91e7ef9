"""The example of logs, run as its README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

from penstock.testing.waiting import eventually
from tests.cli.processes import Terminal, running
from tests.simulators.dataset import TAKE, DatasetServer, Reply, dataset_server
from tests.support.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "logs"


def busy_now_and_then(session: str, number: int) -> Reply:
    return Reply(503, b"{}") if zlib.crc32(f"{session}{number}".encode()) % 10 == 0 else TAKE


def test_the_lines_of_each_file_arrive_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data"))
    port = str(free_port())
    (said,) = re.findall(r"^```text\n(.*?)^```$", (EXAMPLE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    terminal = Terminal(folder)
    with dataset_server(DatasetServer(decide=busy_now_and_then)) as server:
        config = (folder / "pipeline.yaml").read_text().replace("${OTLP_PORT:-4318}", port)
        (folder / "pipeline.yaml").write_text(config.replace("${DATASET_PORT:-9000}", str(server.port)))
        with running(folder) as run:
            eventually(lambda: f"otlp on 127.0.0.1:{port}" in run.said and terminal.route("export"), "it runs")
            command = [sys.executable, "apps.py", "100", port]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=dict(os.environ), check=True)
            assert done.stdout == said
            eventually(lambda: len(server.events) == 600, "all arrive")
            run.interrupt()
            run.process.wait(60)
        assert not server.overlaps
        assert not server.complaints
        files = {(each.info["serverHost"], each.info["logfile"]): each.session for each in server.accepted}
        assert len(files) == len(set(files.values())) == 6
        for lines in server.by_session().values():
            assert [event["attrs"]["n"] for event in lines] == list(range(100))
            assert [event["sev"] for event in lines[:2]] == [4, 3]
            assert lines[7]["attrs"]["message"] == "request 7 was served"
