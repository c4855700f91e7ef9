"""Values of a staged column into a real table's column of another type: what fits is converted, the rest told apart.

A value fits if nothing of it is lost, that is, if it could be had back:

- anything fits text, in its JSON spelling (``true``, ``7``, ``1.5``, ``9.0``, ``1e+30``; a timestamp in RFC 3339),
  unless the column is too short for it;
- a number fits a type that has the same number: ``9.0`` fits a bigint, ``9.5`` does not; ``1`` fits a boolean, ``2``
  does not. One exception: a double goes into numeric(38,18), our own type for doubles, rounded to 18 digits after the
  point; but not if it is too large, or if nothing but zero would be left of it;
- text fits numbers if it spells one in plain digits: ``7``, ``7.0`` and ``1.50`` do; ``007``, ``+7`` and ``1e3`` do
  not, nor do more digits than the column keeps. (A double also takes back the text that it was spelled as.)
- text fits a boolean as ``true`` or ``false``, and a timestamp as RFC 3339 with up to six digits of fraction, where a
  space may stand for the ``T`` and no zone means UTC. Timestamps and numbers do not fit each other.

A type that is not known here gets text, and the database decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flatten.casts import DEFAULT_SCALE, Cast, Form
from penstock.flatten.decimals import short_decimals
from penstock.flatten.numbers import Doubles, UInt64s, cast_decimals, cast_integers
from penstock.flatten.spans import Bools, Int64s, Spans
from penstock.flatten.spelling import double_text, json_text, spelled
from penstock.flatten.text import text_array
from penstock.flatten.timestamps import cast_timestamps
from penstock.flatten.types import InnerType
from penstock.json.documents import documents
from penstock.json.tokens import STRING, Kind

__all__ = ["Fitted", "fit", "held", "json_values", "plain_text"]


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


def held(array: pa.Array, target: Cast) -> Fitted:
    """Integers or doubles for a decimal column whose engine converts them itself: the same numbers, without those that
    the column cannot hold. The column must have at least ``DEFAULT_SCALE`` digits after the point."""
    numbers = _numbers(array)
    limit = 10 ** (target.precision - target.scale)
    if pa.types.is_floating(array.type):
        # No double below a power of ten is rounded up to it: it has at most 17 digits, so none beyond the scale.
        size = np.abs(numbers)
        fits = (size < float(limit)) & ((size == 0) | (size >= 0.5 * 10.0**-target.scale))
    elif limit > 2**63:
        return Fitted(array)
    else:
        fits = (numbers < limit) & (numbers > -limit)
    lost = _valid(array) & ~fits
    if not lost.any():
        return Fitted(array)
    mask = pa.array(lost)
    return Fitted(pc.if_else(mask, pa.scalar(None, array.type), array), mask)


def fit_json(values: pa.Array, target: Cast) -> Fitted:
    """The same for values that are there as JSON: a string by the rules for text, a number by those for numbers. What
    becomes of a value does not depend on those beside it."""
    fitted = fit(plain_text(values), target)
    if fitted.lost is None or target.type is None or target.type is InnerType.STRING:
        return fitted
    array, lost = fitted.array, fitted.lost
    for arrow_type, pattern in _BARE.items():
        chosen = pc.and_(lost, pc.match_substring_regex(values, pattern).fill_null(False))
        if chosen.true_count:
            spellings = values.filter(chosen)
            bare = spellings.cast(arrow_type)
            if pa.types.is_floating(arrow_type):
                vanished = pc.and_(pc.equal(bare, 0), pc.match_substring_regex(spellings, "^[-0.]*[1-9]"))
                bare = pc.if_else(pc.and_not(pc.is_finite(bare), vanished), bare, None)
            again = fit(bare, target)
            array = pc.replace_with_mask(array, chosen, again.array)
            lost = pc.replace_with_mask(lost, chosen, again.array.is_null())
    return Fitted(array, lost if lost.true_count else None)


_BARE = {
    pa.bool_(): r"^(true|false)$",
    pa.int64(): r"^-?[0-9]{1,18}$",
    pa.float64(): r"^-?[0-9]+(\.[0-9]+|(\.[0-9]+)?[eE][+-]?[0-9]+)$",
}
"""How JSON spells what has an Arrow type. (Longer integers are read as text already, where they fit.)"""


def json_values(array: pa.Array | pa.ChunkedArray, chosen: pa.BooleanArray | pa.ChunkedArray) -> pa.StringArray:
    """The chosen values as JSON, one after the other: what ``_unmapped`` keeps of them."""
    values = array.filter(chosen)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return json_text(_known(values))


def _fit(array: pa.Array, target: Cast) -> Fitted:
    array = _known(array)
    if target.type is None:
        return _into_form(spelled(array), target.form)
    if pa.types.is_null(array.type):
        return Fitted(pa.nulls(len(array), target.arrow))
    if target.type is InnerType.STRING:
        return _into_text(array, target)
    if array.type == target.arrow and target.bits == 64 and not target.unsigned:
        return Fitted(array)
    if target.type is InnerType.TIMESTAMP:
        values, fits = _timestamps(array)
    elif target.type is InnerType.BOOL:
        values, fits = _booleans(array)
    elif target.type is InnerType.INT64:
        values, fits = _integers(array, target.bits)
        if target.unsigned:
            fits = fits & (values.view(np.int64) >= 0)
    elif target.precision:
        values, fits = _decimals(array, target.precision, target.scale)
    else:
        values, fits = _doubles(array)
        if target.bits == 32:
            fits = fits & _survives_single(values)
    return _fitted(array, target.arrow, values, fits)


Values = npt.NDArray[np.generic]


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
    text = spelled(array)
    if target.max_bytes is not None:
        too_long = pc.greater(pc.binary_length(text), target.max_bytes).fill_null(False)
    elif target.max_length is not None:
        too_long = pc.greater(pc.utf8_length(text), target.max_length).fill_null(False)
    else:
        return Fitted(text)
    if not too_long.true_count:
        return Fitted(text)
    return Fitted(pc.if_else(too_long, pa.scalar(None, text.type), text), too_long)


def _into_form(text: pa.Array, form: Form | None) -> Fitted:
    """Text for a type that only the database has. What it would surely refuse is told apart."""
    if form is None:
        return Fitted(text)
    if form is Form.JSON:
        return Fitted(_as_json(text))
    if form is Form.UUID:
        text = pc.ascii_lower(text)  # one way to write it, so that equal ones are equal
    fits = pc.match_substring_regex(text, _FORMS[form])
    if form is Form.DATE:
        fits = pc.and_(fits, pa.array(cast_timestamps(_spans(text))[1]))
    lost = pc.invert(fits).fill_null(False)
    if not lost.true_count:
        return Fitted(text)
    return Fitted(pc.if_else(lost, pa.scalar(None, text.type), text), lost)


_FORMS = {
    Form.DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    Form.UUID: r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
}


def _as_json(text: pa.Array) -> pa.Array:
    """Text that is JSON as it is, any other as a JSON string."""
    return pa.array([value if value is None or _is_json(value) else orjson.dumps(value).decode()
                     for value in text.to_pylist()], text.type)  # fmt: skip


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def plain_text(values: pa.Array) -> pa.Array:
    """The text that JSON values stand for: strings without their quotes, everything else as it is spelled."""
    quoted = pc.starts_with(values, '"').fill_null(False)
    if not quoted.true_count:
        return values
    inside = _spans(values.filter(quoted))
    strings = text_array(replace(inside, start=inside.start + 1, end=inside.end - 1), len(inside))
    return pc.replace_with_mask(values, quoted, strings.cast(values.type))


def _booleans(array: pa.Array) -> tuple[Values, Bools]:
    if pa.types.is_timestamp(array.type):
        return _none(array, np.bool_)
    if _is_number(array.type) and not pa.types.is_decimal(array.type):
        numbers = _numbers(array)
        return numbers == 1, (numbers == 0) | (numbers == 1)
    yes, no = ("1", "0") if pa.types.is_decimal(array.type) else ("true", "false")
    text = spelled(array)
    true = _flags(pc.equal(text, yes))
    return true, true | _flags(pc.equal(text, no))


def _integers(array: pa.Array, bits: int) -> tuple[Values, Bools]:
    if pa.types.is_timestamp(array.type):
        return _none(array, np.int64)
    if pa.types.is_boolean(array.type):
        return _flags(array).astype(np.int64), np.ones(len(array), np.bool_)
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if pa.types.is_int64(array.type):
        whole = _numbers(array)
        return whole, (whole >= least) & (whole <= most)
    if pa.types.is_float64(array.type):
        doubles = _numbers(array)
        # 2.0 ** 63 is the first double that does not fit, so the upper limit is tested from the outside.
        fits = (doubles >= float(least)) & (doubles < 2.0 ** (bits - 1)) & (doubles == np.trunc(doubles))
        return np.where(fits, doubles, 0.0).astype(np.int64), fits
    text = spelled(array)
    integers, fits = cast_integers(_spans(text), bits)
    return integers, _unless_spelled_oddly(text, fits, integers == 0)


def _doubles(array: pa.Array) -> tuple[Values, Bools]:
    if pa.types.is_timestamp(array.type):
        return _none(array, np.float64)
    if pa.types.is_float64(array.type):
        return _numbers(array), np.ones(len(array), np.bool_)
    if pa.types.is_boolean(array.type):
        return _flags(array).astype(np.float64), np.ones(len(array), np.bool_)
    if pa.types.is_int64(array.type):
        integers = _numbers(array)
        doubles = integers.astype(np.float64)
        inside = doubles < 2.0**63
        return doubles, inside & (np.where(inside, doubles, 0.0).astype(np.int64) == integers)
    return _doubles_of_text(spelled(array))


def _survives_single(doubles: Values) -> Bools:
    """Whether a number is still the same in 32 bits. What stands after the point is rounded, as that type does."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = doubles.astype(np.float32).astype(np.float64)
    found: Bools = np.isfinite(single) & ((single == doubles) | (doubles != np.trunc(doubles)))
    return found


