"""Converts arrays to another type, with a flag for each value that survives without loss.

Every function takes an array of a type that columns have (bool, int64, float64, decimal128, string, timestamp), and
returns the values of the other type with a flag for each: whether it could be converted back. Nulls have any value and
any flag. ``fit_column`` says what counts as the same value.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flatten.values.doubles_as_decimals import short_decimals
from penstock.flatten.values.parse_numbers import Doubles, cast_decimals, cast_integers
from penstock.flatten.values.same_number import same_numbers
from penstock.flatten.values.timestamps import cast_timestamps
from penstock.flatten.values.to_json import as_text, double_text
from penstock.flatten.values.value_spans import Bools, Int64s, text_spans

Values = npt.NDArray[np.generic]


def as_booleans(array: pa.Array) -> tuple[Values, Bools]:
    if pa.types.is_timestamp(array.type):
        return _none(array, np.bool_)
    if _is_number(array.type) and not pa.types.is_decimal(array.type):
        numbers = numbers_of(array)
        return numbers == 1, (numbers == 0) | (numbers == 1)
    yes, no = ("1", "0") if pa.types.is_decimal(array.type) else ("true", "false")
    text = as_text(array)
    true = flags(pc.equal(text, yes))
    return true, true | flags(pc.equal(text, no))


def as_integers(array: pa.Array, bits: int) -> tuple[Values, Bools]:
    if pa.types.is_timestamp(array.type):
        return _none(array, np.int64)
    if pa.types.is_boolean(array.type):
        return flags(array).astype(np.int64), np.ones(len(array), np.bool_)
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if pa.types.is_int64(array.type):
        whole = numbers_of(array)
        return whole, (whole >= least) & (whole <= most)
    if pa.types.is_float64(array.type):
        doubles = numbers_of(array)
        # 2.0 ** 63 is the first double that does not fit, so the upper limit is exclusive.
        fits = (doubles >= float(least)) & (doubles < 2.0 ** (bits - 1)) & (doubles == np.trunc(doubles))
        integers = np.where(fits, doubles, 0.0).astype(np.int64)
        large = np.flatnonzero(fits & (np.abs(doubles) > 2.0**53))
        if len(large):
            # Doubles are so far apart here that the printed digits of a double differ from its exact value.
            integers[large], fits[large] = cast_integers(text_spans(double_text(pa.array(doubles[large]))), bits)
        return integers, fits
    text = as_text(array)
    integers, fits = cast_integers(text_spans(text), bits)
    return integers, _unless_spelled_oddly(text, fits, integers == 0)


def as_doubles(array: pa.Array) -> tuple[Values, Bools]:
    if pa.types.is_timestamp(array.type):
        return _none(array, np.float64)
    if pa.types.is_float64(array.type):
        return numbers_of(array), np.ones(len(array), np.bool_)
    if pa.types.is_boolean(array.type):
        return flags(array).astype(np.float64), np.ones(len(array), np.bool_)
    if pa.types.is_int64(array.type):
        integers = numbers_of(array)
        doubles = integers.astype(np.float64)
        fits = (integers >= -(2**53)) & (integers <= 2**53)
        if not fits.all():
            large = pa.array(~fits)
            text = pa.array(integers).filter(large).cast(pa.string())
            fits[~fits] = same_numbers(text, double_text(pa.array(doubles[~fits])))
        return doubles, fits
    return _doubles_of_text(as_text(array))


def survives_float32(doubles: Values) -> Bools:
    """Whether the shortest text of the nearest 32-bit float is that of the double. Not if the double is exactly between
    two floats: then engines print different digits."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = doubles.astype(np.float32)
        found: Bools = np.isfinite(single)
        behind = np.where(np.greater(doubles, single), np.float32(np.inf), np.float32(-np.inf))
        beyond = np.subtract(np.nextafter(single, behind), doubles, dtype=np.float64)
        found &= (doubles == single) | (np.subtract(doubles, single, dtype=np.float64) != beyond)
    digits = pa.array(np.where(found, single, np.float32(0))).cast(pa.string())
    found &= digits.cast(pa.float64()).to_numpy() == doubles
    return found


