"""The suites that others inherit say what they ask for and what they assert, and their page names them all."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

from penstock import testing

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-a-component.md"
SUITES = [
    suite
    for module in pkgutil.iter_modules(testing.__path__, f"{testing.__name__}.")
    for name, suite in vars(importlib.import_module(module.name)).items()
    if name.endswith("Contract") and suite.__module__ == module.name
]


def test_there_is_one_for_every_kind_of_component() -> None:
    assert {suite.__module__.rpartition(".")[2] for suite in SUITES} >= {"source", "step", "destination"}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_a_suite_says_what_to_give_and_what_is_asserted(suite: type) -> None:
    said = inspect.getdoc(suite) or ""
    assert re.search(r"^Gives: ", said, re.MULTILINE)
    assert re.search(r"^Asserted: ", said, re.MULTILINE)
    assert f"`{suite.__name__}`" in PAGE.read_text() or f"import {suite.__name__}\n" in PAGE.read_text()
    assert [name for name in vars(suite) if name.startswith("test_")], "it asserts something of its own"


def test_what_the_page_imports_is_there() -> None:
    imported = re.findall(r"^from (penstock\S*) import (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert imported
    for module, name in imported:
        assert hasattr(importlib.import_module(module), name)
