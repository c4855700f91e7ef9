"""ClickHouse's types: reading those that a table has, and spelling those that a step asks for.

A table's columns can be NULL (a row need not have them), except those of its key, where ClickHouse allows none.
"""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.flatten.casts import INTEGER, Cast, Form, parse_cast
from penstock.flatten.inner_types import InnerType

_WRAPPED = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)", re.DOTALL)
_ZONE = r"'[A-Za-z0-9_/+-]+'"
_PLAIN = (
    rf"U?Int(?:8|16|32|64|128|256)|Float(?:32|64)|Bool|String|FixedString\(\d+\)|UUID|IPv[46]|Date|Date32"
    rf"|Decimal\(\s*\d+\s*,\s*\d+\s*\)|DateTime(?:\({_ZONE}\))?|DateTime64\(\s*\d\s*(?:,\s*{_ZONE}\s*)?\)"
)
_ASKED = re.compile(
    rf"(?:{_PLAIN})|Nullable\((?:{_PLAIN})\)"
    r"|LowCardinality\((?:String|FixedString\(\d+\)|Nullable\(String\)|Nullable\(FixedString\(\d+\)\))\)"
)
_INTEGER = re.compile(r"(U?)Int(8|16|32|64)")
_DATETIME64 = re.compile(r"DateTime64\((\d)\b.*\)")
_STANDARD = {InnerType.STRING: "String", InnerType.BOOL: "UInt8", InnerType.TIMESTAMP: "DateTime64(6, 'UTC')"}
_INTEGERS = {64: "Int64", 32: "Int32", 16: "Int16"}
_WORDS = {
    "date": "Date32",
    "json": "String",
    "jsonb": "String",
    "uuid": "UUID",
    "timestamp_ns": "DateTime64(9, 'UTC')",
}


def bare(sql_type: str) -> str:
    """The type without ``Nullable`` and ``LowCardinality`` around it."""
    while (wrapped := _WRAPPED.fullmatch(sql_type)) is not None:
        sql_type = wrapped[1]
    return sql_type


def nullable(sql_type: str) -> str:
    if sql_type.startswith("LowCardinality("):
        return f"LowCardinality(Nullable({bare(sql_type)}))"
    return f"Nullable({bare(sql_type)})"


def not_nullable(sql_type: str) -> str:
    return f"LowCardinality({bare(sql_type)})" if sql_type.startswith("LowCardinality(") else bare(sql_type)


def asked_type(text: str) -> str | None:
    """The type that a step asks for: one of ClickHouse's own, or of standard SQL. ``None``: it is neither."""
    text = text.strip()
    if _ASKED.fullmatch(text):
        return nullable(text)
    words = " ".join(text.lower().split())
    if words in _WORDS:
        return nullable(_WORDS[words])
    known = parse_cast(text)
    if known.type is None:
        return None
    if known.type is InnerType.INT64:
        return nullable(_INTEGERS[known.bits])
    if known.type is InnerType.FLOAT64:
        return nullable(f"Decimal({known.precision}, {known.scale})" if known.precision else "Float64")
    return nullable(_STANDARD[known.type])


@lru_cache(maxsize=4_096)
def column_cast(sql_type: str) -> Cast:
    """What a column of this type holds. Without a type of ours the value is sent as text, and ClickHouse converts it:
    so it is for times of a smaller range, or a finer resolution, than ours."""
    inner = bare(sql_type)
    if (integer := _INTEGER.fullmatch(inner)) is not None:
        unsigned, bits = bool(integer[1]), int(integer[2])
        # An unsigned number of 8 bits is a signed one of 9 that is not below zero.
        return Cast(sql_type, InnerType.INT64, bits=min(64, bits + unsigned), unsigned=unsigned)
    if (time := _DATETIME64.fullmatch(inner)) is not None:
        digits = int(time[1])
        return Cast(sql_type, InnerType.TIMESTAMP if digits <= 6 else None, fraction=min(digits, 6))
    if inner.startswith("Decimal("):
        return parse_cast(inner)
    if inner == "Float32":
        return Cast(sql_type, InnerType.FLOAT64, bits=32)
    return Cast(sql_type, _HOLDS.get(inner), form=_FORMS.get(inner), pattern=_PATTERNS.get(inner))


_HOLDS = {
    "String": InnerType.STRING,
    "Bool": InnerType.BOOL,
    "Float64": InnerType.FLOAT64,
}
_PATTERNS = dict.fromkeys(("Int128", "Int256"), INTEGER) | dict.fromkeys(("UInt128", "UInt256"), r"^(0|[1-9][0-9]*)$")
"""Texts that ClickHouse reads into these types without truncating them."""
_FORMS = {"Date": Form.DATE, "Date32": Form.DATE, "UUID": Form.UUID}
