"""A config class as a flat list of options, for the table that ``about`` prints: nested ones by their dotted name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

JsonSchema = Mapping[str, Any]


@dataclass(frozen=True)
class Option:
    name: str
    """``limits.body_bytes``, ``tokens[].id``."""
    type: str
    required: bool
    default: Any
    description: str

    @property
    def default_text(self) -> str:
        if isinstance(self.default, str):
            return self.default
        return "-" if self.default is None else json.dumps(self.default, ensure_ascii=False)


def options_of(config: type[BaseModel]) -> list[Option]:
    schema = config.model_json_schema()
    return list(_options(schema, schema.get("$defs", {}), ""))


def _options(schema: JsonSchema, known: JsonSchema, prefix: str) -> Iterator[Option]:
    required = schema.get("required", [])
    for name, member in schema.get("properties", {}).items():
        inner = _object_within(member, known)
        default = None if inner is not None and inner[1] == "." else member.get("default")
        yield Option(f"{prefix}{name}", _type(member, known), name in required, default, member.get("description", ""))
        if inner is not None:
            below, joint = inner
            yield from _options(below, known, f"{prefix}{name}{joint}")


def _object_within(member: JsonSchema, known: JsonSchema) -> tuple[JsonSchema, str] | None:
    """The nested options under a member, and how their names are joined to its own."""
    for choice in (member, *member.get("anyOf", ())):
        if "$ref" in choice and "properties" in (found := _resolved(choice, known)):
            return found, "."
        items = choice.get("items", {})
        if "$ref" in items and "properties" in (found := _resolved(items, known)):
            return found, "[]."
    return None


def _type(member: JsonSchema, known: JsonSchema) -> str:
    member = _resolved(member, known)
    if "const" in member:
        return json.dumps(member["const"]).strip('"')
    if "enum" in member:
        return " | ".join(json.dumps(value).strip('"') for value in member["enum"])
    choices = member.get("anyOf") or member.get("oneOf")
    if choices:
        words = dict.fromkeys(_type(choice, known) for choice in choices if choice.get("type") != "null")
        return " | ".join(words)
    kind = member.get("type", "any")
    if kind == "array":
        return f"list of {_type(member.get('items', {}), known)}"
    if kind == "object":
        values = member.get("additionalProperties")
        return f"mapping to {_type(values, known)}" if isinstance(values, Mapping) else "mapping"
    if isinstance(kind, list):
        examples = member.get("examples", ())
        return f"such as {examples[-1]}" if examples else " | ".join(kind)
    return str(kind)


def _resolved(member: JsonSchema, known: JsonSchema) -> JsonSchema:
    """The schema that a reference points at; what stands beside the reference stays."""
    name = str(member.get("$ref", "")).removeprefix("#/$defs/")
    return {**known[name], **{k: v for k, v in member.items() if k != "$ref"}} if name else member
