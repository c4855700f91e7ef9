"""What the SQL type of a cast requires of a value.

The text of the type goes to the destination as it was written; here it only decides how to convert values. A type that
is not known here (``jsonb``, ``LowCardinality(String)``) converts nothing: the column keeps the type of its values and
the destination casts. ``integer`` is 32 bits wide, as in standard SQL; ``numeric`` alone is ``numeric(38,18)``. A cast
to ``timestamp(3)`` accepts times of up to three digits of a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import pyarrow as pa

from penstock.flatten.inner_types import InnerType

DEFAULT_SCALE = 18
"""Digits after the point of ``numeric(38,18)``, the type of doubles in engines that store floats as decimals."""

MICROSECOND_DIGITS = 6


class Form(StrEnum):
    """What text must look like for a type that has no Arrow values here."""

    DATE = "date"
    UUID = "uuid"
    JSON = "json"


@dataclass(frozen=True)
class Cast:
    """``type`` is None for a SQL type that is not known here."""

    sql_type: str | None
    type: InnerType | None
    bits: int = 64
    """For INT64: values must fit into so many. For FLOAT64: the size of the floating type, 32 or 64."""
    unsigned: bool = False
    """For INT64, and FLOAT64 with a precision: values must not be negative."""
    precision: int = 0
    """For FLOAT64: a decimal of this many digits, ``scale`` of them after the point; 0 means a double."""
    scale: int = 0
    max_length: int | None = None
    """For STRING: the most characters."""
    max_bytes: int | None = None
    """For STRING: the most bytes of UTF-8, for engines that count those."""
    fraction: int = MICROSECOND_DIGITS
    """For TIMESTAMP: digits after the point of a second; no more than our own timestamps have."""
    padded: bool = False
    """For STRING: the engine pads values with spaces, and cannot tell them from the value's own."""
    form: Form | None = None
    """For a type that is not known here: the form that its text has, if that is known."""
    pattern: str | None = None
    """For a type that is not known here: the texts that the engine keeps, if it would change others."""

    @property
    def arrow(self) -> pa.DataType | None:
        if self.type is None:
            return None
        return pa.decimal128(self.precision, self.scale) if self.precision else self.type.arrow

    @property
    def microseconds(self) -> int:
        """For TIMESTAMP: the distance from one value to the next."""
        return int(10 ** (MICROSECOND_DIGITS - self.fraction))

    @property
    def limited(self) -> bool:
        """Whether this type excludes some values of the Arrow type."""
        short = self.max_length is not None or self.max_bytes is not None
        return self.bits < 64 or self.unsigned or short or self.fraction < MICROSECOND_DIGITS


def covers(one: Cast, other: Cast) -> bool:
    """Whether a column of one type holds every value of the other as it is written. Text without a limit holds all."""
    if one.type is InnerType.STRING:
        if one.max_length is None and one.max_bytes is None:
            return True
        return other.type is InnerType.STRING and _limit(other) <= _limit(one)
    if one.type is None or other.type is None:
        return one.type is InnerType.TIMESTAMP and other.form is Form.DATE
    if one.type is not other.type:
        digits = _INTEGER_DIGITS[other.bits]
        whole = one.precision - one.scale if one.precision else (15 if one.bits == 64 else 7)
        return (one.type, other.type) == (InnerType.FLOAT64, InnerType.INT64) and digits <= whole
    if one.type is InnerType.FLOAT64:
        if bool(one.precision) != bool(other.precision):
            return False
        wide = one.precision - one.scale >= other.precision - other.scale
        return wide and one.scale >= other.scale and one.bits >= other.bits
    return one.bits >= other.bits and one.unsigned == other.unsigned and one.fraction >= other.fraction


def _limit(cast: Cast) -> float:
    limits = [limit for limit in (cast.max_length, cast.max_bytes) if limit is not None]
    return min(limits, default=float("inf"))


_INTEGER_DIGITS = {8: 3, 9: 3, 16: 5, 17: 5, 32: 10, 33: 10, 64: 19}


DEFAULT_CASTS: dict[tuple[str, ...], Cast] = {
    ("_timestamp",): Cast(None, InnerType.TIMESTAMP),
    ("eventn_ctx", "utc_time"): Cast(None, InnerType.TIMESTAMP),
}
"""Casts that apply unless the config casts the same path. The destination picks its own type for them."""


