"""Converts values of a staged column for a real table's column of another type, and finds those that do not fit.

A value fits if nothing of it is lost, that is, if it could be converted back:

- anything fits text, in its JSON spelling (``true``, ``7``, ``1.5``, ``9.0``, ``1e+30``; a timestamp in RFC 3339),
  unless the column is too short for it;
- a number fits a type that has the same number, by its digits: ``9.0`` fits a bigint, ``9.5`` does not; ``1`` fits a
  boolean, ``2`` does not; ``12.345`` does not fit numeric(12,2). A floating type has the numbers that it prints: 0.1 is
  the shortest text of its double, so it fits; 0.10000000000000001 gives the same double and does not fit;
- text fits numbers if it spells one in plain digits: ``7``, ``7.0`` and ``1.50`` do; ``007``, ``+7`` and ``1e3`` do
  not, nor do more digits than the column keeps. (A double also accepts the text that a double is printed as.)
- text fits a boolean as ``true`` or ``false``, and a timestamp as RFC 3339 with up to six digits of fraction, where a
  space may stand for the ``T`` and no zone means UTC; but not with more digits than the column keeps, unless they are
  zeros, and nor does a timestamp. Timestamps and numbers do not fit each other;
- anything fits JSON as what it is: text is a string there, also if it spells a number, ``true`` or ``null``. Only text
  that is a whole object or array is that object or array: it is how documents within documents are sent.

A type that is not known here gets text, and the database converts it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flatten.casts import Cast, Form
from penstock.flatten.inner_types import InnerType
from penstock.flatten.values.lossless import (
    Values,
    as_booleans,
    as_decimals,
    as_doubles,
    as_integers,
    as_timestamps,
    flags,
    numbers_of,
    survives_float32,
)
from penstock.flatten.values.parse_numbers import cast_decimals, cast_doubles, cast_integers
from penstock.flatten.values.text_values import text_array
from penstock.flatten.values.timestamps import cast_timestamps
from penstock.flatten.values.to_json import as_text, json_text
from penstock.flatten.values.value_spans import Bools, text_spans
from penstock.json.documents import documents

__all__ = ["Fitted", "fit", "fit_json", "fit_unconverted", "json_values", "plain_text"]


@dataclass(frozen=True)
class Fitted:
    """``array`` has the target's Arrow type (text of more than 2 GiB: large_string)."""

    array: pa.Array | pa.ChunkedArray
    lost: pa.BooleanArray | None = None
    """True where a value could not be converted; it is null in ``array``. None if nothing is lost."""


def fit(array: pa.Array | pa.ChunkedArray, target: Cast) -> Fitted:
    """Convert a column to the type of the column that it goes into."""
    if not isinstance(array, pa.ChunkedArray):
        return _fit(array, target)
    pieces = [_fit(chunk, target) for chunk in array.chunks] or [_fit(pa.array([], array.type), target)]
    arrays = [piece.array for piece in pieces]
    if any(pa.types.is_large_string(found.type) for found in arrays):
        arrays = [found.cast(pa.large_string()) for found in arrays]
    fitted = pa.chunked_array(arrays)
    if all(piece.lost is None for piece in pieces):
        return Fitted(fitted)
    lost = [pa.repeat(False, len(piece.array)) if piece.lost is None else piece.lost for piece in pieces]
    return Fitted(fitted, pa.concat_arrays(lost))


def fit_unconverted(array: pa.Array, target: Cast) -> Fitted:
    """Integers or doubles for a decimal column whose engine converts them itself: the same numbers, with null for those
    that the column cannot hold. The column must have at least ``DEFAULT_SCALE`` digits after the point."""
    numbers = numbers_of(array)
    limit = 10 ** (target.precision - target.scale)
    if pa.types.is_floating(array.type):
        size = np.abs(numbers)
        # No double below a power of ten rounds up to it: it has at most 17 digits, so none beyond the scale.
        fits = (size < float(limit)) & ((size == 0) | (size >= 10.0 ** (_DOUBLE_DIGITS - 1 - target.scale)))
        small = np.flatnonzero(~fits & (size < 1))
        if len(small):
            fits[small] = as_decimals(pa.array(numbers[small]), target.precision, target.scale)[1]
    elif limit > 2**63:
        return Fitted(array)
    else:
        fits = (numbers < limit) & (numbers > -limit)
    lost = _valid(array) & ~fits
    if not lost.any():
        return Fitted(array)
    mask = pa.array(lost)
    return Fitted(pc.if_else(mask, pa.scalar(None, array.type), array), mask)


