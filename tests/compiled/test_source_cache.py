"""Compiled code follows its sources, and needs nothing of numba that numba may take away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from penstock import compiled
from penstock.compiled import source_cache

CALLER = """
from penstock.compiled import borrowing
from penstock.otlp.callee import changed
from penstock.otlp import limits

LEAST = limits.LEAST

@borrowing
def call(number):
    return changed(number) + LEAST
"""
CALLEE = """
from penstock.compiled import borrowing

@borrowing
def changed(number):
    return {factor} * number
"""
MAKER = """
import numpy as np

from penstock.compiled import compiled

@compiled
def changed(number):
    return np.arange(number + 1).max()
"""
CODE = """
from penstock.otlp import caller
print(caller.call(7), sum(caller.call.stats.cache_hits.values()), sum(caller.call.stats.cache_misses.values()))
"""


class Copy:
    """A copy of the package, with a function that calls one of another module and has a constant of a third."""

    def __init__(self, folder: Path) -> None:
        self.package = shutil.copytree(
            source_cache.PACKAGE, folder / "penstock", ignore=shutil.ignore_patterns("__pycache__")
        )
        self.otlp = self.package / "otlp"
        (self.otlp / "caller.py").write_text(CALLER)
        self.change(factor=2, least=100)

    def change(self, factor: int, least: int) -> None:
        (self.otlp / "callee.py").write_text(CALLEE.format(factor=factor))
        (self.otlp / "limits.py").write_text(f"LEAST = {least}\n")

    def run(self, **variables: str) -> list[int]:
        """What the function says, and how often it was found compiled, and how often not."""
        environment = {**os.environ, "PYTHONPATH": str(self.package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("NUMBA_CACHE_DIR", None)
        ran = subprocess.run(
            [sys.executable, "-c", CODE], env=environment | variables, capture_output=True, text=True, check=True,
            cwd=self.package.parent,
        )  # fmt: skip
        return [int(word) for word in ran.stdout.split()]

    def folders(self, root: Path | None = None) -> list[str]:
        found = root or self.package / "__pycache__" / "compiled"
        return sorted(path.name.rpartition("-")[0] for path in found.iterdir())


def test_a_change_in_a_module_that_is_called_is_noticed(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    assert copy.run() == [114, 0, 1]
    assert copy.run() == [114, 1, 0]
    copy.change(factor=3, least=100)
    assert copy.run() == [121, 0, 1]
    copy.change(factor=3, least=200)
    assert copy.run() == [221, 0, 1]
    assert copy.run() == [221, 1, 0]
    assert copy.folders() == ["otlp.callee", "otlp.caller"], "what is stale is removed"


def test_a_change_elsewhere_leaves_compiled_code_alone(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    assert copy.run() == [114, 0, 1]
    wire = copy.otlp / "wire.py"
    wire.write_text(wire.read_text() + "# changed\n")
    assert copy.run() == [114, 1, 0]


def test_the_cache_is_where_the_user_wants_it(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    chosen = tmp_path / "chosen"
    assert copy.run(NUMBA_CACHE_DIR=str(chosen)) == [114, 0, 1]
    (root,) = chosen.iterdir()
    assert copy.folders(root) == ["otlp.callee", "otlp.caller"]
    assert not (copy.package / "__pycache__").exists()


def test_without_a_place_beside_the_package_the_cache_is_the_users(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    (copy.package / "__pycache__").write_text("no folder can be made here")
    assert copy.run(XDG_CACHE_HOME=str(tmp_path / "home")) == [114, 0, 1]
    (root,) = (tmp_path / "home" / "penstock").iterdir()
    assert copy.folders(root) == ["otlp.callee", "otlp.caller"]
    assert copy.run(XDG_CACHE_HOME=str(tmp_path / "home")) == [114, 1, 0]


def test_digests_of_all_modules_take_milliseconds() -> None:
    files = [
        str(path)
        for path in Path(source_cache.PACKAGE).rglob("*.py")
        if b"from penstock.compiled " in path.read_bytes()
    ]
    assert len(files) > 40
    best = float("inf")
    for _ in range(5):
        source_cache._source.cache_clear()
        source_cache.sources_digest.cache_clear()
        began = time.process_time()
        assert len({source_cache.sources_digest(file) for file in files}) == len(files)
        best = min(best, time.process_time() - began)
    assert best < 0.1, "at every start of a process that compiles; it took 10 ms"


def test_this_numba_knows_the_option_that_leaves_references_alone() -> None:
    assert compiled.without_counting() == {"_nrt": False}, (
        "this version of numba does not know `_nrt` any more. What is compiled is right without it, but functions that"
        " read a few bytes take several times as long: find what stands for it now, and name it in penstock.compiled"
    )


def test_what_makes_arrays_can_be_compiled_for_a_function_that_makes_none(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    (copy.otlp / "callee.py").write_text(MAKER)
    assert copy.run() == [107, 0, 1]


def test_without_that_option_the_same_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_UNCOUNTED", {"_no_such_option": False})
    options = compiled.without_counting()
    assert options == {}
    total = njit(nogil=True, **options)(lambda numbers: numbers[0] + numbers[-1])
    assert total(np.array([1, 2, 4])) == 5


def test_other_constants_are_no_other_functions() -> None:
    add_one = compiled.take_constants_as_values(njit(lambda number: number + 1))
    add_all = njit(lambda number: add_one(number) + add_one(2) + add_one(3))
    assert add_all(1) == 9
    assert len(add_one.signatures) == 1
