"""``penstock init``: a project that is valid as it is."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.cli.projects import penstock

FILES = {"pipeline.yaml", "events.ndjson", "tests/warehouse.yaml", ".gitignore", "penstock.schema.json"}


def test_the_project_is_complete_and_valid(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    ran = penstock("init", str(folder))
    assert ran.code == 0
    assert "penstock run --once" in ran.out
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == FILES
    checked = penstock("validate", str(folder / "pipeline.yaml"))
    assert (checked.code, checked.out) == (0, f"{folder / 'pipeline.yaml'} is valid: 2 sources, 1 route\n")


def test_its_own_cases_pass(tmp_path: Path) -> None:
    penstock("init", str(tmp_path / "shop"))
    ran = penstock("test", "--config", str(tmp_path / "shop" / "pipeline.yaml"))
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "3 cases, all passed")


def test_editors_find_the_schema_and_it_accepts_the_config(tmp_path: Path) -> None:
    penstock("init", str(tmp_path / "shop"))
    text = (tmp_path / "shop" / "pipeline.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=./penstock.schema.json\n")
    schema = json.loads((tmp_path / "shop" / "penstock.schema.json").read_text())
    config = yaml.safe_load(text)
    assert config["name"] == "shop"
    jsonschema.validate(config, schema)


def test_one_sample_event_is_broken_on_purpose(tmp_path: Path) -> None:
    penstock("init", str(tmp_path / "shop"))
    broken = 0
    for line in (tmp_path / "shop" / "events.ndjson").read_text().splitlines():
        try:
            json.loads(line)
        except json.JSONDecodeError:
            broken += 1
    assert broken == 1


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "events.ndjson").write_text("mine")
    project = tmp_path / "shop"
    assert penstock("init", str(project), "--json").code == 0
    (project / "pipeline.yaml").write_text("mine")
    ran = penstock("init", str(project))
    assert (ran.code, ran.out) == (1, "")
    assert "pipeline.yaml" in ran.err
    assert (project / "pipeline.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", ["My Shop", "9lives", "Über"])
def test_a_name_that_no_pipeline_can_have_is_refused(tmp_path: Path, name: str) -> None:
    ran = penstock("init", str(tmp_path / name))
    assert ran.code == 2
    assert "PEN-CLI-002" in ran.err
    assert not (tmp_path / name).exists()
