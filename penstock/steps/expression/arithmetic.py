"""Arithmetic to the last digit: a sum, product, remainder or rounded number is what a person gets on paper.

Integers of 64 bits and decimals of up to 15 digits are computed a column at a time; whatever is longer, row by row.
Only a quotient may have no end: then it is the double nearest to it, and so is all that is computed from such a double.
There is no answer (null) where the result is too large for a double, or has more than ``MAX_DIGITS`` digits.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.json.compare_numbers import as_json
from penstock.steps.expression.columns import FLOAT, INT, NULL, Column, ComputedColumn, Flags, Floats, Ints
from penstock.steps.expression.conversion import is_zero

MAX_DIGITS = 1_000
QUOTIENT_DIGITS = 40
"""A quotient that has more digits than these, and more than both of its numbers, counts as one without an end."""

# A product of two integers whose double is below this fits in 64 bits, whatever the rounding.
_SAFE_PRODUCT = 2.0**63 * (1 - 2.0**-50)
_SHORT = 10.0**15
"""Whole numbers below this are exact as doubles, and a double tells all decimals of so many digits apart."""
_MOST_DECIMALS = 22
"""Powers of ten up to this one are exact as doubles."""
_POWERS: Floats = np.array([10.0**power for power in range(_MOST_DECIMALS + 1)])
_USUAL_EXPONENT = 400
"""Doubles have no larger ones."""
_LARGEST_INT, _SMALLEST_INT = np.iinfo(np.int64).max, np.iinfo(np.int64).min

_EXACT = decimal.Context(
    prec=MAX_DIGITS,
    rounding=decimal.ROUND_HALF_UP,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
)


def calculate(symbol: str, a: Column, b: Column) -> Column:
    """``a + b`` and so on for ``+ - * / %``, of columns of numbers and nulls."""
    known = ~(a.nulls | b.nulls)
    if symbol in "/%":
        known = known & ~is_zero(b)
    with np.errstate(all="ignore"):
        ints, fits = _whole(symbol, a.ints, b.ints)
        floats = np.array(np.broadcast_to(_DOUBLES[symbol](a.floats, b.floats), known.shape))
    whole = known & (a.types == INT) & (b.types == INT) & fits
    result = _Result.of(known, whole, np.broadcast_to(ints, known.shape), floats, a.exact & b.exact)
    due = known & ~whole & result.exact
    if due.any():
        due = due & ~_set_short(symbol, result, a, b, due & a.plain & b.plain)
    for row in np.flatnonzero(due).tolist():
        left, right = a.spelling(row % len(a)), b.spelling(row % len(b))
        if left is not None and right is not None:
            result.set_row(row, _on_paper(symbol, left, right))
    return result.column()


def negate(numbers: Column) -> Column:
    return _turned(numbers, np.ones(len(numbers), np.bool_))


def absolute(numbers: Column) -> Column:
    return _turned(numbers, np.signbit(numbers.floats))


def round_half_up(numbers: Column, digits: int) -> Column:
    """To so many decimals, or with negative ``digits`` to tens, hundreds, ...; half goes away from zero.

    Half is judged by the number as it is written: 1.005 to two digits is 1.01.
    """
    whole, known = numbers.types == INT, ~numbers.nulls
    power, size = 10.0 ** abs(digits), np.abs(numbers.floats)
    with np.errstate(all="ignore"):
        # The double nearest to the written half is exactly (lower + 0.5) / power, so comparing with that is enough.
        if digits >= 0:
            lower = np.floor(size * power)
            floats = np.where(size >= (lower + 0.5) / power, lower + 1, lower) / power
            short = size * power < _SHORT / 10
        else:
            lower = np.floor(size / power)
            floats = np.where(size / power - lower >= 0.5, lower + 1, lower) * power
            short = size < _SHORT / 10
    floats = np.where(short, np.copysign(floats, numbers.floats) + 0.0, numbers.floats)
    ints, fits = (numbers.ints, whole) if digits >= 0 else _rounded_ints(numbers.ints, 10**-digits)
    done = short & (numbers.plain | ~numbers.exact)
    result = _Result.of(known, whole & fits, ints, floats, numbers.exact | short)
    for row in np.flatnonzero(known & ~(whole & fits) & (whole | ~done)).tolist():
        spelling = numbers.spelling(row)
        rounded = _rounded(spelling or repr(float(numbers.floats[row])), digits)
        if spelling is None and rounded is not None:
            result.floats[row] = float(rounded)
        else:
            result.set_row(row, rounded)
    return result.column()


class _Result(NamedTuple):
    """A column while it is computed: doubles, integers where ``whole``, and what neither can hold in ``spelled``."""

    known: Flags
    whole: Flags
    ints: Ints
    floats: Floats
    exact: Flags
    plain: Flags
    spelled: dict[int, str]

    @classmethod
    def of(cls, known: Flags, whole: Flags, ints: Ints, floats: Floats, exact: Flags) -> _Result:
        plain = ~whole | ((ints >= -(2**53)) & (ints <= 2**53))
        return cls(known.copy(), whole, ints, floats.copy(), np.array(exact | whole), plain, {})

    def set_row(self, row: int, number: str | float | None) -> None:
        """A text is exact; a double stands for what it is nearest to; nothing is null."""
        if number is None:
            self.known[row] = False
            return
        self.floats[row] = float(number)
        self.exact[row] = isinstance(number, str)
        if isinstance(number, str):
            self.spelled[row] = number
            self.plain[row] = False

    def column(self) -> Column:
        known = self.known & (self.whole | np.isfinite(self.floats))
        types = np.where(known, np.where(self.whole, INT, FLOAT), NULL).astype(np.int8)
        spelled = {row: text for row, text in self.spelled.items() if known[row]}
        return ComputedColumn(types, self.ints, self.floats, self.exact, self.plain, spelled)


def _whole(symbol: str, a: Ints, b: Ints) -> tuple[Ints, Flags]:
    """The result of integers as an integer, and where it is that."""
    if symbol == "+":
        total = a + b
        return total, ((a ^ total) & (b ^ total)) >= 0
    if symbol == "-":
        total = a - b
        return total, ((a ^ b) & (a ^ total)) >= 0
    if symbol == "*":
        return a * b, np.abs(a.astype(np.float64) * b.astype(np.float64)) < _SAFE_PRODUCT
    if symbol == "%":
        # By -1 the smallest integer cannot be divided.
        rest = np.fmod(a, np.where((b == 0) | (b == -1), 1, b))
        return rest, np.ones(rest.shape, np.bool_)
    nothing: Ints = np.zeros(1, np.int64)
    return nothing, nothing != 0


_DOUBLES = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod}


def _set_short(symbol: str, result: _Result, a: Column, b: Column, wanted: Flags) -> Flags:
    """Compute the rows that short decimals are enough for, by their digits as whole numbers. Says which those are."""
    done: Flags = np.zeros(len(wanted), np.bool_)
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return done
    (x, x_decimals), (y, y_decimals) = (
        _whole_and_decimals(np.broadcast_to(column.floats, wanted.shape)[rows]) for column in (a, b)
    )
    with np.errstate(all="ignore"):
        if symbol == "*":
            numerator, decimals = x * y, x_decimals + y_decimals
            right = np.abs(numerator) < _SHORT
        else:
            decimals = np.maximum(x_decimals, y_decimals)
            x, y = (x * _POWERS[decimals - x_decimals], y * _POWERS[decimals - y_decimals])
            right = (np.abs(x) < _SHORT) & (np.abs(y) < _SHORT)
            numerator = _DOUBLES[symbol](x, y)
            if symbol == "/":
                endless = right & _has_no_end(np.where(right, x, 0), np.where(right, y, 1))
                _set_doubles(result, rows[endless], numerator[endless])
                done[rows[endless]] = True
                quotient, decimals = _whole_and_decimals(numerator)
                back, over = quotient * y, x * _POWERS[decimals]
                right &= (back == over) & (np.abs(back) < _SHORT) & (np.abs(over) < _SHORT)
                numerator = quotient
        right &= (decimals <= _MOST_DECIMALS) & (np.abs(numerator) < _SHORT)
        values = numerator / _POWERS[np.minimum(decimals, _MOST_DECIMALS)] + 0.0
    result.floats[rows[right]] = values[right]
    done[rows[right]] = True
    return done


def _has_no_end(x: Floats, y: Floats) -> Flags:
    """Whether the quotient of whole numbers has decimals without an end: a factor of ``y`` other than 2 and 5 is left
    when what both share is divided out."""
    divisor = np.abs(y.astype(np.int64))
    divisor //= np.maximum(np.gcd(np.abs(x.astype(np.int64)), divisor), 1)
    divisor //= np.maximum(divisor & -divisor, 1)
    for _ in range(_MOST_DECIMALS):
        has_five = divisor % 5 == 0
        if not has_five.any():
            break
        divisor = np.where(has_five, divisor // 5, divisor)
    found: Flags = divisor != 1
    return found


def _set_doubles(result: _Result, rows: npt.NDArray[np.int64], doubles: Floats) -> None:
    """Of quotients without an end: each double is the nearest."""
    result.floats[rows] = doubles
    result.exact[rows] = False


def _whole_and_decimals(floats: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Each number as a whole number divided by a power of ten; not a number where it takes more than 15 digits."""
    whole: Floats = np.full(len(floats), np.nan)
    decimals = np.zeros(len(floats), np.int64)
    left = np.flatnonzero(np.abs(floats) < _SHORT)
    for power in range(16):
        if not len(left):
            break
        scaled = np.rint(floats[left] * _POWERS[power])
        found = (scaled / _POWERS[power] == floats[left]) & (np.abs(scaled) < _SHORT)
        whole[left[found]], decimals[left[found]] = scaled[found], power
        left = left[~found]
    return whole, decimals