_DOUBLE_DIGITS = 17
"""The most digits that it takes to identify a double."""


def fit_json(values: pa.Array, target: Cast) -> Fitted:
    """The same for values in JSON: a string by the rules for text, a number by those for numbers. The result for a
    value does not depend on the others."""
    if target.form is Form.JSON:
        strings = pc.starts_with(values, '"').fill_null(False)
        return Fitted(pc.if_else(strings, _json_of_text(plain_text(values)), _json_as_it_is(values)))
    if target.type is None or target.type is InnerType.STRING:
        return fit(plain_text(values), target)
    numbers, booleans = _bare(values)
    if numbers.all():
        return _fitted(values, target.arrow, *_of_numbers(values, target))
    is_text = pa.array(~(numbers | booleans))
    fitted = fit(plain_text(pc.if_else(is_text, values, pa.scalar(None, values.type))), target)
    array = fitted.array
    lost = np.zeros(len(values), np.bool_) if fitted.lost is None else flags(fitted.lost)
    for chosen in (numbers, booleans):
        if not chosen.any():
            continue
        some = values.filter(pa.array(chosen))
        again = (
            _fitted(some, target.arrow, *_of_numbers(some, target))
            if chosen is numbers
            else fit(pc.equal(some, "true"), target)
        )
        array = pc.replace_with_mask(array, pa.array(chosen), again.array)
        if again.lost is not None:
            lost[chosen] = flags(again.lost)
    return Fitted(array, pa.array(lost) if lost.any() else None)


def _bare(values: pa.Array) -> tuple[Bools, Bools]:
    """Which JSON values are numbers, and which are booleans, by their first character."""
    docs = documents(values)
    first = np.zeros(len(docs), np.uint8)
    there = docs.valid & (docs.offsets[1:] > docs.offsets[:-1])
    first[there] = docs.buffer[docs.offsets[:-1][there]]
    return (first == ord("-")) | ((first >= ord("0")) & (first <= ord("9"))), (first == ord("t")) | (first == ord("f"))


def _of_numbers(spellings: pa.Array, target: Cast) -> tuple[Values, Bools]:
    """Converts numbers by their digits, without going through another type."""
    spans = text_spans(spellings)
    if target.type is InnerType.TIMESTAMP:
        return np.zeros(len(spans), np.int64), np.zeros(len(spans), np.bool_)
    if target.type is InnerType.BOOL:
        integers, fits = cast_integers(spans, 64)
        return integers == 1, fits & ((integers == 0) | (integers == 1))
    if target.type is InnerType.INT64:
        integers, fits = cast_integers(spans, target.bits)
        return integers, fits & (integers >= 0) if target.unsigned else fits
    if target.precision:
        words, fits = cast_decimals(spans, target.precision, target.scale)
        # The sign of a number of 128 bits is the highest bit of its second word.
        return words, fits & (words[:, 1].view(np.int64) >= 0) if target.unsigned else fits
    doubles, fits = cast_doubles(spans)
    zeros = np.flatnonzero((doubles == 0) & np.signbit(doubles))
    # An integer zero has no sign.
    doubles[zeros[flags(pc.equal(spellings.take(pa.array(zeros)), "-0"))]] = 0.0
    return doubles, fits & survives_float32(doubles) if target.bits == 32 else fits


def json_values(array: pa.Array | pa.ChunkedArray, chosen: pa.BooleanArray | pa.ChunkedArray) -> pa.StringArray:
    """The chosen values as JSON, as ``_unmapped`` keeps them."""
    values = array.filter(chosen)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return json_text(_known(values))


def _fit(array: pa.Array, target: Cast) -> Fitted:
    array = _known(array)
    if target.form is Form.JSON:
        return Fitted(_as_json(array))
    if target.type is None:
        return _into_form(as_text(array), target)
    if pa.types.is_null(array.type):
        return Fitted(pa.nulls(len(array), target.arrow))
    if target.type is InnerType.STRING:
        return _into_text(array, target)
    if array.type == target.arrow and not target.limited:
        return Fitted(array)
    if target.type is InnerType.TIMESTAMP:
        values, fits = as_timestamps(array, target.microseconds)
    elif target.type is InnerType.BOOL:
        values, fits = as_booleans(array)
    elif target.type is InnerType.INT64:
        values, fits = as_integers(array, target.bits)
        if target.unsigned:
            fits = fits & (values.view(np.int64) >= 0)
    elif target.precision:
        values, fits = as_decimals(array, target.precision, target.scale)
        if target.unsigned:
            fits = fits & (values[:, 1].view(np.int64) >= 0)
    else:
        values, fits = as_doubles(array)
        if target.bits == 32:
            fits = fits & survives_float32(values)
    return _fitted(array, target.arrow, values, fits)