def _decimals(array: pa.Array, precision: int, scale: int) -> tuple[Values, Bools]:
    if pa.types.is_timestamp(array.type):
        return _none(array, np.uint64, 2)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int64())
    if not pa.types.is_integer(array.type) and not pa.types.is_floating(array.type):
        text = spelled(array)
        words, fits = cast_decimals(_spans(text), precision, scale, exact=True)
        return words, _unless_spelled_oddly(text, fits, _zero(words))
    numbers = _numbers(array)
    words, fits = short_decimals(numbers.astype(np.float64), precision, scale)
    if not fits.all():
        rest = ~fits
        # The scale that doubles get from us may round them; one that somebody chose is a promise about cents.
        exact = scale < DEFAULT_SCALE
        found, converted = cast_decimals(_spans(spelled(pa.array(numbers[rest]))), precision, scale, exact=exact)
        words[rest], fits[rest] = found, converted & (_zero(found) == (numbers[rest] == 0))
    return words, fits


def _zero(words: UInt64s) -> Bools:
    found: Bools = (words[:, 0] | words[:, 1]) == 0
    return found


def _timestamps(array: pa.Array) -> tuple[Values, Bools]:
    if not _is_text(array.type):
        return _none(array, np.int64)
    micros, fits = cast_timestamps(_spans(array))
    return micros, fits & _flags(pc.match_substring_regex(array, _RFC_3339))


