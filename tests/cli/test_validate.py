"""``penstock validate``: mistakes one per line, or a line that says it is valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.projects import CONFIG, Project, penstock

WRONG = CONFIG.replace("routes:", "rutes:").replace("name: shop", "name: 'My Shop'")


def test_a_valid_config_is_summed_up(fresh: Project) -> None:
    ran = penstock("validate", str(fresh.config))
    assert (ran.code, ran.out) == (0, f"{fresh.config} is valid: 1 source, 2 routes\n")
    assert fresh.penstock("validate").code == 0
    assert json.loads(fresh.penstock("validate", "--json").out) == []


def test_every_mistake_is_a_line_with_its_place_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(WRONG)
    ran = penstock("validate", str(path))
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{path}:1:7: name: ")
    assert lines[1].startswith(f"{path}:5:1: rutes: ")
    assert "routes" in lines[1]


def test_machines_get_line_column_key_message_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(WRONG)
    ran = penstock("validate", str(path), "--json")
    assert ran.code == 1
    first, second = json.loads(ran.out)
    assert (first["file"], first["line"], first["column"], first["key"]) == (str(path), 1, 7, "name")
    assert (second["line"], second["key"]) == (5, "rutes")
    assert "routes" in second["fix"]


def test_a_missing_file_is_a_problem_too(tmp_path: Path) -> None:
    ran = penstock("validate", str(tmp_path / "none.yaml"))
    assert ran.code == 1
    assert "none.yaml" in ran.out


def test_other_verbs_tell_the_same_problems_and_end_as_a_start_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(WRONG)
    for verb in (["status"], ["run", "--once"], ["log", "current"], ["failed", "list"]):
        ran = penstock(*verb, "-c", str(path))
        assert (ran.code, ran.out) == (78, "")
        assert f"{path}:1:7: name: " in ran.err
        assert "Traceback" not in ran.err


ADDRESSES = {
    "postgres": "postgresql://db/x",
    "redshift": "postgresql://db/x', staging: 's3://bucket/prefix",
    "clickhouse": "clickhouse://me:s3cret@db:8123",
}


@pytest.mark.parametrize("kind", list(ADDRESSES))
def test_an_older_name_of_url_works_and_is_said(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    text = CONFIG.replace("{type: file, path: ./out, format: ndjson}", f"{{type: {kind}, KEY: '{ADDRESSES[kind]}'}}")
    path.write_text(text.replace("KEY", "url"))
    assert penstock("validate", str(path)).err == ""
    path.write_text(text.replace("KEY", "dsn"))
    ran = penstock("validate", str(path))
    assert (ran.code, ran.out) == (0, f"{path} is valid: 1 source, 2 routes\n")
    line = text[: text.index("KEY")].count("\n") + 1
    assert ran.err.startswith(f"warning: {path}:{line}:")
    assert "routes.warehouse.to.dsn: 'dsn' is an older name of 'url'. Write `url:`; it means the same." in ran.err
    assert "s3cret" not in ran.err
    (remark,) = json.loads(penstock("validate", str(path), "--json").out)
    assert (remark["key"], remark["severity"]) == ("routes.warehouse.to.dsn", "warning")
