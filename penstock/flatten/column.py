"""What a destination knows about a column: its name, the paths that fill it, and its type."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.flatten.inner_types import InnerType


@dataclass(frozen=True)
class Column:
    """A column of the table and the JSON paths that fill it, in the order in which they first came.

    Usually there is one path, several if documents spell a name differently (``/UserId`` and ``/userid``), and none for
    ``_unmapped``.
    """

    name: str
    paths: tuple[str, ...]
    type: InnerType
    sql_type: str | None = None
    """The type that a cast asks for, as written. A decimal has the type FLOAT64 and an Arrow array of decimal128."""
    json: bool = False
    """The values are of several kinds, so each is stored as JSON, whatever ``type`` says: it gives both the value of
    that type and the one that was sent."""
