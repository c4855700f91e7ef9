"""From JSON documents to typed columns: names, types, and the table they make.

``flatten`` turns a whole Arrow array of documents into a table, ``flatten_pieces`` into several if one would be too
wide. ``types``, ``names``, ``casts`` and ``column`` are plain rules and need no numba; ``flatten`` brings it in when it
is first asked for. ``fitting`` takes finished columns into tables that have other types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.flatten.column import Column

if TYPE_CHECKING:
    from penstock.flatten.collisions import Collision
    from penstock.flatten.table import Flattened, flatten, flatten_pieces

__all__ = ["Collision", "Column", "Flattened", "flatten", "flatten_pieces"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from penstock.flatten import collisions, table

        return getattr(collisions if name == "Collision" else table, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
