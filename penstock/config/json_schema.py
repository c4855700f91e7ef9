"""The JSON Schema of a whole pipeline: completion, hover texts and red lines in editors, before anything is run."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from penstock.config.choices import LIFTED
from penstock.config.pipeline_config import PipelineConfig

_VARIABLE: JsonSchemaValue = {"type": "string", "pattern": r"\$\{", "description": "A variable: ${NAME:-default}."}


def pipeline_schema() -> dict[str, Any]:
    """The schema of every component that is installed, as plain data."""
    schema = PipelineConfig.model_json_schema(by_alias=True, mode="validation")
    route = schema["$defs"]["RouteConfig"]["properties"]
    for destination in route["to"]["oneOf"]:
        destination["properties"].update({option: route[option] for option in LIFTED})
    return {"$schema": GenerateJsonSchema.schema_dialect, **_with_variables(schema)}


def _with_variables(schema: Any) -> Any:
    """Allow ``${NAME}`` wherever a number, a boolean or a choice may be: it is text until it is filled in."""
    if isinstance(schema, list):
        return [_with_variables(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in ("integer", "number", "boolean") or "enum" in schema:
        about = {key: schema[key] for key in ("title", "description", "default") if key in schema}
        return {**about, "anyOf": [{k: v for k, v in schema.items() if k not in about}, _VARIABLE]}
    return {key: value if key in ("default", "examples") else _with_variables(value) for key, value in schema.items()}
