"""Fields as step configs name them: checked when the config is read, with a message that says what is wrong.

``card.number`` and ``/card/number`` are the same field; ``a\\.b`` is one whose name has a dot.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from penstock.json.paths import Path, parse_path


def field_path(text: str) -> Path:
    """The keys that lead to a field. In the dotted form a backslash makes the next character a plain one."""
    if text.startswith("/"):
        return parse_path(text)
    keys = [""]
    letters = iter(text)
    for letter in letters:
        if letter == "\\":
            keys[-1] += next(letters, "\\")
        elif letter == ".":
            keys.append("")
        else:
            keys[-1] += letter
    return tuple(keys)


def _checked(text: str) -> str:
    path = field_path(text)
    if not path:
        raise ValueError("'/' is the whole record; name a field of it")
    if "" in path:
        raise ValueError(f"'{text}' is not a field: a name is missing. Write it as user.name or /user/name")
    return text


FieldPath = Annotated[str, AfterValidator(_checked)]
"""Text that ``field_path`` takes."""

KeyFields = Annotated[
    tuple[FieldPath, ...],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""The fields of a key: one, or a list."""
