"""The example package: installed as anybody would, found by its entry points, held to our suites by its own tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, installed into ``site`` beside it."""
    folder = tmp_path_factory.mktemp("plugin")
    copied = shutil.copytree(EXAMPLE, folder / "plugin", ignore=shutil.ignore_patterns("__pycache__", "data", "inbox"))
    quiet = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, "--target", folder / "site", copied], check=True)
    shutil.rmtree(copied / "penstock_example")  # what is tested is what was installed
    return copied


def run(package: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(package.parent / "site"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)


def test_its_own_tests_pass_with_the_suites_that_they_inherit(package: Path) -> None:
    ran = run(package, sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout
    passed = re.findall(r"^tests/\S+::(\w+)::(\w+)\S* PASSED", ran.stdout, re.MULTILINE)
    assert {
        ("TestSpool", "test_a_kill_loses_nothing_that_was_taken"),
        ("TestThin", "test_a_record_fares_the_same_in_any_company"),
        ("TestSqlite", "test_a_large_batch_does_not_take_memory_with_it"),
        ("TestSqlite", "test_nothing_of_an_unfinished_batch_is_seen"),
    } <= set(passed)


def test_its_components_are_listed_described_and_valid_in_a_config(package: Path) -> None:
    listed = run(package, *PENSTOCK, "list").stdout
    assert {"spool", "thin", "sqlite"} <= set(listed.split())
    assert "Takes NDJSON files out of a folder" in run(package, *PENSTOCK, "about", "spool").stdout
    checked = run(package, *PENSTOCK, "validate")
    assert checked.stdout == "pipeline.yaml is valid: 1 source, 1 route\n", checked.stderr
