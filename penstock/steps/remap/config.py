"""Options of the step ``remap``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field, field_validator

from penstock.config.component import StepConfig, namespace_pattern, refuse_flags

_GROUP = re.compile(r"\\(?:(\d+)|g<(\w+)>)")


@dataclass(frozen=True)
class Rule:
    """What an expression matches in a namespace is replaced by ``replacement``, with its groups filled in."""

    pattern: re.Pattern[str]
    replacement: str

    def renamed(self, namespace: str) -> str | None:
        """The new name, or ``None`` for a namespace that does not match."""
        match = self.pattern.search(namespace)
        if match is None:
            return None
        text = _GROUP.sub(lambda named: match[_group(named)] or "", self.replacement)
        return namespace[: match.start()] + text + namespace[match.end() :]

    def problem(self) -> str | None:
        for named in _GROUP.finditer(self.replacement):
            group = _group(named)
            known = group <= self.pattern.groups if isinstance(group, int) else group in self.pattern.groupindex
            if not known:
                return f"'{self.replacement}' names the group {group}, which '/{self.pattern.pattern}/' does not have"
        return None


class RemapConfig(StepConfig):
    """Old namespaces and new ones."""

    main_option: ClassVar[str | None] = "namespaces"
    bare_map: ClassVar[bool] = True

    namespaces: dict[str, str] = Field(
        min_length=1,
        description="Old to new: an exact name, or a regular expression between slashes whose match is replaced, with"
        " `\\1` or `\\g<name>` for its groups. An exact name wins; of expressions the first that matches.",
    )

    @field_validator("namespaces")
    @classmethod
    def _sound(cls, value: dict[str, str]) -> dict[str, str]:
        for old in value:
            refuse_flags(old)
        for rule in rules(value):
            if (problem := rule.problem()) is not None:
                raise ValueError(problem)
        return value


def rules(namespaces: dict[str, str]) -> list[Rule]:
    """The expressions of a map, in order. Raises ``ValueError`` for a bad one."""
    return [Rule(namespace_pattern(old), new) for old, new in namespaces.items() if is_expression(old)]


def is_expression(name: str) -> bool:
    return len(name) > 2 and name[0] == name[-1] == "/"


def _group(named: re.Match[str]) -> int | str:
    return int(named[1]) if named[1] is not None else named[2]
