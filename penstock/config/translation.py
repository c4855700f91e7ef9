"""Translates pydantic's errors into problems with a place in the file, in words for people.

A value is repeated only where that helps and cannot harm: never one of a secret field, never one that came out of a
variable (the variable is named instead).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from penstock.config.choices import LIFTED
from penstock.config.component import ReadingContext
from penstock.config.document import Document, Node
from penstock.config.problems import Position, Problem, suggestion
from penstock.config.shown_keys import is_shown, path_part

_EXPECTED = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
    "dataclass": "a mapping",
    "path": "a path",
    "none": "nothing",
}
_SHAPE = re.compile(rf"({'|'.join(_EXPECTED)})_(type|parsing|from_float|attributes_type|required|unicode|parsing_size)")

_BOUNDS = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "needs at least {min_length}, and has {actual_length}",
    "too_long": "may have at most {max_length}, and has {actual_length}",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "may have at most {max_length} characters",
    "string_pattern_mismatch": "does not match the pattern {pattern}",
}


@dataclass(frozen=True)
class _Place:
    node: Node
    owner: Node
    """The mapping that the last key belongs to."""
    trail: tuple[str, ...]
    position: Position
    key_position: Position
    member_of: tuple[str, ...] | None
    """Where a union begins, if the error comes from one of its members."""

    @property
    def key(self) -> str:
        return "".join(part if part.startswith("[") else f".{path_part(part)}" for part in self.trail).lstrip(".")

    @property
    def last_key(self) -> str:
        return next((part for part in reversed(self.trail) if not part.startswith("[")), "")


@dataclass(frozen=True)
class _Finding:
    place: _Place
    what: str
    fix: str
    expected: str = ""
    """What the value should be, if it is of the wrong kind."""
    at_key: bool = False
    missing: str = ""
    """The missing key."""


def translate(errors: Iterable[ErrorDetails], document: Document, reading: ReadingContext) -> list[Problem]:
    """One problem per mistake, none for values whose problem is known already."""
    if document.root is None:
        return []
    findings = []
    for error in errors:
        place = _locate(document.root, error)
        if not place.node.reported and not _counts_only_good_items(error, place.node):
            findings.append(_finding(error, place, reading))
    problems = []
    for finding in _without_echoes(_one_per_union(findings)):
        place = finding.place
        position = place.key_position if finding.at_key else place.position
        problems.append(Problem(document.file, position, place.key, finding.what, finding.fix))
    return list(dict.fromkeys(problems))


def _locate(root: Node, error: ErrorDetails) -> _Place:
    node = owner = root
    trail: list[str] = []
    key_position, member_of, absent = root.position, None, False
    for index, item in enumerate(error["loc"]):
        if isinstance(item, int):
            if item < len(node.items):
                node = node.items[item]
                trail.append(f"[{item}]")
            continue
        way = [item]
        if item in LIFTED and item not in node.entries and "to" in node.entries:
            way = ["to", item]
        if way[0] in node.entries and (len(way) == 1 or item in node.entries["to"].entries):
            for step in way:
                owner, key_position, node = node, node.keys[step], node.entries[step]
                trail.append(step)
        elif index == len(error["loc"]) - 1 and error["type"] in ("missing", "config"):
            owner, absent = node, True
            trail.append(item)
        elif member_of is None and item != "[key]":
            # Not in the file: the name of a union's member, or of the option that a bare value sets.
            member_of = tuple(trail)
    if error["loc"] and error["loc"][-1] == "[key]":
        return _Place(node, owner, tuple(trail), key_position, key_position, None)
    position = owner.position if absent else node.position
    return _Place(owner if absent else node, owner, tuple(trail), position, key_position, member_of)


def _counts_only_good_items(error: ErrorDetails, node: Node) -> bool:
    # Wrong items have their own errors; pydantic also finds the list too short without them.
    return error["type"] == "too_short" and len(node.items) >= error["ctx"]["min_length"]


def _finding(error: ErrorDetails, place: _Place, reading: ReadingContext) -> _Finding:
    kind, context = error["type"], error.get("ctx", {})
    classes = [cls for value, cls in reading.readers if value is place.owner.value]
    if kind == "config":
        return _Finding(place, context["what"], context["fix"], at_key=context["at_key"])
    if kind == "extra_forbidden":
        newer = next((name for cls in classes if (name := _newer_name(cls, place.last_key))), None)
        if newer is not None:
            what = f"'{place.last_key}' is an older name of '{newer}', which is there too"
            return _Finding(place, what, "Keep one of them.", at_key=True)
        return _unknown_key(place, {key for cls in classes for key in _keys(cls)})
    if kind == "missing":
        meaning = next((text for cls in classes if (text := _description(cls, place.last_key))), "")
        return _Finding(place, f"missing key '{place.last_key}'", f"Add it. {meaning}".strip(), missing=place.last_key)
    secret = any(_is_secret(cls, place.last_key) for cls in classes)
    if kind in ("literal_error", "enum"):
        choices = re.findall(r"'([^']*)'", context["expected"])
        expected = context["expected"] if len(choices) == 1 else f"one of {', '.join(choices)}"
        fix = suggestion(str(place.node.value), choices, "values") if isinstance(place.node.value, str) else ""
        fix = fix if fix.startswith("Did") else ""
        return _Finding(place, _wrong(expected, place.node, secret), fix, expected)
    if match := _SHAPE.fullmatch(kind):
        expected = _EXPECTED[match[1]]
        # A value in place of a text, a list or a mapping may be the secret that belongs inside.
        wrong = _wrong(expected, place.node, secret or expected not in ("a whole number", "a number", "true or false"))
        return _Finding(place, wrong, _shape_fix(expected, place.node), expected)
    if kind in _BOUNDS:
        return _Finding(place, _BOUNDS[kind].format(**context), "")
    message = str(context["error"]) if "error" in context else error["msg"]
    return _Finding(place, _masked(message, place.node, secret), "")


def _unknown_key(place: _Place, known: Iterable[str]) -> _Finding:
    fix = suggestion(place.last_key, known, "keys")
    # A key without a value is more likely a value without a key, unless it is nearly one that there is.
    if is_shown(place.last_key) and (place.node.value is not None or fix.startswith("Did")):
        return _Finding(place, f"unknown key '{place.last_key}'", fix, at_key=True)
    where = replace(place, trail=place.trail[:-1])
    what = "what stands here is no key; it is not shown, because it may be a secret"
    return _Finding(where, what, f"Write `key: value`. {suggestion('', known, 'keys')}".strip(), at_key=True)


def _wrong(expected: str, node: Node, secret: bool) -> str:
    return f"expected {expected}, found {_shown(node, secret)}"


def _shown(node: Node, secret: bool) -> str:
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if node.written is not None:
        return f"what '{node.written}' stands for"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return "a number" if secret else f"the number {value}"
    return "text" if secret else f"'{str(value)[:60]}'"


def _shape_fix(expected: str, node: Node) -> str:
    if node.value is None:
        return "Give it a value, or remove the key."
    if expected == "text" and isinstance(node.value, (bool, int, float)):
        return "Put it in quotes."
    if expected == "a list" and not isinstance(node.value, dict):
        return "Write it in brackets: [...]."
    if expected == "a mapping":
        return "Write its options below it, indented, one `key: value` per line."
    return ""


def _masked(message: str, node: Node, secret: bool) -> str:
    if node.written is not None and node.value is not None:
        return message.replace(str(node.value), node.written)
    if secret and isinstance(node.value, (str, int, float)):
        return message.replace(str(node.value), "***")
    return message


def _one_per_union(findings: Sequence[_Finding]) -> list[_Finding]:
    """Merge the errors of a union's members: say once what would be right, or what the nearest member lacks."""
    kept: list[_Finding] = []
    for finding in findings:
        union = finding.place.member_of
        rivals = [f for f in findings if union is not None and f.place.member_of == union]
        if len(rivals) > 1 and finding.expected and finding.place.trail == union:
            if finding is not rivals[0] or any(not f.expected or f.place.trail != union for f in rivals):
                continue
            expected = " or ".join(dict.fromkeys(f.expected for f in rivals))
            finding = replace(finding, what=finding.what.replace(finding.expected, expected, 1), fix="")
        kept.append(finding)
    return list({(f.place.trail, f.what): f for f in kept}.values())


