"""What ``make setup`` installs is exactly what the lock names, file by file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENTRY = re.compile(r"([A-Za-z0-9._-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")


def entries() -> dict[str, tuple[str, str]]:
    """Per package its version and the lines with its hashes."""
    return {_plain(name): (version, hashes) for name, version, hashes in ENTRY.findall(_lock())}


def _lock() -> str:
    return (ROOT / "requirements.lock").read_text()


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_of_the_lock_has_a_version_and_hashes() -> None:
    assert ENTRY.sub("", _lock()) == ""
    assert all(version[0].isdigit() for version, _ in entries().values())
    assert len(entries()) > 100


def test_the_lock_names_no_place_to_download_from() -> None:
    assert re.search(r"://|index|find-links|trusted| @ ", _lock()) is None


def test_the_lock_has_everything_that_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {_plain(re.split(r"[\[<>=~! ]", line)[0]) for line in asked}
    assert names - set(entries()) == set()


def test_setup_refuses_what_has_no_hash() -> None:
    script = (ROOT / "scripts" / "install-packages").read_text()
    installs = [line for line in script.splitlines() if "pip install" in line and not line.startswith("#")]
    locked = [line for line in installs if '"${locked[@]}"' in line]
    assert "locked=(--quiet --require-hashes --no-deps)" in script
    assert [line.split()[-1] for line in installs if line not in locked] == ["."]
    assert [line.split()[line.split().index("--requirement") + 1] for line in locked] == [
        "requirements-uv.lock",
        '"$wanted"',
        '"$wanted"',
    ]
