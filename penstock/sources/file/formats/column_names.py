"""Names for the columns of a file, so that a row becomes an object in which nothing is twice."""

from __future__ import annotations

from collections.abc import Sequence


def distinct_names(columns: Sequence[str]) -> list[str]:
    """A column without a name is ``column_3``, by its place; one that comes again has its place after it: ``a_3``."""
    names: dict[str, None] = {}
    for number, column in enumerate(columns, 1):
        name = column or f"column_{number}"
        while name in names:
            name = f"{name}_{number}"
        names[name] = None
    return list(names)
