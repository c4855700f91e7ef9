"""From JSON documents to typed columns: names, types, and the table they make.

``flatten`` turns a whole Arrow array of documents into a table. ``types``, ``names``, ``casts`` and ``column`` are
plain rules and need no numba; ``flatten`` brings it in when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.flatten.column import Column

if TYPE_CHECKING:
    from penstock.flatten.table import Collision, Flattened, flatten

__all__ = ["Collision", "Column", "Flattened", "flatten"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from penstock.flatten import table

        return getattr(table, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
