"""Somebody types what the README says, command by command, and sees what it shows. Tutorials, if there are any, too."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.testing.waiting import HANG, eventually
from tests.support.console import Typed, console_blocks, shows
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/tutorials/*.md"))]
HOME = "/home/ada"
"""Where the documents are typed."""
PORT = "8001"
"""What a new project listens on."""
SENDS = "curl "
"""What must not be typed twice: all else only looks, and can be typed again until what was sent has arrived."""


class Reader:
    """Types commands in a folder of their own, on a port that is free; what is to be left running is."""

    def __init__(self, folder: Path) -> None:
        self._home = self._folder = folder
        self._port = str(free_port())
        (folder / ".curlrc").write_text("silent\nshow-error\n")  # a terminal shows no progress of so little
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "CURL_HOME": str(folder), "TZ": "UTC", "no_proxy": "*"}
        self._running: subprocess.Popen[bytes] | None = None

    def follow(self, typed: Typed) -> None:
        """Type a command, and see what is shown. While something runs beside it, that may take a moment."""
        command = typed.command.replace(PORT, self._port)
        if typed.keeps_running:
            with (self._home / "running.log").open("w") as log:
                self._running = subprocess.Popen(
                    ["bash", "-c", f"exec {command}"],
                    cwd=self._folder, env=self._environment, stdout=log, stderr=log,
                )  # fmt: skip
        elif self._running is None:
            code, printed = self._type(command)
            assert code == 0, f"{command}\n{printed}"
            assert shows(typed.shown, printed), self._differs(typed, printed)
        else:
            eventually(lambda: self._succeeds(typed, command), f"{command}\nshows\n{typed.shown}", every=1)

    def press_ctrl_c(self) -> None:
        """End what was left running, as a person would."""
        if self._running is not None:
            self._running.send_signal(signal.SIGINT)
            assert self._running.wait(timeout=HANG) == 0, self._log()

    def leave(self) -> None:
        if self._running is not None:
            self._running.kill()

    def _succeeds(self, typed: Typed, command: str) -> bool:
        code, printed = self._type(command)
        if code != 0:
            assert self._is_running(), f"{command}\n{printed}\n{self._log()}"
            return False
        if command.startswith(SENDS):
            assert shows(typed.shown, printed), self._differs(typed, printed)
        return shows(typed.shown, printed)

    def _is_running(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def _log(self) -> str:
        return (self._home / "running.log").read_text()

    def _type(self, command: str) -> tuple[int, str]:
        left_in = self._home / "left-in"
        done = subprocess.run(
            ["bash", "-c", f"trap 'pwd > {left_in}' EXIT\n{command}"],
            cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, timeout=2 * HANG,
        )  # fmt: skip
        self._folder = Path(left_in.read_text().strip())
        config = self._folder / "pipeline.yaml"
        # Written once, right after `init`: a pipeline that is starting beside us must never read half a file.
        if config.exists() and f":{PORT}" in (text := config.read_text()):
            config.write_text(text.replace(f":{PORT}", f":{self._port}"))
        return done.returncode, done.stdout.replace(str(self._home), HOME)

    def _differs(self, typed: Typed, printed: str) -> str:
        return f"$ {typed.command}\nis said to show\n{typed.shown}\nand shows\n{printed}"


@contextmanager
def a_reader(folder: Path) -> Iterator[Reader]:
    reader = Reader(folder)
    try:
        yield reader
    finally:
        reader.leave()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_document_says_to_type_shows_what_it_says(page: Path, tmp_path: Path) -> None:
    all_typed = list(console_blocks(page.read_text()))
    assert all_typed
    with a_reader(tmp_path) as reader:
        for typed in all_typed:
            if typed.command.startswith(SENDS) and shutil.which("curl") is None:
                pytest.skip("there is no curl here; what came before it was right")
            reader.follow(typed)
        reader.press_ctrl_c()
