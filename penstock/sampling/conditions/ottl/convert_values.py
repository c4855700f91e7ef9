"""Values as texts, integers and doubles, as OTTL converts them. Nil stays nil.

Lists and maps have no text here, and bytes only if a table has them: where OTTL would write them out, there is an
error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.span_table import Flags, Numbers, ValueKind
from penstock.sampling.conditions.ottl.hexadecimal import hexadecimal_texts
from penstock.sampling.conditions.ottl.value_columns import Column, Doubles, spread

_Number = TypeVar("_Number", np.int64, np.float64)

_INTEGER = re.compile("[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf(inity)?|nan", re.IGNORECASE)
_HEXADECIMAL = re.compile(r"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?[0-9]+", re.IGNORECASE)
_INT_END = 2.0**63


def to_texts(column: Column) -> Column:
    """Numbers in decimal digits without an exponent, booleans as true and false, bytes as hexadecimal digits."""
    others = [kind for kind in ValueKind if kind != ValueKind.STRING and column.has(kind)]
    if not others:
        return column
    length = len(column)
    failed = np.array(np.broadcast_to(column.failed, length))
    kinds = np.broadcast_to(np.where(column.is_nil, ValueKind.ABSENT, ValueKind.STRING).astype(np.uint8), length)
    texts = spread(column.texts, length)
    for kind in others:
        rows = np.array(np.broadcast_to(column.is_kind(kind), length))
        if kind in (ValueKind.ARRAY, ValueKind.MAP):
            failed |= rows
        elif kind == ValueKind.BYTES:
            failed |= rows & column.octets.is_null().to_numpy(zero_copy_only=False)
            texts = pc.if_else(pa.array(rows), spread(hexadecimal_texts(column.octets), length), texts)
        elif kind in _WRITTEN:
            written = _WRITTEN[kind](column)
            texts = pc.if_else(pa.array(rows), spread(written, length), texts)
    return Column(kinds, texts=texts, failed=failed)


def to_integers(column: Column) -> Column:
    """Doubles lose their fraction, and are an error beyond 64 bits; a string that is no integer is nil."""
    integers, failed = column.integers, column.failed | _without_number(column)
    kinds = np.where(column.is_nil, ValueKind.ABSENT, ValueKind.INT).astype(np.uint8)
    if column.has(ValueKind.DOUBLE):
        rows = column.is_kind(ValueKind.DOUBLE)
        inside = (column.doubles >= -_INT_END) & (column.doubles < _INT_END)
        cut = np.where(inside, column.doubles, 0.0).astype(np.int64)
        integers, failed = np.where(rows, cut, integers), failed | (rows & ~inside)
    if column.has(ValueKind.STRING):
        rows = column.is_kind(ValueKind.STRING)
        read, known = _read(column.texts, _integer, np.int64)
        integers = np.where(rows, read, integers)
        kinds = np.where(rows & ~known, ValueKind.ABSENT, kinds).astype(np.uint8)
    return Column(kinds, integers, failed=failed)


def to_doubles(column: Column) -> Column:
    """A string that is no double is an error."""
    failed = column.failed | _without_number(column)
    kinds = np.where(column.is_nil, ValueKind.ABSENT, ValueKind.DOUBLE).astype(np.uint8)
    doubles: Doubles = np.where(column.is_kind(ValueKind.DOUBLE), column.doubles, column.integers.astype(np.float64))
    if column.has(ValueKind.STRING):
        rows = column.is_kind(ValueKind.STRING)
        read, known = _read(column.texts, _double, np.float64)
        doubles, failed = np.where(rows, read, doubles), failed | (rows & ~known)
    return Column(kinds, doubles=doubles, failed=failed)


def _without_number(column: Column) -> Flags:
    return column.is_kind(ValueKind.ARRAY) | column.is_kind(ValueKind.MAP) | column.is_kind(ValueKind.BYTES)


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > 19:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _double(text: str) -> float | None:
    if _HEXADECIMAL.fullmatch(text):
        return _hexadecimal(text)
    if not _DECIMAL.fullmatch(text):
        return None
    value = float(text)
    return None if math.isinf(value) and text[-1] in "0123456789." else value


def _hexadecimal(text: str) -> float | None:
    try:
        return float.fromhex(text)
    except OverflowError:
        return None


def _digits(value: float) -> str:
    """The shortest decimal that is read as this double, without an exponent."""
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def _texts_of_doubles(column: Column) -> pa.StringArray:
    # By their bits, so that -0 is not 0, and NaN is itself.
    rows = column.is_kind(ValueKind.DOUBLE)
    distinct, places = np.unique(np.where(rows, column.doubles, 0.0).view(np.int64), return_inverse=True)
    written = [_digits(value) for value in distinct.view(np.float64).tolist()]
    return pa.array(written, pa.string()).take(pa.array(places))


def _texts_of_booleans(column: Column) -> pa.StringArray:
    return pc.if_else(pa.array(column.integers != 0), "true", "false")


_WRITTEN: dict[ValueKind, Callable[[Column], pa.StringArray]] = {
    ValueKind.INT: lambda column: pa.array(column.integers).cast(pa.string()),
    ValueKind.BOOL: _texts_of_booleans,
    ValueKind.DOUBLE: _texts_of_doubles,
}


def _read(
    texts: pa.StringArray, read: Callable[[str], float | None], kind: type[_Number]
) -> tuple[npt.NDArray[_Number], Flags]:
    """What each text is as a number, and where it is one; each distinct text is read once."""
    encoded = texts.dictionary_encode()
    found = [read(text) for text in encoded.dictionary.to_pylist()] + [None]
    places: Numbers = encoded.indices.fill_null(len(found) - 1).to_numpy()
    numbers = np.array([0 if number is None else number for number in found], kind)
    known: Flags = np.array([number is not None for number in found])
    return numbers[places], known[places]
