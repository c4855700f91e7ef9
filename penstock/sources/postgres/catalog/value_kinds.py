"""How a column's values become JSON: decided once per column, by its type."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What PostgreSQL's text of a value is written as."""

    TEXT = 0
    """A JSON string."""
    NUMBER = 1
    """The digits as they are; what is no JSON number (NaN, Infinity) as a string."""
    BOOLEAN = 2
    JSON = 3
    """The value itself."""
    TIMESTAMP = 4
    """``2026-01-02T03:04:05.123456``; what that form cannot say (infinity, BC) as PostgreSQL's text."""
    TIMESTAMPTZ = 5
    """The same with a ``Z``: sessions of this source are in UTC."""


_KINDS = {
    16: Kind.BOOLEAN,
    20: Kind.NUMBER, 21: Kind.NUMBER, 23: Kind.NUMBER, 700: Kind.NUMBER, 701: Kind.NUMBER, 1700: Kind.NUMBER,
    114: Kind.JSON, 3802: Kind.JSON,
    1114: Kind.TIMESTAMP, 1184: Kind.TIMESTAMPTZ,
}  # fmt: skip
"""By the type's number in ``pg_type``, which is fixed for built-in types."""


def kind_of(type_oid: int) -> Kind:
    """The kind of a type that is not a domain."""
    return _KINDS.get(type_oid, Kind.TEXT)