def _fitted(source: pa.Array, arrow_type: pa.DataType | None, values: Values, fits: Bools) -> Fitted:
    valid = _valid(source)
    lost = valid & ~fits
    filled = valid & fits
    bitmap = None if filled.all() else pa.py_buffer(np.packbits(filled, bitorder="little"))
    data = (
        np.packbits(values.view(np.bool_), bitorder="little")
        if values.dtype == np.bool_
        else np.ascontiguousarray(values)
    )
    array = pa.Array.from_buffers(arrow_type, len(source), [bitmap, pa.py_buffer(data)])
    return Fitted(array, pa.array(lost) if lost.any() else None)


def _into_text(array: pa.Array, target: Cast) -> Fitted:
    text = as_text(array)
    if target.max_bytes is not None:
        too_long = pc.greater(pc.binary_length(text), target.max_bytes).fill_null(False)
    elif target.max_length is not None:
        too_long = pc.greater(pc.utf8_length(text), target.max_length).fill_null(False)
    else:
        return Fitted(text)
    if target.padded:
        # The engine cannot tell trailing spaces from its padding.
        too_long = pc.or_(too_long, pc.ends_with(text, " ").fill_null(False))
    if not too_long.true_count:
        return Fitted(text)
    return Fitted(pc.if_else(too_long, pa.scalar(None, text.type), text), too_long)


def _into_form(text: pa.Array, target: Cast) -> Fitted:
    """Text for a type that only the database has. What it would certainly refuse or change does not fit."""
    form = target.form
    if form is None and target.pattern is None:
        return Fitted(text)
    if form is Form.UUID:
        text = pc.ascii_lower(text)  # one spelling, so that equal ones are equal
    fits = pc.match_substring_regex(text, target.pattern if form is None else _FORMS[form])
    if form is Form.DATE:
        fits = pc.and_(fits, pa.array(cast_timestamps(text_spans(text))[1]))
    lost = pc.invert(fits).fill_null(False)
    if not lost.true_count:
        return Fitted(text)
    return Fitted(pc.if_else(lost, pa.scalar(None, text.type), text), lost)


_FORMS = {
    Form.DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    Form.UUID: r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
}


def _as_json(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _json_of_text(as_text(array))
    return pc.if_else(array.is_valid(), json_text(array), pa.scalar(None, pa.string()))


def _json_of_text(text: pa.Array) -> pa.Array:
    """Text as a JSON string, unless it is an object or array."""
    return pa.array([value if value is None or (value.lstrip()[:1] in _CONTAINERS and _is_json(value))
                     else orjson.dumps(value).decode() for value in text.to_pylist()], text.type)  # fmt: skip


def _json_as_it_is(values: pa.Array) -> pa.Array:
    """JSON as it is; what strict readers refuse, as a string of it."""
    return pa.array([value if value is None or _is_json(value) else orjson.dumps(value).decode()
                     for value in values.to_pylist()], values.type)  # fmt: skip


_CONTAINERS = ("{", "[")


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def plain_text(values: pa.Array) -> pa.Array:
    """The text of JSON values: strings without their quotes, everything else as it is written."""
    quoted = pc.starts_with(values, '"').fill_null(False)
    if not quoted.true_count:
        return values
    inside = text_spans(values.filter(quoted))
    strings = text_array(replace(inside, start=inside.start + 1, end=inside.end - 1), len(inside))
    return pc.replace_with_mask(values, quoted, strings.cast(values.type))


def _known(array: pa.Array) -> pa.Array:
    """The same values in one of the types that columns have: bool, int64, float64, decimal128, string, timestamp."""
    found = array.type
    if found in _OWN_TYPES or (pa.types.is_decimal128(found) and found.scale >= 0):
        return array
    if pa.types.is_dictionary(found):
        return _known(array.dictionary_decode())
    wanted = (pa.int64() if pa.types.is_integer(found) else
              pa.float64() if pa.types.is_floating(found) else
              InnerType.TIMESTAMP.arrow if pa.types.is_timestamp(found) else pa.string())  # fmt: skip
    for type_ in (wanted, pa.string()):
        try:
            return array.cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())


_OWN_TYPES = frozenset((*(inner.arrow for inner in InnerType), pa.large_string(), pa.null()))


def _valid(array: pa.Array) -> Bools:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    found: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return found