@lru_cache(maxsize=4_096)
def parse_cast(sql_type: str) -> Cast:
    """Read a SQL type, in any case and spacing."""
    plain = " ".join(sql_type.lower().split())
    match = _SHAPE.fullmatch(plain)
    if match is None:
        return Cast(sql_type, None)
    name = f"{match['name'].strip()}{match['tail'] or ''}"
    numbers = [int(number) for number in re.findall(r"-?\d+", match["arguments"] or "")]
    if name in _TIMESTAMPS:
        digits = numbers[0] if numbers else _TIMESTAMPS[name]
        return Cast(sql_type, InnerType.TIMESTAMP, fraction=min(digits, MICROSECOND_DIGITS))
    if name in _INTEGER_BITS:
        return Cast(sql_type, InnerType.INT64, bits=_INTEGER_BITS[name])
    if name in _DOUBLES:
        return Cast(sql_type, InnerType.FLOAT64)
    if name in _SINGLES:
        return Cast(sql_type, InnerType.FLOAT64, bits=32)
    if name in ("numeric", "decimal", "number"):
        precision, scale = (*numbers, 0)[:2] if numbers else (38, DEFAULT_SCALE)
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            return Cast(sql_type, None, pattern=decimal_pattern(precision, scale))
        return Cast(sql_type, InnerType.FLOAT64, precision=precision, scale=scale)
    if name in _TEXTS:
        limited = numbers and name not in ("text", "string")
        padded = bool(limited) and name in _PADDED
        return Cast(sql_type, InnerType.STRING, max_length=numbers[0] if limited else None, padded=padded)
    if name in ("boolean", "bool"):
        return Cast(sql_type, InnerType.BOOL)
    if name in _TIMES:
        digits = min(numbers[0], MICROSECOND_DIGITS) if numbers else MICROSECOND_DIGITS
        return Cast(sql_type, None, pattern=_time_pattern(digits, _TIMES[name]))
    return Cast(sql_type, None, form=_FORMS.get(name), pattern=_PATTERNS.get(name))


def decimal_pattern(precision: int, scale: int) -> str:
    """A pattern for numbers of so many digits, for a decimal that is too wide for Arrow."""
    whole, zeros = max(precision - scale, 0), max(-scale, 0)
    digits = rf"(0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
    if zeros:
        digits = rf"(0|[1-9][0-9]{{0,{max(precision - 1, 0)}}}0{{{zeros}}})"
    return rf"^-?{digits}(\.[0-9]{{0,{min(max(scale, 0), 1000)}}}0*)?$"


INTEGER = r"^-?(0|[1-9][0-9]*)$"
"""A pattern for integers of any size."""


def _time_pattern(digits: int, zone: bool) -> str:
    fraction = rf"(\.[0-9]{{1,{digits}}}0*)?" if digits else r"(\.0+)?"
    return rf"^[0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}{fraction})?{'(Z|[+-][0-9]{2}(:[0-9]{2})?)' if zone else ''}$"


_SHAPE = re.compile(r"(?P<name>[a-z_][a-z0-9_ ]*)(?:\((?P<arguments>[-\d, ]*)\))?(?P<tail> [a-z ]+)?")

_TIMESTAMPS = {
    **dict.fromkeys(("timestamp", "timestamp without time zone", "timestamp_ntz", "timestamp_ltz"), 6),
    **dict.fromkeys(("timestamptz", "timestamp with time zone", "timestamp_tz", "datetime", "datetime64"), 6),
    "timestamp_s": 0,
    "timestamp_ms": 3,
}
"""With the default digits of a second."""
_INTEGER_BITS = {
    **dict.fromkeys(("bigint", "int8", "int64", "long"), 64),
    **dict.fromkeys(("integer", "int", "int4", "int32"), 32),
    **dict.fromkeys(("smallint", "int2", "int16"), 16),
}
_DOUBLES = frozenset(("double", "double precision", "float", "float8", "float64"))
_SINGLES = frozenset(("real", "float4", "float32"))
_FORMS = {"date": Form.DATE, "date32": Form.DATE, "uuid": Form.UUID, "json": Form.JSON, "jsonb": Form.JSON}
_TIMES = {"time": False, "time without time zone": False, "time with time zone": True, "timetz": True}
"""Times of day, and whether they have a zone."""
_PATTERNS = {
    "money": r"^-?[0-9]{1,16}(\.[0-9]{1,2}0*)?$",
    # Only fractions of a second are rounded.
    "interval": r"^([^.]|\.[0-9]{0,6}0*([^0-9.]|$))*$",
}
_PADDED = frozenset(("char", "character", "bpchar"))
_TEXTS = frozenset(("text", "string", "varchar", "character varying", "char", "character", "bpchar"))