def _on_paper(symbol: str, left: str, right: str) -> str | float | None:
    a, b = _decimal(left), _decimal(right)
    if a is None or b is None:
        return None
    try:
        if symbol == "/":
            return _quotient(a, b)
        operation = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply, "%": _EXACT.remainder}[symbol]
        return _text(operation(a, b), _is_whole(left) and _is_whole(right))
    except decimal.DecimalException:
        return None


def _quotient(a: Decimal, b: Decimal) -> str | float:
    context = _EXACT.copy()
    context.prec = max(QUOTIENT_DIGITS, *(min(len(each.as_tuple().digits), MAX_DIGITS) for each in (a, b)))
    context.traps[decimal.Inexact] = False
    context.clear_flags()
    quotient = context.divide(a, b)
    if not context.flags[decimal.Inexact]:
        return _text(quotient, whole=False)
    if max(abs(a.adjusted()), abs(b.adjusted())) > _USUAL_EXPONENT:
        return float(quotient)
    try:
        # The decimal quotient is rounded already: one that lies between two doubles would be rounded twice.
        return float(Fraction(a) / Fraction(b))
    except OverflowError:
        return float(quotient)


def _rounded(spelling: str, digits: int) -> str | None:
    number = _decimal(spelling)
    if number is None:
        return None
    # A number without so many decimals stays what it is, however many digits that takes.
    if int(number.as_tuple().exponent) >= -digits:
        return as_json(spelling)
    context = _EXACT.copy()
    context.traps[decimal.Inexact] = False
    try:
        return _text(number.quantize(Decimal((0, (1,), -digits)), context=context), _is_whole(spelling))
    except decimal.DecimalException:
        return None


