"""The inner types, and what becomes of a column that holds two of them.

            STRING
           /      \\
      FLOAT64   TIMESTAMP
         |
       INT64
         |
       BOOL

A column's type is the lowest common ancestor of the types of its values. ``promote`` is associative, commutative and
idempotent, so batches may be split and merged in any order with one result.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class InnerType(StrEnum):
    """What a destination maps to one of its own types. Arrays are STRING: their JSON text."""

    BOOL = "BOOL"
    INT64 = "INT64"
    FLOAT64 = "FLOAT64"
    STRING = "STRING"
    TIMESTAMP = "TIMESTAMP"

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self]


def promote(one: InnerType, other: InnerType) -> InnerType:
    """The lowest type that both convert to."""
    ancestors = _with_ancestors(other)
    return next(candidate for candidate in _with_ancestors(one) if candidate in ancestors)


def promotions() -> frozenset[tuple[InnerType, InnerType]]:
    """Every type with each one above it."""
    return frozenset((inner, above) for inner in InnerType for above in _with_ancestors(inner)[1:])


_PARENT = {
    InnerType.BOOL: InnerType.INT64,
    InnerType.INT64: InnerType.FLOAT64,
    InnerType.FLOAT64: InnerType.STRING,
    InnerType.TIMESTAMP: InnerType.STRING,
}

_ARROW = {
    InnerType.BOOL: pa.bool_(),
    InnerType.INT64: pa.int64(),
    InnerType.FLOAT64: pa.float64(),
    InnerType.STRING: pa.string(),
    InnerType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


def _with_ancestors(inner: InnerType) -> list[InnerType]:
    chain = [inner]
    while chain[-1] in _PARENT:
        chain.append(_PARENT[chain[-1]])
    return chain
