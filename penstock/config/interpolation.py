"""``${VAR}`` and ``${VAR:-default}`` in the values of a config; ``$${`` stands for a plain ``${``.

As in a shell, the default also stands in for a variable that is set but empty. A default ends at the first ``}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_MARKED = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)\}|\$\{")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


@dataclass(frozen=True)
class InterpolationError(Exception):
    what: str
    fix: str


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """The text with its variables filled in. Raises ``InterpolationError`` for the first one that cannot be."""

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        inside = match["inside"]
        parts = _INSIDE.fullmatch(inside) if inside is not None else None
        if parts is None:
            raise InterpolationError(
                "'${' does not begin a variable here",
                "Write ${NAME} or ${NAME:-default}, or $${ for a plain ${.",
            )
        name, default = parts["name"], parts["default"]
        value = variables.get(name)
        if default is not None:
            return value or default.removeprefix(":-")
        if value is None:
            raise InterpolationError(
                f"the environment variable {name} is not set",
                f"Run: export {name}=..., or give a default: ${{{name}:-default}}.",
            )
        return value

    return _MARKED.sub(fill, text)
