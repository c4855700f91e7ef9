"""The examples in the steps' pages are valid as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config.loading import load
from penstock.registry import Kind, components

BEFORE = "name: shop\nsources: {web: {type: file, path: ./x}}\nroutes:\n  out:\n    from: web\n    to: {type: 'null'}\n"


@pytest.mark.parametrize("name", [name for name in components(Kind.STEP) if name != "lookup"])
def test_the_first_example_of_a_step_is_valid(tmp_path: Path, name: str) -> None:
    page = components(Kind.STEP)[name].readme.read_text()
    example = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    (tmp_path / "steps.py").write_text("def clean(table): return table\n")
    indented = "".join(f"    {line}\n" for line in example.splitlines())
    (tmp_path / "pipeline.yaml").write_text(BEFORE + indented)
    assert {step.name for step in load(tmp_path / "pipeline.yaml").routes["out"].steps} == {name}
