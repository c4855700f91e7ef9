"""From JSON documents to typed columns: names, types, and the table they make.

``flatten`` turns a whole Arrow array of documents into a table, ``flatten_pieces`` into several if one would be too
wide. ``column_naming`` imports nothing; ``inner_types``, ``casts`` and ``column`` are plain rules that import Arrow but
not numba; ``flatten`` imports it. Each is loaded when it is first used. ``fit_column`` converts finished columns for
tables of other types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.flatten.collisions import Collision
    from penstock.flatten.column import Column
    from penstock.flatten.table import Flattened, flatten, flatten_pieces

__all__ = ["Collision", "Column", "Flattened", "flatten", "flatten_pieces"]


def __getattr__(name: str) -> object:
    if name == "Column":
        from penstock.flatten import column

        return column.Column
    if name in __all__:
        from penstock.flatten import collisions, table

        return getattr(collisions if name == "Collision" else table, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