def _without_echoes(findings: Sequence[_Finding]) -> list[_Finding]:
    """Drop the missing-key error of a misspelt key: the other error says it all."""
    meant = {(id(f.place.owner), f.fix) for f in findings if f.at_key}
    return [f for f in findings if not f.missing or (id(f.place.owner), f"Did you mean '{f.missing}'?") not in meant]


def _keys(cls: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in cls.model_fields.items()]


def _field(cls: type[BaseModel], key: str) -> FieldInfo | None:
    """The field of the class for a key of the file: by its name, its alias, or an older name."""
    for name, field in cls.model_fields.items():
        if key in (name, field.alias, *_names(field)):
            return field
    return None


def _newer_name(cls: type[BaseModel], key: str) -> str | None:
    return next((name for name, field in cls.model_fields.items() if key in _names(field)[1:]), None)


def _names(field: FieldInfo) -> Sequence[object]:
    """All names of a key, the current one first, if there are several."""
    return field.validation_alias.choices if isinstance(field.validation_alias, AliasChoices) else ()


def _description(cls: type[BaseModel], key: str) -> str:
    field = _field(cls, key)
    return (field.description or "") if field is not None else ""


def _is_secret(cls: type[BaseModel], key: str) -> bool:
    field = _field(cls, key)
    return field is not None and "Secret" in repr(field.annotation)
