"""A table and its mirror, row by row: every value as text, in a form that both databases have in common."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import psycopg

Row = tuple[str | None, ...]
SHOWN = 5

_COLUMNS = """
    SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


@dataclass(frozen=True)
class Content:
    """A table's rows; equal ones are counted. ``columns``: names with the types of the source."""

    columns: Mapping[str, str]
    rows: Counter[Row]


@dataclass(frozen=True)
class Difference:
    """What one side has and the other has not."""

    table: str
    mirror: str
    columns: tuple[str, ...]
    missing: Counter[Row]
    surplus: Counter[Row]
    note: str = ""

    def lines(self) -> list[str]:
        found = [f"{self.table} in {self.mirror}: {self.note or f'{self.missing.total()} rows are missing or old'}"
                 f", {self.surplus.total()} should not be there"]  # fmt: skip
        for word, rows in (("missing", self.missing), ("surplus", self.surplus)):
            for row in sorted(rows, key=str)[:SHOWN]:
                short = {name: _short(value) for name, value in zip(self.columns, row, strict=True)}
                found.append(f"  {word} x{rows[row]}: {short}")
        return found


def difference(table: str, mirror: str, source: Content, target: Content) -> Difference | None:
    """A full outer comparison over all columns; None if the two are equal."""
    names = tuple(source.columns)
    if set(target.columns) != set(source.columns):
        note = f"it has the columns {sorted(target.columns)} instead of {sorted(source.columns)}"
        return Difference(table, mirror, names, Counter(), Counter(), note)
    missing, surplus = source.rows - target.rows, target.rows - source.rows
    return Difference(table, mirror, names, missing, surplus) if missing or surplus else None


def postgres_content(url: str, table: str, like: Content | None = None) -> Content:
    """All rows as the server writes them. ``like``: take columns in that order and read values by those types."""
    with psycopg.connect(url, options="-c TimeZone=UTC -c DateStyle=ISO -c extra_float_digits=3") as connection:
        own: dict[str, str] = dict(connection.execute(_COLUMNS, [table]).fetchall())
        columns = _in_order(own, like)
        names = ", ".join(f'"{name}"' for name in columns)
        plain = _plainly(columns)
        with connection.cursor().copy(f"COPY (SELECT {names} FROM {table}) TO STDOUT".encode()) as copy:
            return Content(columns, Counter(plain(row) for row in copy.rows()))


def duckdb_content(path: Path, table: str, like: Content) -> Content:
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(f"DESCRIBE {table}").fetchall()
        columns = _in_order({row[0]: row[1] for row in found}, like)
        names = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in columns)
        plain = _plainly(columns)
        return Content(columns, Counter(map(plain, connection.execute(f"SELECT {names} FROM {table}").fetchall())))


def _in_order(own: Mapping[str, str], like: Content | None) -> dict[str, str]:
    if like is None:
        return dict(own)
    return {**{name: kind for name, kind in like.columns.items() if name in own},
            **{name: kind for name, kind in own.items() if name not in like.columns}}  # fmt: skip


def _plainly(columns: Mapping[str, str]) -> Callable[[Sequence[str | None]], Row]:
    forms = [_FORMS.get(kind, _same) for kind in columns.values()]
    return lambda row: tuple(None if value is None else form(value) for form, value in zip(forms, row, strict=True))


def _same(value: str) -> str:
    return value


def _moment(value: str) -> str:
    found = datetime.fromisoformat(value)
    return (found if found.tzinfo is None else found.astimezone(UTC)).isoformat()


_FORMS: Mapping[str, Callable[[str], str]] = {
    "boolean": lambda value: value[:1],
    "double precision": lambda value: repr(float(value)),
    "jsonb": lambda value: json.dumps(json.loads(value), sort_keys=True),
    "timestamp with time zone": _moment,
    "timestamp without time zone": _moment,
}


def _short(value: str | None) -> str | None:
    return value if value is None or len(value) < 40 else f"{value[:16]}..{value[-8:]} ({len(value)} characters)"
