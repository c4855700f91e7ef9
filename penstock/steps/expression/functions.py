"""The operators and functions of expressions, as Spark has them when told not to fail: null where there is no answer.

``FUNCTIONS`` has them by name. Each takes its constant arguments and gives a function from columns to a column.

Comparing: numbers as numbers, by all their digits, unless one is a double that stands for a quotient; text by its
bytes; text with a number as the number it spells, with a boolean as the boolean it spells; a boolean with a number as 1
or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.arrow_text import spread
from penstock.json.compare_numbers import number_key
from penstock.steps.expression.arithmetic import absolute, calculate, negate, round_half_up
from penstock.steps.expression.columns import (
    BOOLEAN,
    FLOAT,
    INT,
    NULL,
    TEXT,
    Chosen,
    Column,
    Flags,
    texts,
    truths,
)
from penstock.steps.expression.conversion import cast, to_numbers, to_truths

Columns = Sequence[Column]
Function = Callable[[Columns], Column]

_ORDERS = {
    "=": (np.equal, pc.equal),
    "<>": (np.not_equal, pc.not_equal),
    "<": (np.less, pc.less),
    "<=": (np.less_equal, pc.less_equal),
    ">": (np.greater, pc.greater),
    ">=": (np.greater_equal, pc.greater_equal),
}


def _compare(symbol: str, left: Column, right: Column) -> Column:
    by_number, by_text = _ORDERS[symbol]
    left_text, right_text = left.types == TEXT, right.types == TEXT
    known = ~(left.nulls | right.nulls)
    both_text = left_text & right_text
    result: Flags = np.zeros(known.shape, np.bool_)
    if both_text.any():
        result = _text_hits(by_text(*_aligned(left.strings, right.strings)), len(known))
    others = known & ~both_text
    if not others.any():
        return truths(result, known)
    as_truth = ((left.types == BOOLEAN) & right_text) | (left_text & (right.types == BOOLEAN))
    if (as_truth & others).any():
        left_truth, right_truth = to_truths(left), to_truths(right)
        result = np.where(as_truth, by_number(left_truth.ints, right_truth.ints), result)
        known = known & ~(as_truth & (left_truth.nulls | right_truth.nulls))
        others = others & ~as_truth
    a, b = to_numbers(left), to_numbers(right)
    integers = (a.types == INT) & (b.types == INT)
    if integers.all():
        hits = by_number(a.ints, b.ints)
    else:
        x, y = a.floats, b.floats
        hits = np.where(integers, by_number(a.ints, b.ints), by_number(x, y))
        _settle_by_digits(hits, by_number, a, b, (x == y) & others & ~(integers | a.nulls | b.nulls))
    return truths(np.where(others, hits, result), known & ~(others & (a.nulls | b.nulls)))


def _settle_by_digits(hits: Flags, by_number: np.ufunc, a: Column, b: Column, equal: Flags) -> None:
    """Put right what doubles cannot tell. Rounding keeps the order: only where they are ``equal`` is there a doubt."""
    if not equal.any():
        return
    for row in np.flatnonzero(equal & ~(a.plain & b.plain)).tolist():
        left, right = a.spelling(row % len(a)), b.spelling(row % len(b))
        if left is not None and right is not None and left != right:
            x, y = number_key(left), number_key(right)
            hits[row] = by_number((x > y) - (x < y), 0)


def _null_safe_equal(columns: Columns) -> Column:
    left, right = columns
    equal = _compare("=", left, right)
    both_null = left.nulls & right.nulls
    values = both_null | ((equal.ints != 0) & ~equal.nulls)
    return truths(values, np.ones(values.shape, np.bool_))


def _and(columns: Columns) -> Column:
    left, right = map(to_truths, columns)
    no = ((left.ints == 0) & ~left.nulls) | ((right.ints == 0) & ~right.nulls)
    return truths(~no, no | ~(left.nulls | right.nulls))


def _or(columns: Columns) -> Column:
    left, right = map(to_truths, columns)
    yes = ((left.ints != 0) & ~left.nulls) | ((right.ints != 0) & ~right.nulls)
    return truths(yes, yes | ~(left.nulls | right.nulls))


def _not(columns: Columns) -> Column:
    value = to_truths(columns[0])
    return truths(value.ints == 0, ~value.nulls)


def _is_null(columns: Columns) -> Column:
    nulls = columns[0].nulls
    return truths(nulls, np.ones(len(nulls), np.bool_))


def _in(columns: Columns) -> Column:
    value, *items = columns
    plain_texts = all(len(item) == 1 and item.has(TEXT) for item in items)
    if plain_texts and len(value) > 1 and not value.has(BOOLEAN, INT, FLOAT):
        wanted = pa.concat_arrays([item.strings for item in items])
        return truths(_text_hits(pc.is_in(value.strings, wanted), len(value)), ~value.nulls)
    result = _compare("=", value, items[0])
    for item in items[1:]:
        result = _or([result, _compare("=", value, item)])
    return result


def _case(columns: Columns) -> Column:
    conditions, values = list(columns[:-1:2]), [*columns[1::2], columns[-1]]
    length = max(map(len, columns))
    which = np.full(length, len(conditions), np.int64)
    for place in reversed(range(len(conditions))):
        truth = to_truths(conditions[place])
        which = np.where((truth.ints != 0) & ~truth.nulls, place, which)
    return Chosen(which, values)


def _coalesce(columns: Columns) -> Column:
    length = max(map(len, columns))
    which = np.full(length, len(columns) - 1, np.int64)
    for place in reversed(range(len(columns) - 1)):
        which = np.where(columns[place].nulls, which, place)
    return Chosen(which, columns)


def _calculate(symbol: str, left: Column, right: Column) -> Column:
    return calculate(symbol, to_numbers(left, booleans=False), to_numbers(right, booleans=False))


def _of_number(operation: Callable[[Column], Column]) -> Function:
    return lambda columns: operation(to_numbers(columns[0], booleans=False))


def _textual(operation: Callable[[pa.StringArray], pa.StringArray]) -> Callable[[], Function]:
    return lambda: lambda columns: texts(operation(columns[0].text), ~columns[0].nulls)


def _test(operation: Callable[[pa.StringArray], pa.BooleanArray]) -> Function:
    return lambda columns: truths(_text_hits(operation(columns[0].text), len(columns[0])), ~columns[0].nulls)


def _length(columns: Columns) -> Column:
    lengths = pc.utf8_length(columns[0].text).to_numpy(zero_copy_only=False).astype(np.int64)
    return Column(np.where(columns[0].nulls, NULL, INT).astype(np.int8), lengths)


def _concat(columns: Columns) -> Column:
    length = max(map(len, columns))
    known = np.ones(length, np.bool_)
    for column in columns:
        known &= ~column.nulls
    return texts(pc.binary_join_element_wise(*(spread(column.text, length) for column in columns), ""), known)


def _substring(start: int, length: int | None = None) -> Function:
    """Counted from 1; a negative start from the end."""
    first = start - 1 if start > 0 else start
    stop = None if length is None else first + max(length, 0)
    if first < 0 and stop is not None and stop >= 0:
        stop = None
    if length is not None and length <= 0:
        first, stop = 0, 0
    return _textual(lambda text: pc.utf8_slice_codeunits(text, first, stop))()


def _text_hits(hits: pa.Array | pa.Scalar, length: int) -> Flags:
    if isinstance(hits, pa.Scalar):
        return np.full(length, hits.as_py())
    flags: Flags = hits.to_numpy(zero_copy_only=False)
    return flags


def _aligned(left: pa.Array, right: pa.Array) -> tuple[pa.Array | pa.Scalar, pa.Array | pa.Scalar]:
    """A constant as a scalar beside an array: Arrow's kernels take that, and faster."""
    if len(left) == len(right):
        return left, right
    return (left[0], right) if len(left) == 1 else (left, right[0])


