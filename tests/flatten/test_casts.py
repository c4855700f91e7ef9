"""Reading SQL types."""

from __future__ import annotations

import re
import subprocess
import sys

import pyarrow as pa
import pytest

from penstock.flatten.casts import Cast, parse_cast
from penstock.flatten.inner_types import InnerType


@pytest.mark.parametrize(
    ("sql_type", "inner"),
    [
        ("TIMESTAMP", InnerType.TIMESTAMP),
        ("timestamp  with time zone", InnerType.TIMESTAMP),
        ("timestamp(6) with time zone", InnerType.TIMESTAMP),
        ("DateTime64(6)", InnerType.TIMESTAMP),
        ("BigInt", InnerType.INT64),
        ("Double Precision", InnerType.FLOAT64),
        ("character varying(65535)", InnerType.STRING),
        ("bool", InnerType.BOOL),
    ],
)
def test_a_known_type_is_known_in_any_spelling(sql_type: str, inner: InnerType) -> None:
    cast = parse_cast(sql_type)
    assert cast.type is inner
    assert cast.sql_type == sql_type


@pytest.mark.parametrize("sql_type", ["inet", "Nullable(String)", "", "int[]"])
def test_an_unknown_type_is_left_to_the_destination(sql_type: str) -> None:
    assert parse_cast(sql_type) == Cast(sql_type, None)
    assert parse_cast(sql_type).arrow is None


@pytest.mark.parametrize(
    ("sql_type", "kept", "changed"),
    [
        ("numeric(50,2)", ["0", "-12.34", "12.3400", "9" * 48], ["12.345", "9" * 49, "1e5", "+1", "007"]),
        ("numeric(3,5)", ["0.00123", "0"], ["1", "0.000001"]),
        ("numeric(50,-2)", ["100", "0"], ["150", "1.5"]),
        ("time(3)", ["10:00:00.123", "10:00"], ["10:00:00.1234", "x"]),
        ("time with time zone", ["10:00:00.123456+02"], ["10:00:00.1234567Z"]),
        ("interval", ["1 day 0.123456 seconds", "P1D"], ["0.1234567 seconds", "1.1234567"]),
        ("money", ["12.34", "-1"], ["12.345", "$12"]),
    ],
)
def test_of_a_type_that_rounds_those_texts_are_known_that_it_keeps(
    sql_type: str, kept: list[str], changed: list[str]
) -> None:
    cast = parse_cast(sql_type)
    assert cast.type is None
    assert cast.pattern is not None
    assert [text for text in kept + changed if re.match(cast.pattern, text)] == kept


def test_a_decimal_has_its_digits() -> None:
    assert parse_cast("NUMERIC( 12 , 2 )").arrow == pa.decimal128(12, 2)


@pytest.mark.parametrize(
    ("sql_type", "digits"),
    [
        ("timestamp", 6),
        ("timestamp(9)", 6),
        ("timestamp(3) without time zone", 3),
        ("TIMESTAMP (0) with time zone", 0),
        ("timestamptz(0)", 0),
        ("TIMESTAMP_S", 0),
        ("TIMESTAMP_MS", 3),
        ("timestamp_tz(4)", 4),
    ],
)
def test_a_timestamp_has_its_digits(sql_type: str, digits: int) -> None:
    cast = parse_cast(sql_type)
    assert (cast.type, cast.fraction, cast.limited) == (InnerType.TIMESTAMP, digits, digits < 6)


def test_rules_about_names_and_types_do_not_bring_in_the_compiler() -> None:
    code = (
        "import sys, penstock.flatten.column_naming, penstock.flatten.inner_types;"
        "import penstock.flatten.casts, penstock.json.paths;"
        "from penstock.flatten import Column; sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
