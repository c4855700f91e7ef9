"""The example of a fleet, typed as its README says, with fewer hubs: the tables end as the hubs say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import yaml

from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal, running
from tests.support.console import Typed, console_blocks, ends_in_the_form
from tests.support.ports import free_port, listens

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet"
HUBS = "20"
HERE = "cd examples/fleet"
LOOKS = ("compare", "status", "pending")
"""What only looks may be typed again, until what was sent has arrived."""


class Reader:
    """Somebody who types in a copy of the example, on a port that is free."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        # The verbs beside the pipeline run in this process, which has no variable for it.
        config = folder / "pipeline.yaml"
        config.write_text(config.read_text().replace("${FLEET_PORT:-8001}", str(self.port)))
        self._environment = {**os.environ, "FLEET_PORT": str(self.port), "TZ": "UTC"}
        self._environment.pop("FLEET_URL", None)
        self._terminal = Terminal(folder)

    def type(self, command: str) -> tuple[int, str]:
        program, *words = command.replace(" 300", f" {HUBS}").split()
        if program.endswith("/penstock"):
            ran = self._terminal.penstock(*words)
            return ran.returncode, ran.stdout + ran.stderr
        assert program.endswith("/python"), command
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False, timeout=2 * HANG,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def follow(self, typed: Typed) -> None:
        """Type a command and see what is shown, but for numbers."""
        if any(word in typed.command for word in LOOKS):
            eventually(lambda: self.sees(typed), f"{typed.command}\nshows\n{typed.shown}", every=1)
        else:
            assert self.sees(typed), typed.command

    def sees(self, typed: Typed) -> bool:
        code, printed = self.type(typed.command)
        return code == 0 and ends_in_the_form(_plain(typed.shown), _plain(printed))


def test_following_the_readme_ends_with_the_tables_that_the_hubs_say(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data", "pg", "__pycache__"))
    reader = Reader(folder)
    first, start, *others = console_blocks((EXAMPLE / "README.md").read_text())
    assert (first.command, start.keeps_running) == (HERE, True)
    forgets = others.pop()
    with running(folder) as run:
        eventually(lambda: listens(reader.port), "the pipeline listens")
        for typed in others:
            reader.follow(typed)
        run.interrupt()
        assert run.process.wait(HANG) == 0, run.said
    _assert_state_is_the_newest(folder)
    _assert_books_add_up(folder)
    reader.follow(forgets)
    # The comparison is one that can fail.
    code, printed = reader.type("../../.venv/bin/python hubs.py compare 0")
    assert (code, printed.count("differs for hub-007")) == (1, 4), printed


def test_both_pipelines_of_the_example_have_the_same_kinds() -> None:
    kinds = [
        yaml.safe_load((EXAMPLE / name).read_text())["routes"]["state"]["to"]["kinds"]
        for name in ("pipeline.yaml", "postgres.yaml")
    ]
    assert kinds[0] == kinds[1]


def _assert_state_is_the_newest(folder: Path) -> None:
    """By the hubs' own words, without the example's comparison."""
    hubs: list[dict[str, Any]] = json.loads((folder / "data" / "hubs.json").read_text())
    assert len(hubs) == int(HUBS)
    assert {hub["incarnation"] for hub in hubs} > {0}, "some were started anew"
    compliance = {
        (hub["name"], policy, cluster, compliant)
        for hub in hubs
        for policy, clusters in hub["compliance"].items()
        for cluster, compliant in clusters.items()
    }
    versions = {(hub["name"], kind): (hub["incarnation"], hub["generations"][kind]) for hub in hubs for kind in _WHOLE}

    def ask(query: str) -> set[tuple[Any, ...]]:
        with duckdb.connect(str(folder / "data" / "fleet.duckdb"), read_only=True) as database:
            return set(database.execute(query).fetchall())

    assert ask("SELECT source, policy, cluster, compliant FROM compliance") == compliance
    found = ask("SELECT source, kind, incarnation, generation FROM penstock_versions")
    assert {(source, kind): version for source, kind, *version in found if kind in _WHOLE} == {
        key: list(version) for key, version in versions.items()
    }


_WHOLE = ("clusters", "clusters_per_policy", "compliance", "heartbeats")


def _assert_books_add_up(folder: Path) -> None:
    terminal = Terminal(folder)
    route = terminal.route("state")
    assert route["adds_up"]
    assert (route["failed"], route["waiting"], route["lag"]) == (0, 0, 0)
    (status,) = terminal.json("conflate", "status")
    counts = [kind["counts"] for kind in status["kinds"]]
    received, conflated, written = (sum(each.get(name, 0) for each in counts) for name in _COUNTS)
    assert received == conflated + written == route["in"]
    assert written == route["loaded"] < received
    assert status["position_lag"] == 0


_COUNTS = ("received", "conflated", "written")


def _plain(text: str) -> str:
    """Without the units of delays, which differ from run to run."""
    return re.sub(r"\d[\d.]* m?s\b", "1", text)