def _binary(operation: Callable[[str, Column, Column], Column], symbol: str) -> Callable[[], Function]:
    return lambda: lambda columns: operation(symbol, columns[0], columns[1])


FUNCTIONS: dict[str, Callable[..., Function]] = {
    **{symbol: _binary(_compare, symbol) for symbol in _ORDERS},
    **{symbol: _binary(_calculate, symbol) for symbol in "+-*/%"},
    "<=>": lambda: _null_safe_equal,
    "and": lambda: _and,
    "or": lambda: _or,
    "not": lambda: _not,
    "isnull": lambda: _is_null,
    "in": lambda: _in,
    "case": lambda: _case,
    "coalesce": lambda: _coalesce,
    "cast": lambda kind: lambda columns: cast(columns[0], kind),
    "negative": lambda: _of_number(negate),
    "abs": lambda: _of_number(absolute),
    "round": lambda digits: _of_number(lambda numbers: round_half_up(numbers, digits)),
    "lower": _textual(pc.utf8_lower),
    "upper": _textual(pc.utf8_upper),
    "trim": _textual(lambda text: pc.utf8_trim(text, " ")),
    "ltrim": _textual(lambda text: pc.utf8_ltrim(text, " ")),
    "rtrim": _textual(lambda text: pc.utf8_rtrim(text, " ")),
    "length": lambda: _length,
    "concat": lambda: _concat,
    "substring": _substring,
    "like": lambda pattern: _test(lambda text: pc.match_like(text, pattern)),
    "rlike": lambda pattern: _test(lambda text: pc.match_substring_regex(text, pattern)),
    "startswith": lambda pattern: _test(lambda text: pc.starts_with(text, pattern)),
    "endswith": lambda pattern: _test(lambda text: pc.ends_with(text, pattern)),
    "contains": lambda pattern: _test(lambda text: pc.match_substring(text, pattern)),
}
