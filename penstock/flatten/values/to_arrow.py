"""Converts the values of one column, as they are in the documents, to a typed Arrow array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flatten.casts import Cast
from penstock.flatten.inner_types import InnerType
from penstock.flatten.values.lossless import survives_float32
from penstock.flatten.values.parse_numbers import (
    cast_booleans,
    cast_decimals,
    cast_doubles,
    cast_integers,
    exact_doubles,
    exact_integers,
    keep_their_spelling,
)
from penstock.flatten.values.text_values import json_array, text_array, unescaped, validity_bitmap
from penstock.flatten.values.timestamps import cast_timestamps, exact_timestamps
from penstock.flatten.values.value_spans import Bools, Int32s, Spans
from penstock.json.tokens import FLOAT, TRUE, Kind


@dataclass(frozen=True)
class TypedArray:
    """``refused`` marks the values that the column's cast could not convert; they are null in ``array``."""

    array: pa.Array
    type: InnerType
    refused: Bools | None = None
    json: bool = False
    """Whether the values are JSON."""


def infer_column(spans: Spans, rows: int, infer_timestamps: bool, keep_json: bool = False) -> TypedArray:
    """A column without a cast: the lowest type that keeps every value whole.

    With ``keep_json``, values that the type would change (``true`` among numbers, an integer among doubles, the digits
    of a number that a double does not keep, the zone of a timestamp) stay as they were sent: only the table that they
    go into decides how they are converted, not the values around them.
    """
    kinds = spans.kinds
    mixed = keep_json and not kinds.isdisjoint(_BOOLEANS)
    if kinds <= _BOOLEANS:
        return TypedArray(_array(InnerType.BOOL.arrow, spans.kind == TRUE, spans.row, rows), InnerType.BOOL)
    if kinds <= _INTEGERS:
        integers = exact_integers(spans)
        if integers is not None:
            if mixed:
                return TypedArray(json_array(spans, rows), InnerType.INT64, json=True)
            return TypedArray(_array(InnerType.INT64.arrow, integers, spans.row, rows), InnerType.INT64)
    elif kinds <= _NUMBERS:
        found = exact_doubles(spans)
        if found is not None and found[1].all():
            doubles = found[0]
            if not keep_json or (kinds == _FLOATS and keep_their_spelling(spans, doubles)):
                return TypedArray(_array(InnerType.FLOAT64.arrow, doubles, spans.row, rows), InnerType.FLOAT64)
        if keep_json and _numbers_by_themselves(spans):
            return TypedArray(json_array(spans, rows), InnerType.FLOAT64, json=True)
    elif infer_timestamps and kinds <= _STRINGS:
        micros = exact_timestamps(spans)
        if micros is not None:
            if keep_json:
                return TypedArray(text_array(spans, rows), InnerType.TIMESTAMP)
            return TypedArray(_array(InnerType.TIMESTAMP.arrow, micros, spans.row, rows), InnerType.TIMESTAMP)
    if keep_json and not kinds <= _STRINGS:
        return TypedArray(json_array(spans, rows), InnerType.STRING, json=True)
    return TypedArray(text_array(spans, rows), InnerType.STRING)


def cast_column(spans: Spans, rows: int, asked: Cast, keep_json: bool = False) -> TypedArray:
    """A column with a cast: every value converted on its own, or refused."""
    if asked.type is None:
        return infer_column(spans, rows, infer_timestamps=False, keep_json=keep_json)
    if asked.type is InnerType.STRING:
        return _limited_text(spans, rows, asked.max_length)
    values, converted = _converted(spans, asked)
    if Kind.STRING in spans.kinds and not converted.all():
        # A number or a date with an escape cannot be read in place. That is rare enough to try again.
        values, converted = _converted(unescaped(spans), asked)
    if converted.all():
        return TypedArray(_array(asked.arrow, values, spans.row, rows), asked.type)
    return TypedArray(_array(asked.arrow, values[converted], spans.row[converted], rows), asked.type, ~converted)


_BOOLEANS = frozenset((Kind.TRUE, Kind.FALSE))
_INTEGERS = _BOOLEANS | {Kind.INT}
_NUMBERS = _INTEGERS | {Kind.FLOAT}
_FLOATS = frozenset((Kind.FLOAT,))
_STRINGS = frozenset((Kind.STRING,))


def _numbers_by_themselves(spans: Spans) -> bool:
    """Whether each is a boolean, a 64-bit integer or a double."""
    floats = spans.kind == FLOAT
    return exact_integers(spans.where(~floats)) is not None and exact_doubles(spans.where(floats)) is not None


def _limited_text(spans: Spans, rows: int, max_length: int | None) -> TypedArray:
    text = text_array(spans, rows)
    if max_length is None:
        return TypedArray(text, InnerType.STRING)
    too_long = pc.greater(pc.utf8_length(text), max_length)
    refused = too_long.take(pa.array(spans.row)).to_numpy(zero_copy_only=False)
    if not refused.any():
        return TypedArray(text, InnerType.STRING)
    return TypedArray(text_array(spans.where(~refused), rows), InnerType.STRING, refused)


def _converted(spans: Spans, asked: Cast) -> tuple[npt.NDArray[np.generic], Bools]:
    if asked.type is InnerType.TIMESTAMP:
        micros, converted = cast_timestamps(spans)
        return micros, converted & (micros % asked.microseconds == 0)
    if asked.type is InnerType.INT64:
        return cast_integers(spans, asked.bits)
    if asked.type is InnerType.BOOL:
        return cast_booleans(spans)
    if asked.precision:
        return cast_decimals(spans, asked.precision, asked.scale)
    doubles, converted = cast_doubles(spans)
    return doubles, converted & survives_float32(doubles) if asked.bits == 32 else converted


def _array(arrow_type: pa.DataType, values: npt.NDArray[np.generic], present: Int32s, rows: int) -> pa.Array:
    """Values at their rows (``present``, rising), null elsewhere."""
    validity = None
    if len(present) != rows:
        validity = validity_bitmap(present, rows)
        spread = np.zeros((rows, *values.shape[1:]), values.dtype)
        spread[present] = values
        values = spread
    if values.dtype == np.bool_:
        values = np.packbits(values.view(np.bool_), bitorder="little")
    return pa.Array.from_buffers(arrow_type, rows, [validity, pa.py_buffer(np.ascontiguousarray(values))])
