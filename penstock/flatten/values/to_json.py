"""Converts typed columns back to text: each value as JSON writes it.

Integers in digits; doubles with the fewest digits that give the same double, always recognisable as one (``9.0``,
``1e+30``); decimals in plain digits without trailing zeros; timestamps in RFC 3339, UTC, with six digits of fraction.
As text, a string is its characters; as JSON it has quotes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.arrow_text import quote


def as_text(array: pa.Array) -> pa.Array:
    """Values as text: a string array, or a large one if it needs 64-bit offsets."""
    found = array.type
    if pa.types.is_string(found):
        return array
    if pa.types.is_large_string(found):
        return array.cast(pa.string()) if array.nbytes < 2**31 else array
    if pa.types.is_floating(found):
        return double_text(array)
    if pa.types.is_decimal(found):
        return decimal_text(array)
    if pa.types.is_timestamp(found):
        return timestamp_text(array)
    return array.cast(pa.string())


def json_text(array: pa.Array) -> pa.Array:
    """Values as JSON: text and timestamps in quotes, nulls as ``null``."""
    text = as_text(array)
    if pa.types.is_floating(array.type):
        # JSON has no literal for NaN and infinities.
        quoted = pc.if_else(pc.is_finite(array), text, pc.binary_join_element_wise('"', text, '"', ""))
    elif pa.types.is_timestamp(array.type) or pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        quoted = pc.if_else(text.is_valid(), quote(text).cast(pa.string()), pa.scalar(None, pa.string()))
    else:
        quoted = text
    return quoted.fill_null("null")


def double_text(array: pa.DoubleArray) -> pa.StringArray:
    return pc.replace_substring_regex(array.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")


def decimal_text(array: pa.Decimal128Array) -> pa.StringArray:
    scale = array.type.scale
    digits = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), offset=array.offset)
    text = digits.cast(pa.string())
    if scale == 0:
        return text
    sign = pc.if_else(pc.starts_with(text, "-"), "-", "")
    text = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), scale + 1, "0")
    whole = pc.utf8_slice_codeunits(text, 0, -scale)
    fraction = pc.utf8_rtrim(pc.utf8_slice_codeunits(text, -scale, None), "0")
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    return pc.binary_join_element_wise(sign, whole, point, fraction, "")


_FIRST = np.datetime64("0001-01-01", "us").astype(np.int64)
_LAST = np.datetime64("9999-12-31T23:59:59.999999", "us").astype(np.int64)


def timestamp_text(array: pa.TimestampArray) -> pa.StringArray:
    """RFC 3339. A time without a four-digit year becomes its number of microseconds since 1970."""
    micros = array.view(pa.int64())
    far = pc.or_(pc.less(micros, _FIRST), pc.greater(micros, _LAST))
    near = pc.if_else(far, 0, micros).view(pa.timestamp("us")).cast(pa.string())
    text = pc.binary_join_element_wise(pc.replace_substring(near, " ", "T"), "Z", "")
    return pc.if_else(far, micros.cast(pa.string()), text)
