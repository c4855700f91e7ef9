"""``penstock list``, ``about`` and ``schema``: what there is, and how it is configured."""

from __future__ import annotations

import json

import jsonschema
import pytest

from penstock.registry import Kind, components
from tests.cli.projects import penstock

EVERY = [(kind, name) for kind in Kind for name in components(kind)]


def test_everything_in_the_registry_is_listed() -> None:
    listed = json.loads(penstock("list", "--json").out)
    assert [(each["kind"], each["name"]) for each in listed] == EVERY
    assert all(each["summary"] for each in listed)
    assert "duckdb" in penstock("list").out


@pytest.mark.parametrize("kind", Kind)
def test_one_kind_alone(kind: Kind) -> None:
    assert {each["kind"] for each in json.loads(penstock("list", kind, "--json").out)} == {kind.value}


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_component_tells_what_it_does_and_each_option(kind: Kind, name: str) -> None:
    (told,) = json.loads(penstock("about", f"{kind}/{name}", "--json").out)
    assert (told["kind"], told["name"]) == (kind, name)
    assert name in told["readme"]
    undescribed = [
        option["name"] for option in told["options"] if not option["description"] and option["name"] != "type"
    ]
    assert undescribed == []
    shown = penstock("about", f"{kind}/{name}").out
    assert all(option["name"] in shown for option in told["options"])


def test_nested_options_have_dotted_names() -> None:
    told = next(each for each in json.loads(penstock("about", "http", "--json").out) if each["kind"] == "source")
    options = {option["name"]: option for option in told["options"]}
    assert options["limits.body_bytes"]["default"] == 10_000_000
    assert options["tokens"]["required"]
    assert options["tokens[].id"]["type"] == "string"


def test_a_shared_name_shows_both_and_a_schema_asks_which() -> None:
    assert [each["kind"] for each in json.loads(penstock("about", "file", "--json").out)] == ["source", "destination"]
    ran = penstock("schema", "config", "file")
    assert ran.code == 2
    assert "source/file or destination/file" in ran.err


def test_a_typing_mistake_is_answered_with_the_name_that_was_meant() -> None:
    ran = penstock("about", "duckbd")
    assert (ran.code, ran.out) == (2, "")
    assert "Did you mean 'duckdb'?" in ran.err


def test_about_alone_tells_versions() -> None:
    told = json.loads(penstock("about", "--json").out)
    assert told["penstock"]
    assert told["pyspark"].startswith("4.")
    assert "pyspark" in penstock("about").out


@pytest.mark.parametrize("what", ["config", "step/where", "destination/duckdb"])
def test_a_schema_is_a_json_schema(what: str) -> None:
    schema = json.loads(penstock("schema", "config", what).out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]


def test_schema_alone_is_that_of_a_config() -> None:
    assert penstock("schema").out == penstock("schema", "config").out != ""