def _rounded_ints(ints: Ints, power: int) -> tuple[Ints, Flags]:
    """Rounded to multiples of ``power``, and where that still is an integer of 64 bits."""
    size = np.abs(ints).astype(np.uint64)
    times = size // np.uint64(power)
    times = times + ((size - times * np.uint64(power)) * np.uint64(2) >= np.uint64(power))
    total = times * np.uint64(power)
    fits: Flags = total <= np.uint64(_LARGEST_INT)
    rounded = np.where(fits, total, np.uint64(0)).astype(np.int64)
    return np.where(ints < 0, -rounded, rounded), fits


def _turned(numbers: Column, turn: Flags) -> Column:
    """With the other sign where ``turn``; any other number as it is."""
    whole = (numbers.types == INT) & (numbers.ints != _SMALLEST_INT)
    with np.errstate(over="ignore"):
        ints = np.where(turn, -numbers.ints, numbers.ints)
    floats = np.where(turn, -numbers.floats, numbers.floats) + 0.0
    result = _Result.of(~numbers.nulls, whole, ints, floats, numbers.exact)
    for row in np.flatnonzero(~numbers.nulls & ~whole & numbers.exact & ~numbers.plain).tolist():
        text = as_json(numbers.spelling(row) or "0")
        if turn[row]:
            text = text[1:] if text.startswith("-") else f"-{text}"
        result.set_row(row, text)
    return result.column()


def _decimal(text: str) -> Decimal | None:
    """None for an exponent beyond all reason."""
    try:
        return Decimal(text)
    except decimal.InvalidOperation:
        return None


def _is_whole(spelling: str) -> bool:
    return spelling.lstrip("+-").isdigit()


def _text(number: Decimal, whole: bool) -> str:
    """As JSON has it; with a point or an exponent unless it comes from ``whole`` numbers."""
    if not number:
        return "0" if whole else "0.0"
    if whole:
        return f"{number:f}"
    short = number.normalize(_EXACT)
    if not -7 < short.adjusted() < QUOTIENT_DIGITS:
        return str(short)
    text = f"{short:f}"
    return text if "." in text else f"{text}.0"
