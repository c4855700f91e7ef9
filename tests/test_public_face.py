"""``import penstock`` is cheap, and what it offers is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock


@pytest.mark.parametrize("name", penstock.__all__)
def test_what_is_exported_exists(name: str) -> None:
    assert getattr(penstock, name).__name__ == name


def test_what_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Manager'"):
        _ = penstock.Manager


def test_importing_it_loads_nothing_heavy() -> None:
    script = "import sys, penstock; print({'pyarrow', 'pyspark', 'numba', 'sqlalchemy', 'pydantic'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "set()\n"