def _doubles_of_text(text: pa.Array) -> tuple[Values, Bools]:
    numeric = pc.match_substring_regex(text, _JSON_NUMBER)
    doubles = pc.if_else(numeric, text, "0").cast(pa.float64()).fill_null(0.0).to_numpy()
    fits = _flags(numeric) & np.isfinite(doubles)
    # So few characters without an exponent are so few digits that a double always keeps them.
    sure = pc.and_(pc.less_equal(pc.binary_length(text), 15), pc.invert(_has_exponent(text)))
    unsure = np.flatnonzero(fits & ~_flags(sure))
    if len(unsure):
        fits[unsure] = _spelled_alike(text.take(pa.array(unsure)), doubles[unsure])
    return doubles, fits


def _spelled_alike(text: pa.Array, doubles: Doubles) -> Bools:
    """Whether these numbers have the same digits as the doubles next to them."""
    spelling = double_text(pa.array(doubles))
    alike = _flags(pc.equal(_without_trailing_zeros(spelling), _without_trailing_zeros(text)))
    # Plain digits may be those of a double that is spelled with an exponent: the one case to look at value by value.
    candidates = pc.and_(_has_exponent(spelling), pc.invert(_has_exponent(text)))
    some = np.flatnonzero(_flags(candidates) & ~alike)
    for place, digits in zip(some.tolist(), text.take(pa.array(some)).to_pylist(), strict=True):
        alike[place] = Decimal(digits) == Decimal(repr(float(doubles[place])))
    return alike


def _unless_spelled_oddly(text: pa.Array, fits: Bools, zero: Bools) -> Bools:
    """Of the numbers that fit, those without an exponent, and without the sign of a zero, which only doubles have."""
    fits = fits & ~_flags(_has_exponent(text))
    zeros = np.flatnonzero(fits & zero)
    fits[zeros] = ~_flags(pc.starts_with(text.take(pa.array(zeros)), "-"))
    return fits


_JSON_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_RFC_3339 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?$"


def _has_exponent(text: pa.Array) -> pa.BooleanArray:
    return pc.or_(pc.match_substring(text, "e"), pc.match_substring(text, "E"))


def _without_trailing_zeros(text: pa.Array) -> pa.Array:
    stripped = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    return pc.if_else(pc.match_substring(text, "."), stripped, text)


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


def _is_number(found: pa.DataType) -> bool:
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found))


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def _spans(text: pa.Array) -> Spans:
    """Texts as strings to read numbers and times from. They are what they say: there are no escapes in them."""
    docs = documents(text)
    count = len(docs)
    rows = np.arange(count, dtype=np.int32)
    kinds = np.full(count, STRING, np.int8)
    return Spans(docs.buffer, rows, kinds, docs.offsets[:-1], docs.offsets[1:], frozenset((Kind.STRING,)))


def _valid(array: pa.Array) -> Bools:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    found: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _flags(array: pa.BooleanArray) -> Bools:
    """Booleans, with false for nulls."""
    found: Bools = (array.fill_null(False) if array.null_count else array).to_numpy(zero_copy_only=False)
    return found


def _numbers(array: pa.Array) -> Int64s | Doubles:
    """Integers or doubles, with zero for nulls."""
    found: Int64s | Doubles = (array.fill_null(0) if array.null_count else array).to_numpy()
    return found


def _none(array: pa.Array, dtype: type[np.generic], *more: int) -> tuple[Values, Bools]:
    return np.zeros((len(array), *more), dtype), np.zeros(len(array), np.bool_)
