"""From one type to another, row by row: what ``cast`` does, and what operators do to values that come as another type.

Nothing fails: a value that cannot be converted is null.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.compare_numbers import number_key
from penstock.steps.expression.columns import BOOLEAN, FLOAT, INT, NULL, TEXT, Column, Flags, texts, truths

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_SHORT_INTEGER = r"^[+-]?[0-9]{1,18}$"
_TRUE = pa.array(["true", "t", "yes", "y", "1"])
_FALSE = pa.array(["false", "f", "no", "n", "0"])

_MOST_DIGITS = 20
_RANGES = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}


def cast(column: Column, kind: str) -> Column:
    """``kind`` is ``boolean``, ``string``, ``double`` or one of the integer types."""
    if kind == "boolean":
        return to_truths(column, numbers=True)
    if kind == "string":
        return texts(column.text, ~column.nulls)
    numbers = to_numbers(column)
    if kind == "double":
        known = ~numbers.nulls & np.isfinite(numbers.floats)
        return Column(np.where(known, FLOAT, NULL).astype(np.int8), floats=numbers.floats)
    return _to_integers(numbers, _RANGES[kind])


def to_numbers(column: Column, booleans: bool = True) -> Column:
    """Numbers as they are, text as the number it spells, booleans as 1 and 0 (or, if not wanted, as null)."""
    types = column.types
    if column.has(BOOLEAN):
        types = np.where(types == BOOLEAN, INT if booleans else NULL, types).astype(np.int8)
        strings = column.strings if column.has(TEXT) else None
        column = Column(types, column.ints, column.floats, strings, column.plain, column.spelling, column.exact)
    if not column.has(TEXT):
        return column
    is_text = types == TEXT
    trimmed = pc.utf8_trim_whitespace(column.strings)
    plain = pc.replace_substring_regex(trimmed, r"^\+", "")
    spells_integer, floats = _flags(pc.match_substring_regex(plain, _SHORT_INTEGER)) & is_text, column.floats
    spells_number = _flags(pc.match_substring_regex(trimmed, _NUMBER)) & is_text
    read = pc.if_else(pa.array(spells_integer), plain, "0").cast(pa.int64()).to_numpy()
    ints = np.where(spells_integer, read, column.ints)
    floats = floats.copy()
    # Row by row: only text that spells a number and is compared with one comes here, and Python reads it exactly.
    for row in np.flatnonzero(spells_number & ~spells_integer).tolist():
        floats[row] = float(trimmed[row].as_py())
    floats = np.where(spells_integer, ints, floats)
    types = np.where(is_text, np.where(spells_integer, INT, np.where(spells_number, FLOAT, NULL)), types)
    # Few texts are compared with numbers: only short integers are plain without a look at their digits.
    plain = np.where(is_text, spells_integer & (np.abs(ints) <= 2**53), column.plain)
    numbers = column

    def spelling(row: int) -> str | None:
        return str(trimmed[row].as_py()) if is_text[row] else numbers.spelling(row)

    return Column(types.astype(np.int8), ints, floats, plain=plain, spelling=spelling, exact=is_text | column.exact)


def to_truths(column: Column, numbers: bool = False) -> Column:
    """Booleans as they are, text as the boolean it spells; numbers are null, or if wanted true when not zero."""
    values, known = column.ints != 0, column.types == BOOLEAN
    if column.has(TEXT):
        is_text = column.types == TEXT
        word = pc.utf8_lower(pc.utf8_trim_whitespace(column.strings))
        yes, no = _flags(pc.is_in(word, _TRUE)), _flags(pc.is_in(word, _FALSE))
        values = np.where(is_text, yes, values)
        known = known | (is_text & (yes | no))
    if numbers:
        is_number = (column.types == INT) | (column.types == FLOAT)
        values = np.where(is_number, ~is_zero(column), values)
        known = known | is_number
    return truths(values, known)


def is_zero(numbers: Column) -> Flags:
    """Where a number is zero, and not only so small that its double is."""
    zero: Flags = numbers.floats == 0
    is_number = (numbers.types == INT) | (numbers.types == FLOAT)
    for row in np.flatnonzero(zero & is_number & ~numbers.plain).tolist():
        spelling = numbers.spelling(row)
        zero[row] = spelling is None or number_key(spelling)[0] == 0
    return zero


def _to_integers(numbers: Column, limit: int) -> Column:
    is_float = numbers.types == FLOAT
    whole = np.trunc(np.where(is_float, numbers.floats, 0.0))
    fits_float = (whole >= -float(limit)) & (whole < float(limit))
    ints = np.where(is_float, np.where(fits_float, whole, 0).astype(np.int64), numbers.ints)
    fits_int = (ints >= -limit) & (ints <= limit - 1)
    if is_float.any():
        # Row by row: few numbers have more digits than a double keeps.
        for row in np.flatnonzero(is_float & ~numbers.plain).tolist():
            spelling = numbers.spelling(row)
            if spelling is not None:
                exact = _truncated(spelling)
                fits_float[row] = exact is not None and -limit <= exact < limit
                ints[row] = exact if fits_float[row] else 0
    known = ~numbers.nulls & np.where(is_float, fits_float, fits_int)
    return Column(np.where(known, INT, NULL).astype(np.int8), ints)


def _truncated(spelling: str) -> int | None:
    """The digits before the point; none where they are more than any integer type has."""
    sign, size, _ = number_key(spelling)
    if not sign or abs(size) > _MOST_DIGITS:
        return None if size * sign > 0 else 0
    return int(Decimal(spelling))


def _flags(hits: pa.BooleanArray) -> Flags:
    flags: Flags = hits.to_numpy(zero_copy_only=False)
    return flags
