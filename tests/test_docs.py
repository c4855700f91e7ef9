"""Documents stay true: their links lead somewhere, their commands exist, their configs are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from penstock.cli.main import app
from penstock.config.loading import load

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("bench/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("penstock/**/*.md"),
    ]
    if "templates" not in path.parts
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_exist(page: Path) -> None:
    known = _verbs()
    named = re.findall(r"(?:`|\$ |^ {4}|Run: )penstock ([a-z]+)(?: ([a-z]+)\b)?", page.read_text(), re.MULTILINE)
    for verb, following in named:
        assert verb in known, f"penstock {verb}"
        if known[verb]:
            assert following in known[verb], f"penstock {verb} {following}"


def test_every_verb_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [verb for verb in _verbs() if f"penstock {verb}" not in readme] == []


def test_the_config_of_the_readme_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "pipeline.yaml").write_text(text)
    assert list(load(tmp_path / "pipeline.yaml").routes) == ["warehouse"]


def test_every_promise_of_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("## Invariants") : text.index("## The rooms")]
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`", table)
    assert len(named) > 20
    missing = [name for name in named if not (ROOT / name).exists() and not (ROOT / "penstock" / name).exists()]
    assert missing == []


def _verbs() -> dict[str, set[str]]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return {
        name: set(command.commands) if isinstance(command, TyperGroup) else set()
        for name, command in group.commands.items()
    }
