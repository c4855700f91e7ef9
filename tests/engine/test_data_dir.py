"""A data folder that cannot be written: one line that says so, from every process, and no second try."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.cli._support.exit_codes import Exit
from penstock.engine.data_dir import require_writable
from penstock.engine.processes.child import EXIT_FATAL
from penstock.errors import DataDirError
from penstock.testing.waiting import HANG
from tests.cli.processes import COMMAND
from tests.support.privileges import obey_file_modes

CONFIG = """\
name: shop
data_dir: {data_dir}
sources:
  web: {{type: http, listen: "127.0.0.1:0", tokens: [{{id: site, client_secret: demo}}]}}
routes:
  audit: {{from: web, to: {{type: "null"}}}}
"""
CHILD = [sys.executable, "-m", "penstock.engine.processes.child", "pipeline.yaml"]


def a_file(folder: Path) -> Path:
    (folder / "data").write_text("mine")
    return folder / "data"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "data"


def a_link_to_nowhere(folder: Path) -> Path:
    (folder / "data").symlink_to(folder / "gone" / "data")
    return folder / "data"


def of_the_system(_: Path) -> Path:
    return Path("/proc/penstock/data")


def barred(path: str) -> Callable[[Path], Path]:
    """A data folder that was used before, of which one thing is not ours to write."""

    def make(folder: Path) -> Path:
        data = folder / "data"
        for name in ("log/0", "run", "checkpoints/audit-1", "failed"):
            (data / name).mkdir(parents=True, exist_ok=True)
        for name in ("ledger.db", "log/0/head"):
            (data / name).write_bytes(b"")
        (data / path).chmod(0o500 if (data / path).is_dir() else 0o400)
        return data

    return make


@pytest.mark.parametrize("make", [a_file, below_a_file, a_link_to_nowhere, of_the_system])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ([*COMMAND, "run"], Exit.START),
        ([*COMMAND, "run", "--once"], Exit.START),
        ([*CHILD, "engine"], EXIT_FATAL),
        ([*CHILD, "source", "web"], EXIT_FATAL),
    ],
    ids=lambda words: words[-1] if isinstance(words, list) else "",
)
def test_a_process_that_cannot_write_says_so_once_and_ends(
    tmp_path: Path, make: Callable[[Path], Path], command: list[str], code: int
) -> None:
    data = make(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(data_dir=data))
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG, check=False)
    assert ran.returncode == code
    assert ran.stderr.count("PEN-ENG-040") == 1
    assert str(data) in ran.stderr
    assert len(ran.stderr.splitlines()) <= 2
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "path", ["", "log", "log/0", "log/0/head", "ledger.db", "run", "checkpoints/audit-1", "failed"]
)
def test_a_part_of_it_that_belongs_to_somebody_else_is_named(tmp_path: Path, path: str) -> None:
    data = barred(path)(tmp_path)
    with ThreadPoolExecutor(1, initializer=obey_file_modes) as thread, pytest.raises(DataDirError) as told:
        thread.submit(require_writable, data).result()
    assert str(data / path) in told.value.what


@pytest.mark.parametrize("name", ["lost+found", "warehouse.duckdb", "backups"])
def test_what_lies_there_and_is_not_ours_keeps_nobody_from_starting(tmp_path: Path, name: str) -> None:
    """A volume of its own has a ``lost+found`` that only root may look into."""
    data = tmp_path / "data"
    (data / name).mkdir(parents=True, mode=0)
    with ThreadPoolExecutor(1, initializer=obey_file_modes) as thread:
        thread.submit(require_writable, data).result()


def test_a_folder_that_goes_while_it_is_looked_at_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "data" / "run" / "spark"
    scratch.mkdir(parents=True)
    allowed = os.access

    def look(path: Path, *given: Any, **named: Any) -> bool:
        found = allowed(path, *given, **named)
        if Path(path) == scratch:
            scratch.rmdir()
        return found

    monkeypatch.setattr(os, "access", look)
    require_writable(tmp_path / "data")
    assert not scratch.exists()


def test_a_folder_that_is_missing_is_made_and_one_that_was_used_is_fine(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    require_writable(barred("")(tmp_path).parent)


@pytest.fixture(autouse=True)
def _give_back(tmp_path: Path) -> Iterator[None]:
    """Pytest must be able to remove what the test made."""
    yield
    for path in (tmp_path, *tmp_path.rglob("*")):
        if path.is_dir():
            path.chmod(0o700)
