"""What a destination knows of a column: its name, where it comes from, and its type."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.flatten.inner_types import InnerType


@dataclass(frozen=True)
class Column:
    """A column of the table and the JSON paths that fill it, in the order in which they first came.

    There is one path as a rule, several if documents spell a name differently (``/UserId`` and ``/userid``), and none
    for ``_unmapped``.
    """

    name: str
    paths: tuple[str, ...]
    type: InnerType
    sql_type: str | None = None
    """The type that a cast asks for, as written. A decimal has the type FLOAT64 and an Arrow array of decimal128."""
    json: bool = False
    """The values are not all of one kind, so each is there as JSON, whatever ``type`` says: the value of that type, and
    the one that was sent, can both be had from it."""
