"""The JSON Schema takes what the loader takes, and knows every component."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from penstock.config.json_schema import pipeline_schema
from penstock.registry import Kind, components

from .mistakes import MISTAKES, Mistake
from .test_loading import SHOP

FOLDER = Path(__file__).parents[2] / "examples"
# The plugin's components are not installed here; its own tests validate its pipeline where they are.
EXAMPLES = sorted(path for path in FOLDER.glob("**/pipeline.yaml") if not path.is_relative_to(FOLDER / "plugin"))


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads(json.dumps(pipeline_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


RIGHT = [
    SHOP,
    SHOP.replace("from: [web]", "from: web\n    max_records: ${MANY:-5}\n    mode: ${THEN}\n    max_bytes: 5MB"),
    SHOP.replace("type: duckdb, path: ./data/warehouse.duckdb, table", "type: null, every").replace(
        "{{ event_type }}", "1h"
    ),
    SHOP.replace("log: {type: local}", "log: {fsync: {interval: 1s}, retention: {max_age: null}}"),
    SHOP + "archive: true\n",
    SHOP + "archive: {every: 1h, path: ./kept}\n",
    SHOP.replace("mode: stream", "only_keys: [site]"),
    SHOP.replace("from: [web]", "from: web\n    only_keys: site"),
    *(path.read_text() for path in EXAMPLES),
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_pipeline_passes(text: str, validator: Any) -> None:
    validator.validate(yaml.safe_load(text))


IN_THE_SCHEMA = [m for m in MISTAKES if m.title.startswith(("misspelt", "missing", "unknown type", "unknown step"))]


@pytest.mark.parametrize("mistake", IN_THE_SCHEMA, ids=lambda mistake: mistake.title)
def test_an_editor_sees_a_misspelt_or_missing_key(mistake: Mistake, validator: Any) -> None:
    assert not validator.is_valid(yaml.safe_load(mistake.text.replace("▲", "")))


@pytest.mark.parametrize("kind", list(Kind))
def test_every_component_is_in_the_schema(kind: Kind) -> None:
    text = json.dumps(pipeline_schema(), ensure_ascii=False)
    for component in components(kind).values():
        assert json.dumps(component.summary, ensure_ascii=False) in text


@pytest.mark.parametrize("kind", list(Kind))
def test_every_option_of_every_component_is_described(kind: Kind) -> None:
    for component in components(kind).values():
        for name, field in component.config_class().model_fields.items():
            assert field.description or name == "type", f"{kind} {component.name}: {name} has no description"
