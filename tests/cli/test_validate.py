"""``penstock validate``: mistakes one per line, or a line that says it is valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.record import Record, entries
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


TEMPLATED = """\
name: shop
data_dir: ./data
sources:
  web: {type: http, listen: "127.0.0.1:8001", tokens: [{id: site, client_secret: demo}]}
  samples: {type: file, path: ./events.ndjson}
routes:
  warehouse:
    from: [web, samples]
    to: {type: duckdb, path: ./w.duckdb, table: "TEMPLATE"}
"""
CASES = """\
cases:
  - {name: one, route: warehouse, input: [{kind: a, user: {country: de}}, '{"sort": 1}'], output: []}
  - {name: other, route: elsewhere, input: [{evnt_type: a}], output: []}
"""


def checked(folder: Path, template: str) -> list[dict[str, str]]:
    path = folder / "pipeline.yaml"
    path.write_text(TEMPLATED.replace("TEMPLATE", template))
    ran = penstock("validate", str(path), "--json")
    assert ran.code == 0
    found: list[dict[str, str]] = json.loads(ran.out)
    return found


def test_a_template_with_a_field_that_no_sample_has_gets_a_warning(tmp_path: Path) -> None:
    (tmp_path / "events.ndjson").write_text('{"event_type": "click", "user": {"name": "ada"}}\nnonsense\n{"n": 1}\n')
    (found,) = checked(tmp_path, "{{ evnt_type }}")
    assert (found["severity"], found["key"]) == ("warning", "routes.warehouse.to.table")
    assert found["message"] == "none of 2 sample events has the field 'evnt_type', and all of them would be skipped"
    assert found["fix"] == "Did you mean 'event_type'?"
    assert (found["line"], found["column"]) == (9, 49)
    people = penstock("validate", str(tmp_path / "pipeline.yaml"))
    assert people.err.startswith(
        f"warning: {tmp_path / 'pipeline.yaml'}:9:49: routes.warehouse.to.table: none of 2 sample"
    )
    (inner,) = checked(tmp_path, "{{ event_type }}_{{ user.nme }}")
    assert inner["fix"] == "Did you mean 'user.name'?"
    assert "skipped" not in inner["message"]


def test_a_template_that_fails_for_every_sample_gets_a_warning(tmp_path: Path) -> None:
    (tmp_path / "events.ndjson").write_text('{"event_type": "click", "n": 1}\n{"n": 2}\n')
    (found,) = checked(tmp_path, "{{ n.lower() }}")
    assert (found["severity"], found["key"]) == ("warning", "routes.warehouse.to.table")
    assert str(found["message"]).startswith("all of 2 sample events would fail here: ")
    assert "lower" in str(found["message"])


FINE = [
    "{{ event_type }}",
    "{{ user['name'] }}",
    "{{ event_type.lower() }}",
    "{{ missing | default('events') }}",
    "{% if missing is defined %}a{% else %}b{% endif %}",
    "{{ api_key }}_{{ eventn_ctx.anything }}",
    "{{ _timestamp.strftime('%Y') }}",
    "events",
]


@pytest.mark.parametrize("template", FINE)
def test_fields_that_samples_or_the_collector_have_and_those_with_another_word_pass(
    template: str, tmp_path: Path
) -> None:
    (tmp_path / "events.ndjson").write_text('{"event_type": "click", "user": {"name": "ada"}}\n')
    assert checked(tmp_path, template) == []


def test_cases_of_the_route_are_asked_too(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "warehouse.yaml").write_text(CASES)
    assert checked(tmp_path, "{{ kind }}{{ sort }}{{ user.country }}") == []
    (found,) = checked(tmp_path, "{{ evnt_type }}")
    assert "none of 2 sample events" in found["message"]


def test_without_samples_the_newest_records_of_the_log_are_asked(tmp_path: Path) -> None:
    (unchecked,) = checked(tmp_path, "{{ evnt_type }}")
    assert unchecked["severity"] == "note"
    assert "nothing was there to tell" in unchecked["message"]
    pipeline = Project(tmp_path).open()
    with pipeline.log.writer("web") as writer:
        writer.append(entries([Record(b'{"event_type": "click"}', "web"), Record(b"nonsense", "web")]))
    pipeline.ledger.close()
    assert checked(tmp_path, "{{ event_type }}") == []
    (found,) = checked(tmp_path, "{{ evnt_type }}")
    assert (found["severity"], found["fix"]) == ("warning", "Did you mean 'event_type'?")


def test_the_header_of_a_csv_file_is_a_sample(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("event_type;n\nclick;1\n")
    path = tmp_path / "pipeline.yaml"
    config = TEMPLATED.replace("./events.ndjson}", "./events.csv, delimiter: ';'}")
    path.write_text(config.replace("TEMPLATE", "{{ event_type }}"))
    assert json.loads(penstock("validate", str(path), "--json").out) == []
    path.write_text(config.replace("TEMPLATE", "{{ events_type }}"))
    (found,) = json.loads(penstock("validate", str(path), "--json").out)
    assert found["fix"] == "Did you mean 'event_type'?"
