"""Backups of routes whose steps keep state, made while they run: what was seen stays seen, and what waits goes on
waiting, also in another folder."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal, running

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./in/*.ndjson}}
routes:
  once: {from: web, steps: [{dedupe: {key: k, window: 30d}}], to: {type: "null"}}
  together: {from: web, steps: [{gather: {key: k, until: "n = 2", at_most: 30d}}], to: {type: "null"}}
"""
GONE = "is gone"
"""Said of state that a route does not find."""


def feed(folder: Path, number: int) -> None:
    """Ten keys for the first time, and ten that the file before it had."""
    keys = [(10 * number + key, 1) for key in range(10)] + [(10 * number - 10 + key, 2) for key in range(10)]
    lines = [json.dumps({"k": key, "n": n}) for key, n in keys]
    (folder / "new").write_text("\n".join([*lines, ""]))
    (folder / "new").rename(folder / "in" / f"{number:04d}.ndjson")


def project(folder: Path) -> Terminal:
    (folder / "in").mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(CONFIG)
    return Terminal(folder)


def is_read(terminal: Terminal, files: int) -> bool:
    return terminal.counts("once")[0] >= 20 * files


def check_counts(terminal: Terminal, files: int, said: str) -> None:
    """Of 20 records per file, every key passes once; the keys of the last file, and no other, still wait."""
    assert GONE not in said
    assert "knows nothing" not in said
    assert terminal.counts("once") == (20 * files, 10 * files + 10, 10 * files - 10, 0, 0), said
    together = terminal.route("together")
    # Of the keys before the first file only the second record came: it ends a group of its own.
    assert (together["in"], together["loaded"], together["waiting"]) == (20 * files, 20 * files - 10, 10), said


def test_the_state_of_steps_is_as_old_as_the_ledger(tmp_path: Path) -> None:
    terminal = project(tmp_path / "one")
    folder, files, backups = terminal.folder, 0, ["early", "late"]
    with running(folder) as run:
        for backup in backups:
            for _ in range(3):
                feed(folder, files)
                files += 1
                eventually(partial(is_read, terminal, files - 1), "the file before is read")
            made = terminal.penstock("backup", str(folder / backup))
            assert made.returncode == 0, made.stderr
            assert (folder / backup / "checkpoints").is_dir(), run.said
        run.interrupt()
        run.process.wait(HANG)
    for backup in backups:
        done = terminal.penstock("restore", str(folder / backup), "--force")
        assert done.returncode == 0, done.stderr
        ran = terminal.run_once()
        check_counts(terminal, files, ran.stdout + ran.stderr)
    # A project that is moved finds its state too.
    moved = Terminal(tmp_path / "two")
    shutil.move(folder, moved.folder)
    feed(moved.folder, files)
    ran = moved.run_once()
    assert GONE not in ran.stdout + ran.stderr
    # Its source reads the files from their beginning there, but for what is new all of it was seen.
    assert moved.route("once")["loaded"] == 10 * (files + 1) + 10
