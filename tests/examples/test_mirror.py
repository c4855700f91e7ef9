"""The mirror example, run as its README says: every command, every output, on servers of the test's own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from penstock.testing.waiting import HANG
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mirror"
RUNNING = "# leave it running"


@dataclass(frozen=True)
class Step:
    """A block of commands of the README, and what it says that they print (None: it does not say)."""

    commands: str
    output: str | None


def steps() -> list[Step]:
    blocks = re.findall(r"^```(bash|text)\n(.*?)^```$", (EXAMPLE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    following = [*blocks[1:], ("", "")]
    return [
        Step(text, then if kind == "text" else None)
        for (this, text), (kind, then) in zip(blocks, following, strict=True)
        if this == "bash"
    ]


class Reader:
    """Somebody who types what the README says, in a copy of the example, on ports that are free."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = {"54331": str(free_port()), "54332": str(free_port())}
        self.shop, self.replica = (f"postgresql://penstock@127.0.0.1:{port}/postgres" for port in ports.values())
        self._replaced = {
            **ports,
            "cd examples/mirror\n": "",
            "../../scripts/": f"{ROOT}/scripts/",
            "../../.venv/bin/penstock": f"{sys.executable} -m penstock.cli.main",
            "../../.venv/bin/python": sys.executable,
        }
        binaries = subprocess.run([ROOT / "scripts/ensure-postgres"], check=True, capture_output=True, text=True)
        path = f"{os.environ['PATH']}:{binaries.stdout.strip()}"
        self._environment = {**os.environ, "PATH": path, "SHOP_URL": self.shop, "REPLICA_URL": self.replica}
        self._running: subprocess.Popen[bytes] | None = None

    def type(self, commands: str) -> str:
        """Run a block; what is to be left running is. Returns what the others print."""
        for written, meant in self._replaced.items():
            commands = commands.replace(written, meant)
        lines = commands.splitlines()
        now = [line for line in lines if RUNNING not in line]
        done = subprocess.run(
            ["bash", "-ec", "\n".join(now)],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}\n{self.said()}"
        for line in lines:
            if RUNNING in line:
                with (self.folder / "run.log").open("w") as log:
                    self._running = subprocess.Popen(
                        ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self._environment, stdout=log, stderr=log
                    )
        return done.stdout

    def press_ctrl_c(self) -> int:
        assert self._running is not None
        self._running.send_signal(signal.SIGINT)
        return self._running.wait(timeout=HANG)

    def said(self) -> str:
        log = self.folder / "run.log"
        return log.read_text() if log.exists() else ""

    def leave(self) -> None:
        """Nothing stays behind, also if something went wrong on the way."""
        if self._running is not None:
            self._running.kill()
        for server in (self.folder / "pg").glob("*"):
            subprocess.run([ROOT / "scripts/scratch-postgres", "stop", server], check=False, capture_output=True)


@contextmanager
def a_reader() -> Iterator[Reader]:
    # Not in pytest's folder: PostgreSQL may run as another user, who must be able to enter.
    with tempfile.TemporaryDirectory(prefix="penstock-example-") as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(
            EXAMPLE, Path(folder, "mirror"), ignore=shutil.ignore_patterns("data", "pg", "__pycache__", "run.log")
        )
        reader = Reader(Path(folder, "mirror"))
        try:
            yield reader
        finally:
            reader.leave()


@pytest.mark.timeout(400)  # the engine starts once, on whatever machine this is
def test_following_the_readme_ends_with_two_equal_mirrors_one_without_the_field() -> None:
    *before, last = steps()
    with a_reader() as reader:
        for step in before:
            printed = reader.type(step.commands)
            assert step.output in (None, printed), step.commands
        for table, key in (("customers", "id"), ("suppliers", "id"), ("orders", "customer, number")):
            source = _postgres(reader.shop, f"SELECT * FROM public.{table} ORDER BY {key}")
            assert source
            assert _postgres(reader.replica, f"SELECT * FROM shop.{table} ORDER BY {key}") == source
            dropped = {"email"} if table == "customers" else set()
            without = [{name: value for name, value in row.items() if name not in dropped} for row in source]
            assert _duckdb(reader.folder, f"SELECT * FROM {table} ORDER BY {key}") == without
            assert not dropped or all(dropped <= row.keys() for row in source)
        assert reader.press_ctrl_c() == 0, reader.said()
        reader.type(last.commands)
        assert list((reader.folder / "pg").iterdir()) == []


def _postgres(url: str, query: str) -> list[dict[str, Any]]:
    with psycopg.connect(url) as connection:
        cursor = connection.execute(query.encode())
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def _duckdb(folder: Path, query: str) -> list[dict[str, Any]]:
    with duckdb.connect(str(folder / "data" / "analysis.duckdb"), read_only=True) as connection:
        cursor = connection.execute(query)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
