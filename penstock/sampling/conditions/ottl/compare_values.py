"""Comparisons, by OTTL's rules.

Nil equals nil and nothing else. Numbers are compared by their exact value, integers with doubles too; strings and bytes
byte by byte; false is less than true. Values of other kinds than these, or of two kinds, are not equal, and none is
less than the other. What bytes, lists and maps are equal to cannot be said where a table has only their kind.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.span_table import Flags, Numbers, ValueKind
from penstock.sampling.conditions.ottl.value_columns import Column, Doubles, Truth

_BY_NUMBER = {
    "==": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_BY_BYTES = {"==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_MIRRORED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_INT_END = 2.0**63


def compare(symbol: str, left: Column, right: Column) -> Truth:
    """``left symbol right``."""
    if symbol == "!=":
        true, failed = compare("==", left, right)
        return Truth(~(true | failed), failed)
    by_number = _BY_NUMBER[symbol]
    true = left.is_nil & right.is_nil if "=" in symbol else left.is_nil & False
    failed = left.failed | right.failed
    for kind in (ValueKind.INT, ValueKind.BOOL):
        if (rows := _both(left, kind, right, kind)) is not None:
            true = true | (rows & by_number(left.integers, right.integers))
    if (rows := _both(left, ValueKind.DOUBLE, right, ValueKind.DOUBLE)) is not None:
        true = true | (rows & by_number(left.doubles, right.doubles))
    if (rows := _both(left, ValueKind.INT, right, ValueKind.DOUBLE)) is not None:
        true = true | (rows & _by_exact_value(symbol, left.integers, right.doubles))
    if (rows := _both(left, ValueKind.DOUBLE, right, ValueKind.INT)) is not None:
        true = true | (rows & _by_exact_value(_MIRRORED[symbol], right.integers, left.doubles))
    if (rows := _both(left, ValueKind.STRING, right, ValueKind.STRING)) is not None:
        true = true | (rows & _by_bytes(symbol, left.texts, right.texts)[0])
    if (rows := _both(left, ValueKind.BYTES, right, ValueKind.BYTES)) is not None:
        hits, known = _by_bytes(symbol, left.octets, right.octets)
        true, failed = true | (rows & hits), failed | (rows & ~known)
    for kind in (ValueKind.ARRAY, ValueKind.MAP) if symbol == "==" else ():
        if (rows := _both(left, kind, right, kind)) is not None:
            failed = failed | rows
    return Truth(true & ~failed if failed.any() else true, failed)


def _both(left: Column, left_kind: ValueKind, right: Column, right_kind: ValueKind) -> Flags | None:
    """The rows of these kinds, if there are any."""
    for column, kind in ((right, right_kind), (left, left_kind)):
        if len(column.kind) == 1 and column.kind[0] != kind:
            return None
    rows: Flags = left.is_kind(left_kind) & right.is_kind(right_kind)
    return rows if rows.any() else None


def _by_exact_value(symbol: str, integers: Numbers, doubles: Doubles) -> Flags:
    """A double may lie between integers, and integers between doubles: neither is made the other where it loses."""
    inside = (doubles >= -_INT_END) & (doubles < _INT_END)
    cut = np.trunc(np.where(inside, doubles, 0.0))
    whole = cut.astype(np.int64)
    rest = np.where(inside, doubles - cut, np.sign(doubles))
    order = (integers > whole).astype(np.int8) - (integers < whole)
    by_rest = np.where(rest > 0, -1, np.where(rest < 0, 1, 0))
    order = np.where(inside & (order != 0), order, by_rest)
    hits: Flags = _BY_NUMBER[symbol](order, 0) & ~np.isnan(doubles)
    return hits


def _by_bytes(symbol: str, left: pa.Array, right: pa.Array) -> tuple[Flags, Flags]:
    """Where it holds, and where both are known."""
    one: pa.Array | pa.Scalar = left[0] if len(left) == 1 and len(right) != 1 else left
    other: pa.Array | pa.Scalar = right[0] if len(right) == 1 and len(left) != 1 else right
    found = _BY_BYTES[symbol](one, other)
    known = np.ones(1, np.bool_) if not found.null_count else found.is_valid().to_numpy(zero_copy_only=False)
    return found.fill_null(False).to_numpy(zero_copy_only=False), known
