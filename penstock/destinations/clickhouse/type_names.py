"""The types of ClickHouse, which tell capitals apart, and the words of standard SQL that Penstock spells for it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from penstock.destinations.sql.type_names import (
    NOTHING,
    Arguments,
    TypeNames,
    TypeProblem,
    digits,
    fraction,
    length,
    named,
    times,
)

_SIZES = (8, 16, 32, 64, 128, 256)
_OWN = {
    **dict.fromkeys([f"{sign}Int{size}" for sign in ("", "U") for size in _SIZES], NOTHING),
    **named("Float32, Float64, Bool, String, UUID, IPv4, IPv6, Date, Date32, DateTime"),
    "FixedString": length(1_000_000),
    "Decimal": digits(76),
    "DateTime64": fraction(9),
}
_NEEDED = ("FixedString", "Decimal", "DateTime64")
_WRAPPED = re.compile(r"(Nullable|LowCardinality)\((.+)\)")
_NESTED = re.compile(r"(Array|Map|Tuple|Nested|Variant|Dynamic|JSON|Object|Enum8|Enum16|AggregateFunction)\b.*")
_SHAPE = re.compile(r"(\w+)(?:\(([^()]*)\))?")
_ZONE = re.compile(r"\s*'[A-Za-z0-9_/+-]+'\s*")


@dataclass(frozen=True)
class ClickhouseTypeNames(TypeNames):
    def problem(self, asked: str) -> TypeProblem | None:
        text = asked.strip()
        wrapped = _WRAPPED.fullmatch(text)
        if wrapped is None:
            return self._plain(text, asked)
        outer, inner = wrapped.groups()
        if outer == "LowCardinality" and not re.fullmatch(r"(?:Nullable\()?(?:String|FixedString\(\d+\))\)?", inner):
            return TypeProblem(f"'{asked}' is no type here", "LowCardinality goes around String and FixedString.")
        if outer == "Nullable" and "(" in inner and _WRAPPED.fullmatch(inner):
            return TypeProblem(f"'{asked}' is no type of ClickHouse", "Nullable goes around a plain type.")
        return self._own(inner, asked) if outer == "Nullable" else self.problem(inner)

    def _plain(self, text: str, asked: str) -> TypeProblem | None:
        if _NESTED.fullmatch(text):
            return TypeProblem(
                f"'{asked}' cannot be filled from events", "What is nested is kept as JSON text: cast to String."
            )
        own = self._own(text, asked)
        return None if own is None or super().problem(asked) is None else own

    def _own(self, text: str, asked: str) -> TypeProblem | None:
        shape = _SHAPE.fullmatch(text)
        if shape is None or shape[1] not in _OWN:
            name = text.partition("(")[0].strip()
            by_lower = {known.lower(): known for known in (*self.known, *_OWN)}
            close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
            fix = f"Did you mean '{by_lower[close[0]]}'?" if close else "Write a type such as Int64, Decimal(12, 2)."
            return TypeProblem(f"'{asked}' is no type of ClickHouse", fix)
        name, written = shape.groups()
        wrong = "it needs its size in brackets" if written is None and name in _NEEDED else None
        if written is not None:
            wrong = _arguments(name, written)
        return None if wrong is None else TypeProblem(f"'{asked}' is no type of ClickHouse: {wrong}", "")


def _arguments(name: str, written: str) -> str | None:
    """What is wrong in the brackets. Times may have a zone there, last."""
    parts = written.split(",")
    if name.startswith("DateTime") and _ZONE.fullmatch(parts[-1]):
        parts = parts[:-1]
        if not parts:
            return None if name == "DateTime" else "it needs its digits of a second"
    if name == "Decimal" and len(parts) != 2:
        return "it needs two numbers in brackets"
    found: Arguments = _OWN[name]
    return found.problem(",".join(parts))


CLICKHOUSE_TYPES = ClickhouseTypeNames(
    "ClickHouse",
    known={
        **named("bigint, int8, int64, long, integer, int, int4, int32, smallint, int2, int16, boolean, bool"),
        **named("double, double precision, float, float8, float64, real, float4, float32"),
        **named("numeric, decimal, number", digits(38)),
        **named("varchar, character varying, char, character", length(2**31 - 1)),
        **named("text, string, date, json, jsonb, uuid"),
        **times(words="timestamp"),
        **named("timestamptz, timestamp_tz, timestamp_ntz, timestamp_ltz, datetime", fraction()),
        **named("timestamp_s, timestamp_ms, timestamp_ns"),
    },
)
