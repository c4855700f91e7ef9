"""Options of the step ``map``: rules that are checked one by one, and refused by their number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from pydantic import Field, JsonValue, field_validator

from penstock.config.component import ComponentConfig, StepConfig
from penstock.json.paths import parse_path


class Action(StrEnum):
    """What a rule does."""

    MOVE = "move"
    REMOVE = "remove"
    CAST = "cast"
    CONSTANT = "constant"


class Rule(ComponentConfig):
    """One rule. Paths are written `/user/name`, with or without the leading slash; `/` alone is the whole record."""

    src: str | None = Field(default=None, description="Path of the field to move, remove or cast.")
    dst: str | None = Field(default=None, description="Path to move to or to set; `cast` takes it in place of `src`.")
    action: Action = Field(default=Action.MOVE, description="What to do: move, remove, cast or constant.")
    type: str | None = Field(
        default=None, description="SQL type for typed destinations: `cast` needs it, move and constant may have it."
    )
    value: JsonValue = Field(default=None, description="What `constant` sets: text, number, boolean, null, list, map.")

    def problem(self) -> str | None:
        """What is wrong with the rule, in words."""
        for name, path in (("src", self.src), ("dst", self.dst)):
            if path is not None and (not path or "" in parse_path(path)):
                return f"{name} '{path}' is not a path: a name is missing. Write it as /user/name"
        src = None if self.src is None else parse_path(self.src)
        dst = None if self.dst is None else parse_path(self.dst)
        match self.action:
            case Action.MOVE:
                if src is None:
                    return "move needs src, the field to move"
                if dst is None:
                    return "move needs dst, the path to move to"
                if self.type is not None and not dst:
                    return "a type goes to a field, not to the whole record"
            case Action.REMOVE:
                if src is None:
                    return "remove needs src, the field to remove"
                if not src:
                    return "remove of '/' would leave nothing; name a field"
            case Action.CAST:
                if not self.type:
                    return "cast needs type, such as bigint or numeric(12,2)"
                if src is None and dst is None:
                    return "cast needs src, the field to cast"
                if not (src or dst):
                    return "cast of '/' is not possible; name a field"
            case Action.CONSTANT:
                if not dst:
                    return "constant needs dst, the field to set"
                if "value" not in self.model_fields_set:
                    return "constant needs value"
                if isinstance(self.value, float) and not math.isfinite(self.value):
                    return f"constant cannot set {self.value}: JSON has no such number"
        return None


class MapConfig(StepConfig):
    """Rules, and what happens to fields that no rule names."""

    keep_unmapped: bool = Field(
        default=True,
        description="Whether fields that no rule names stay. If not, `_timestamp` and `/eventn_ctx/event_id` still do.",
    )
    fields: tuple[Rule, ...] = Field(default=(), description="Rules, run in order; each sees what those before it did.")

    def types_asked(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for number, rule in enumerate(self.fields):
            if rule.type is not None:
                yield ("fields", number, "type"), rule.type

    @field_validator("fields", mode="before")
    @classmethod
    def _known_actions(cls, value: Any) -> Any:
        known = ", ".join(Action)
        for number, rule in enumerate(value if isinstance(value, (list, tuple)) else ()):
            action = rule.get("action", Action.MOVE) if isinstance(rule, dict) else Action.MOVE
            if action not in list(Action):
                raise ValueError(f"rule {number}: unknown action '{action}'. Known: {known}")
        return value

    @field_validator("fields")
    @classmethod
    def _complete_rules(cls, value: tuple[Rule, ...]) -> tuple[Rule, ...]:
        for number, rule in enumerate(value):
            problem = rule.problem()
            if problem is not None:
                raise ValueError(f"rule {number}: {problem}")
        return value
