"""The slow way to do what the steps do: on parsed objects, one at a time, as plainly as it can be said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]


def keys(field: str) -> list[str]:
    """The keys of a dotted path whose escaped dots are ``\\.``."""
    return [key.replace("\0", ".") for key in field.replace("\\.", "\0").split(".")]


def omitted(record: Object, fields: Sequence[str]) -> Object:
    for field in fields:
        record = _omit(record, keys(field))
    return record


def _omit(record: Object, path: list[str]) -> Object:
    result = dict(record)
    if path[0] in result:
        if len(path) == 1:
            del result[path[0]]
        elif isinstance(result[path[0]], dict):
            result[path[0]] = _omit(result[path[0]], path[1:])
    return result


def picked(record: Object, fields: Sequence[str]) -> Object:
    return _pick(record, [keys(field) for field in fields])


def _pick(record: Object, paths: list[list[str]]) -> Object:
    result: Object = {}
    for key, value in record.items():
        below = [path[1:] for path in paths if path[0] == key]
        if [] in below:
            result[key] = value
        elif below and isinstance(value, dict):
            inside = _pick(value, below)
            if inside:
                result[key] = inside
    return result


def renamed(record: Object, names: dict[str, str]) -> Object:
    """Top-level names only, all at once."""
    taken = {new for old, new in names.items() if old in record}
    return {names.get(key, key): value for key, value in record.items() if key in names or key not in taken}


def put(record: Object, path: Sequence[str], value: Any) -> Object | None:
    """``None`` if something is in the way."""
    result = dict(record)
    if len(path) == 1:
        result[path[0]] = value
        return result
    inner = result.get(path[0])
    if inner is not None and not isinstance(inner, dict):
        return None
    placed = put(inner or {}, path[1:], value)
    if placed is None:
        return None
    result[path[0]] = placed
    return result


def moved(record: Object, source: Sequence[str], target: Sequence[str]) -> Object | None:
    """``None`` if something is in the way."""
    node: Any = record
    for key in source:
        if not isinstance(node, dict) or key not in node:
            return record
        node = node[key]
    rest = _omit(record, list(source))
    old: Any = rest
    for key in target:
        old = old.get(key) if isinstance(old, dict) else None
    return put(rest, target, merged(old, node))


def merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}