def as_decimals(array: pa.Array, precision: int, scale: int) -> tuple[Values, Bools]:
    if pa.types.is_timestamp(array.type):
        return _none(array, np.uint64, 2)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int64())
    if not pa.types.is_integer(array.type) and not pa.types.is_floating(array.type):
        text = as_text(array)
        words, fits = cast_decimals(text_spans(text), precision, scale)
        return words, _unless_spelled_oddly(text, fits, (words[:, 0] | words[:, 1]) == 0)
    numbers = numbers_of(array)
    words, fits = short_decimals(numbers.astype(np.float64), precision, scale)
    if not fits.all():
        rest = ~fits
        words[rest], fits[rest] = cast_decimals(text_spans(as_text(pa.array(numbers[rest]))), precision, scale)
    return words, fits


def as_timestamps(array: pa.Array, step: int) -> tuple[Values, Bools]:
    """As microseconds since 1970, which must be a multiple of ``step``."""
    if pa.types.is_timestamp(array.type):
        micros, fits = numbers_of(array.view(pa.int64())), np.ones(len(array), np.bool_)
    elif _is_text(array.type):
        micros, fits = cast_timestamps(text_spans(array))
        fits &= flags(pc.match_substring_regex(array, _RFC_3339))
    else:
        return _none(array, np.int64)
    return micros, fits & (micros % step == 0)


def _doubles_of_text(text: pa.Array) -> tuple[Values, Bools]:
    numeric = pc.match_substring_regex(text, _JSON_NUMBER)
    doubles = pc.if_else(numeric, text, "0").cast(pa.float64()).fill_null(0.0).to_numpy()
    fits = flags(numeric) & np.isfinite(doubles)
    # A double always keeps as few digits as these characters without an exponent can have.
    sure = pc.and_(pc.less_equal(pc.binary_length(text), 15), pc.invert(_has_exponent(text)))
    unsure = np.flatnonzero(fits & ~flags(sure))
    if len(unsure):
        fits[unsure] = _spelled_alike(text.take(pa.array(unsure)), doubles[unsure])
    return doubles, fits


def _spelled_alike(text: pa.Array, doubles: Doubles) -> Bools:
    """Whether these numbers have the same digits as their doubles."""
    spelling = double_text(pa.array(doubles))
    alike = flags(pc.equal(_without_trailing_zeros(spelling), _without_trailing_zeros(text)))
    # Plain digits may equal a double that is printed with an exponent: the one case to compare value by value.
    candidates = pc.and_(_has_exponent(spelling), pc.invert(_has_exponent(text)))
    some = np.flatnonzero(flags(candidates) & ~alike)
    for place, digits in zip(some.tolist(), text.take(pa.array(some)).to_pylist(), strict=True):
        alike[place] = Decimal(digits) == Decimal(repr(float(doubles[place])))
    return alike


def _unless_spelled_oddly(text: pa.Array, fits: Bools, zero: Bools) -> Bools:
    """The numbers that fit and have no exponent and no negative zero, which only doubles have."""
    fits = fits & ~flags(_has_exponent(text))
    zeros = np.flatnonzero(fits & zero)
    fits[zeros] = ~flags(pc.starts_with(text.take(pa.array(zeros)), "-"))
    return fits


_JSON_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_RFC_3339 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6}0*)?(Z|[+-][0-9]{2}:[0-9]{2})?$"


def _has_exponent(text: pa.Array) -> pa.BooleanArray:
    return pc.or_(pc.match_substring(text, "e"), pc.match_substring(text, "E"))


def _without_trailing_zeros(text: pa.Array) -> pa.Array:
    stripped = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    return pc.if_else(pc.match_substring(text, "."), stripped, text)


def _is_number(found: pa.DataType) -> bool:
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found))


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def flags(array: pa.BooleanArray) -> Bools:
    """Booleans, with false for nulls."""
    found: Bools = (array.fill_null(False) if array.null_count else array).to_numpy(zero_copy_only=False)
    return found


def numbers_of(array: pa.Array) -> Int64s | Doubles:
    """Integers or doubles, with zero for nulls."""
    found: Int64s | Doubles = (array.fill_null(0) if array.null_count else array).to_numpy()
    return found


def _none(array: pa.Array, dtype: type[np.generic], *more: int) -> tuple[Values, Bools]:
    return np.zeros((len(array), *more), dtype), np.zeros(len(array), np.bool_)
