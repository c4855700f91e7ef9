"""Arithmetic of numbers as Go does it: integers wrap around at 64 bits, and their quotient has no fraction.

An integer with a double is computed as a double. Division by zero is an error, and so is whatever is no number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from penstock.otlp.span_table import Numbers, ValueKind
from penstock.sampling.conditions.ottl.value_columns import Column, Doubles


def calculate(symbol: str, left: Column, right: Column) -> Column:
    """``left symbol right`` for ``+ - * /``."""
    both_whole = left.is_kind(ValueKind.INT) & right.is_kind(ValueKind.INT)
    numbers = (left.is_kind(ValueKind.INT) | left.is_kind(ValueKind.DOUBLE)) & (
        right.is_kind(ValueKind.INT) | right.is_kind(ValueKind.DOUBLE)
    )
    divisor = _doubles(right)
    failed = left.failed | right.failed | ~numbers | ((divisor == 0) & (symbol == "/"))
    with np.errstate(all="ignore"):
        integers = _INTEGERS[symbol](left.integers, right.integers)
        doubles = _DOUBLES[symbol](_doubles(left), divisor)
    kinds = np.where(both_whole, ValueKind.INT, ValueKind.DOUBLE).astype(np.uint8)
    return Column(kinds, integers, doubles, failed=failed)


def negate(column: Column) -> Column:
    numbers = column.is_kind(ValueKind.INT) | column.is_kind(ValueKind.DOUBLE)
    return Column(column.kind, -column.integers, -column.doubles, failed=column.failed | ~numbers)


def _doubles(column: Column) -> Doubles:
    return np.where(column.is_kind(ValueKind.DOUBLE), column.doubles, column.integers.astype(np.float64))


def _quotients(left: Numbers, right: Numbers) -> Numbers:
    divisors = np.where(right == 0, 1, right)
    rounded_down = left // divisors
    exact = rounded_down * divisors == left
    quotients: Numbers = rounded_down + (~exact & ((left < 0) != (divisors < 0)))
    return quotients


_INTEGERS: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": _quotients,
}
_DOUBLES: dict[str, Callable[[Doubles, Doubles], npt.NDArray[np.float64]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}
