"""What a destination knows of a column: its name, where it comes from, and its type."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.flatten.types import InnerType


@dataclass(frozen=True)
class Column:
    """A column of the table and the JSON path that fills it (none for ``_unmapped``)."""

    name: str
    path: str | None
    type: InnerType
    sql_type: str | None = None
    """The type that a cast asks for, as written. A decimal has the type FLOAT64 and an Arrow array of decimal128."""
