"""Flattening the slow and obvious way, one value at a time: what the fast one is compared with. No casts."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce

from penstock.flatten.column_naming import column_name
from penstock.flatten.inner_types import InnerType, promote
from penstock.json.paths import format_path
from tests.json import reference as slow_json

Path = tuple[str, ...]
Cell = bool | int | float | str | datetime | None


@dataclass
class Sheet:
    """Types and cells per column name, and the places of documents."""

    types: dict[str, InnerType] = field(default_factory=dict)
    cells: dict[str, list[Cell]] = field(default_factory=dict)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    collided: int = 0


def flatten(documents: list[bytes | None], infer_timestamps: bool = False) -> Sheet:
    sheet = Sheet()
    rows: list[list[tuple[Path, str, bool]]] = []
    for index, document in enumerate(documents):
        text = None if document is None else slow_json.reads(document)
        if text is None:
            sheet.failed.append(index)
            continue
        values = list(slow_json.every_leaf(text))
        if values:
            sheet.rows.append(index)
            rows.append(values)
        else:
            sheet.empty.append(index)
    unmapped: list[dict[str, str]] = [{} for _ in rows]
    columns: dict[str, list[str | None]] = {}
    filled: dict[str, set[Path]] = {}
    for row, (values, left) in enumerate(zip(rows, unmapped, strict=True)):
        replaced: Counter[Path] = Counter()
        for path, value, counts in values:
            if not counts:
                replaced[path] += 1
                left[f"{format_path(path)}#{replaced[path]}"] = slow_json.compact(value)
                continue
            name = column_name(path)
            column = columns.setdefault(name, [None] * len(rows)) if name != "_unmapped" else []
            if name == "_unmapped" or column[row] is not None:
                left[format_path(path)] = slow_json.compact(value)
                sheet.collided += 1
            else:
                column[row] = value
                filled.setdefault(name, set()).add(path)
    met = list(dict.fromkeys(path for values in rows for path, _, counts in values if counts))
    for name, column in columns.items():
        sheet.types[name] = inner = column_type([v for v in column if v is not None], infer_timestamps)
        sheet.cells[name] = [None if v is None else cell(v, inner) for v in column]
        sheet.paths[name] = tuple(format_path(path) for path in met if path in filled[name])
    if any(unmapped):
        sheet.types["_unmapped"] = InnerType.STRING
        sheet.paths["_unmapped"] = ()
        sheet.cells["_unmapped"] = [
            "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{value}" for key, value in left.items()) + "}"
            if left
            else None
            for left in unmapped
        ]
    return sheet


def column_type(values: list[str], infer_timestamps: bool) -> InnerType:
    found = reduce(promote, (value_type(value, infer_timestamps) for value in values))
    rounded = found is InnerType.FLOAT64 and not all(map(is_kept, values))
    return InnerType.STRING if rounded else found


def is_kept(value: str) -> bool:
    """Whether a double gives these digits back."""
    return value in ("true", "false") or Decimal(value) == Decimal(repr(float(value)))


def value_type(value: str, infer_timestamps: bool) -> InnerType:
    if value in ("true", "false"):
        return InnerType.BOOL
    if value.startswith("["):
        return InnerType.STRING
    if value.startswith('"'):
        return InnerType.TIMESTAMP if infer_timestamps and timestamp(json.loads(value)) else InnerType.STRING
    if is_integer(value):
        return InnerType.INT64 if -(2**63) <= int(value) < 2**63 else InnerType.STRING
    return InnerType.FLOAT64 if math.isfinite(float(value)) else InnerType.STRING


def cell(value: str, inner: InnerType) -> Cell:
    if inner is InnerType.STRING:
        return slow_json.as_text(json.loads(value)) if value.startswith('"') else slow_json.compact(value)
    if inner is InnerType.TIMESTAMP:
        return timestamp(json.loads(value))
    number = {"true": "1", "false": "0"}.get(value, value)
    if inner is InnerType.FLOAT64:
        return float(number)
    return int(number) if inner is InnerType.INT64 else number == "1"


def is_integer(value: str) -> bool:
    return re.fullmatch(r"-?\d+", value, re.ASCII) is not None


def timestamp(text: str) -> datetime | None:
    shape = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?"
    if re.fullmatch(shape, text, re.ASCII) is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
