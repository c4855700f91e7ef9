"""What goes into a column of another type, and what is lost on the way."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flatten import flatten
from penstock.flatten.casts import Cast, parse_cast
from penstock.flatten.fit_column import fit, fit_json, json_values

BIGINT, DOUBLE, BOOLEAN, TEXT, TIME = "bigint", "double precision", "boolean", "text", "timestamp with time zone"
MICROS = pa.timestamp("us", "UTC")
LOST = object()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


NOON = moment("2024-05-01T12:00:00Z")


def result(value: object, source: pa.DataType, target: str) -> object:
    array = pa.array([value, None], source)
    fitted = fit(array, parse_cast(target))
    fitted.array.validate(full=True)
    assert fitted.array.type == parse_cast(target).arrow
    (converted, nothing) = fitted.array.to_pylist()
    assert nothing is None
    if fitted.lost is None:
        return converted
    assert fitted.lost.to_pylist() == [True, False]
    assert converted is None
    return LOST


CASES: list[tuple[object, pa.DataType, str, object]] = [
    ("7", pa.string(), BIGINT, 7),
    ("-12", pa.string(), BIGINT, -12),
    ("7.0", pa.string(), BIGINT, 7),
    ("7.000", pa.large_string(), BIGINT, 7),
    ("007", pa.string(), BIGINT, LOST),
    (" 7", pa.string(), BIGINT, LOST),
    ("7\n", pa.string(), BIGINT, LOST),
    ("+7", pa.string(), BIGINT, LOST),
    ("-0", pa.string(), BIGINT, LOST),
    ("-0.0", pa.string(), BIGINT, LOST),
    ("7.5", pa.string(), BIGINT, LOST),
    ("0x10", pa.string(), BIGINT, LOST),
    ("1_000", pa.string(), BIGINT, LOST),
    ("1e3", pa.string(), BIGINT, LOST),
    ("", pa.string(), BIGINT, LOST),
    ("x", pa.string(), BIGINT, LOST),
    ("true", pa.string(), BIGINT, LOST),
    ("[1]", pa.string(), BIGINT, LOST),
    ("٧", pa.string(), BIGINT, LOST),
    ("9223372036854775807", pa.string(), BIGINT, 2**63 - 1),
    ("9223372036854775808", pa.string(), BIGINT, LOST),
    ("32768", pa.string(), "smallint", LOST),
    (9.0, pa.float64(), BIGINT, 9),
    (-0.0, pa.float64(), BIGINT, 0),
    (9.5, pa.float64(), BIGINT, LOST),
    (1e300, pa.float64(), BIGINT, LOST),
    (2.0**63, pa.float64(), BIGINT, LOST),
    (-(2.0**63), pa.float64(), BIGINT, LOST),  # it is said as -9.223372036854776e+18
    (2.000756612041843e16, pa.float64(), BIGINT, 20007566120418430),
    (2.0**31, pa.float64(), "integer", LOST),
    (math.nan, pa.float64(), BIGINT, LOST),
    (-math.inf, pa.float64(), BIGINT, LOST),
    (70_000, pa.int64(), "smallint", LOST),
    (-32_768, pa.int64(), "smallint", -32_768),
    (True, pa.bool_(), BIGINT, 1),
    (Decimal("9.00"), pa.decimal128(12, 2), BIGINT, 9),
    (Decimal("9.01"), pa.decimal128(12, 2), BIGINT, LOST),
    (NOON, MICROS, BIGINT, LOST),
    ("1.50", pa.string(), DOUBLE, 1.5),
    ("7", pa.string(), DOUBLE, 7.0),
    ("100", pa.string(), DOUBLE, 100.0),
    ("-0.0", pa.string(), DOUBLE, -0.0),
    ("10000000000000000", pa.string(), DOUBLE, 1e16),
    ("0.00000001", pa.string(), DOUBLE, 1e-8),
    ("1e+30", pa.string(), DOUBLE, 1e30),
    ("1e30", pa.string(), DOUBLE, LOST),
    ("9007199254740993", pa.string(), DOUBLE, LOST),
    ("0.1000000000000000055", pa.string(), DOUBLE, LOST),
    ("nan", pa.string(), DOUBLE, LOST),
    ("inf", pa.string(), DOUBLE, LOST),
    ("9" * 400, pa.string(), DOUBLE, LOST),
    (7, pa.int64(), DOUBLE, 7.0),
    (2**53 + 1, pa.int64(), DOUBLE, LOST),
    (2**53 + 2, pa.int64(), DOUBLE, 2.0**53 + 2),
    (2**63 - 1, pa.int64(), DOUBLE, LOST),
    (False, pa.bool_(), DOUBLE, 0.0),
    (Decimal("1.25"), pa.decimal128(12, 2), DOUBLE, 1.25),
    (Decimal("0.1"), pa.decimal128(38, 18), DOUBLE, 0.1),
    (Decimal("0.123456789012345678"), pa.decimal128(38, 18), DOUBLE, LOST),
    (NOON, MICROS, DOUBLE, LOST),
    (1, pa.int64(), BOOLEAN, True),
    (0, pa.int64(), BOOLEAN, False),
    (2, pa.int64(), BOOLEAN, LOST),
    (1.0, pa.float64(), BOOLEAN, True),
    (0.5, pa.float64(), BOOLEAN, LOST),
    (Decimal("1.00"), pa.decimal128(12, 2), BOOLEAN, True),
    (Decimal("0.01"), pa.decimal128(12, 2), BOOLEAN, LOST),
    ("true", pa.string(), BOOLEAN, True),
    ("false", pa.string(), BOOLEAN, False),
    ("TRUE", pa.string(), BOOLEAN, LOST),
    ("yes", pa.string(), BOOLEAN, LOST),
    ("1", pa.string(), BOOLEAN, LOST),
    (NOON, MICROS, BOOLEAN, LOST),
    ("1.5", pa.string(), "numeric(12,2)", Decimal("1.50")),
    ("1.2300", pa.string(), "numeric(12,2)", Decimal("1.23")),
    ("1.234", pa.string(), "numeric(12,2)", LOST),
    ("10000000000", pa.string(), "numeric(12,2)", LOST),
    ("1e3", pa.string(), "numeric(12,2)", LOST),
    ("-0", pa.string(), "numeric(12,2)", LOST),
    ("x", pa.string(), "numeric(12,2)", LOST),
    (1.25, pa.float64(), "numeric(12,2)", Decimal("1.25")),
    (0.1, pa.float64(), "numeric", Decimal("0.1")),
    (1.236, pa.float64(), "numeric(12,2)", LOST),
    (0.001, pa.float64(), "numeric(12,2)", LOST),
    (0.006, pa.float64(), "numeric(12,2)", LOST),
    (0.0, pa.float64(), "numeric(12,2)", Decimal("0.00")),
    (0.0, pa.float64(), "numeric(38,30)", Decimal(0)),
    (-1.5, pa.float64(), "numeric(38,30)", Decimal("-1.5")),
    (0.5, pa.float64(), "numeric(1,1)", Decimal("0.5")),
    (-0.96, pa.float64(), "numeric(1,1)", LOST),
    (999.5, pa.float64(), "numeric(3,0)", LOST),
    (10**18 + 1, pa.int64(), "numeric(38,18)", Decimal(10**18 + 1)),
    (1e25, pa.float64(), "numeric", LOST),
    (1e19, pa.float64(), "numeric", Decimal(10**19)),
    (1e-300, pa.float64(), "numeric", LOST),
    (math.nan, pa.float64(), "numeric", LOST),
    (math.inf, pa.float64(), "numeric", LOST),
    (-7, pa.int64(), "numeric(3,2)", Decimal(-7)),
    (10, pa.int64(), "numeric(3,2)", LOST),
    (2**63 - 1, pa.int64(), "numeric", Decimal(2**63 - 1)),
    (True, pa.bool_(), "numeric(3,2)", Decimal("1.00")),
    (True, pa.bool_(), "numeric(2,2)", LOST),
    (Decimal("1.500"), pa.decimal128(38, 18), "numeric(12,2)", Decimal("1.50")),
    (Decimal("1.505"), pa.decimal128(38, 18), "numeric(12,2)", LOST),
    (NOON, MICROS, "numeric", LOST),
    (True, pa.bool_(), TEXT, "true"),
    (-7, pa.int64(), TEXT, "-7"),
    (1.5, pa.float64(), TEXT, "1.5"),
    (9.0, pa.float64(), TEXT, "9.0"),
    (-0.0, pa.float64(), TEXT, "-0.0"),
    (1e30, pa.float64(), TEXT, "1e+30"),
    (5e-324, pa.float64(), TEXT, "5e-324"),
    (0.1, pa.float64(), TEXT, "0.1"),
    (Decimal("1.50"), pa.decimal128(12, 2), TEXT, "1.5"),
    (Decimal("-0.05"), pa.decimal128(12, 2), TEXT, "-0.05"),
    (Decimal("100.00"), pa.decimal128(12, 2), TEXT, "100"),
    (Decimal(0), pa.decimal128(38, 18), TEXT, "0"),
    (Decimal("1E-18"), pa.decimal128(38, 18), TEXT, "0.000000000000000001"),
    (Decimal(-(10**38) + 1), pa.decimal128(38, 0), TEXT, "-" + "9" * 38),
    (NOON, MICROS, TEXT, "2024-05-01T12:00:00.000000Z"),
    (moment("0001-01-01T00:00:00.000001+00:00"), MICROS, TEXT, "0001-01-01T00:00:00.000001Z"),
    ("abc", pa.string(), "varchar(3)", "abc"),
    ("äöü", pa.string(), "varchar(3)", "äöü"),
    ("abcd", pa.string(), "varchar(3)", LOST),
    (1234, pa.int64(), "varchar(3)", LOST),
    ("2024-05-01T10:00:00.5Z", pa.string(), TIME, moment("2024-05-01T10:00:00.5Z")),
    ("2024-05-01 10:00:00+02:00", pa.string(), TIME, moment("2024-05-01T08:00:00Z")),
    ("2024-05-01T10:00:00", pa.string(), TIME, moment("2024-05-01T10:00:00Z")),
    ("2024-13-01T10:00:00Z", pa.string(), TIME, LOST),
    ("2024-05-01T10:00:00.1234567Z", pa.string(), TIME, LOST),
    ("2024-05-01", pa.string(), TIME, LOST),
    ("yesterday", pa.string(), TIME, LOST),
    ("2024-05-01T10:00:00.1230000Z", pa.string(), TIME, moment("2024-05-01T10:00:00.123Z")),
    ("2024-05-01T10:00:00.123Z", pa.string(), "timestamp(3) with time zone", moment("2024-05-01T10:00:00.123Z")),
    ("2024-05-01T10:00:00.1230Z", pa.string(), "timestamp(3)", moment("2024-05-01T10:00:00.123Z")),
    ("2024-05-01T10:00:00.1234Z", pa.string(), "timestamp(3)", LOST),
    ("1969-12-31T23:59:59.9995Z", pa.string(), "timestamp(3)", LOST),
    ("2024-05-01T10:00:00.0Z", pa.string(), "timestamptz(0)", moment("2024-05-01T10:00:00Z")),
    ("2024-05-01T10:00:00.5Z", pa.string(), "timestamptz(0)", LOST),
    (NOON, MICROS, "timestamptz(0)", NOON),
    (moment("2024-05-01T10:00:00.5Z"), MICROS, "timestamptz(0)", LOST),
    (moment("2024-05-01T10:00:00.123Z"), MICROS, "TIMESTAMP_MS", moment("2024-05-01T10:00:00.123Z")),
    (moment("2024-05-01T10:00:00.000001Z"), MICROS, "TIMESTAMP_MS", LOST),
    (moment("1969-12-31T23:59:59.9995Z"), MICROS, "timestamp(3)", LOST),
    (7, pa.int64(), TIME, LOST),
    (1.5, pa.float64(), TIME, LOST),
    (False, pa.bool_(), TIME, LOST),
    (Decimal(1), pa.decimal128(12, 2), TIME, LOST),
]


@pytest.mark.parametrize(("value", "source", "target", "expected"), CASES)
def test_a_value_goes_in_if_it_could_be_had_back(
    value: object, source: pa.DataType, target: str, expected: object
) -> None:
    converted = result(value, source, target)
    assert converted == expected
    assert str(converted) == str(expected) or isinstance(expected, Decimal)


@pytest.mark.parametrize("sql_type", ["interval", "inet", "LowCardinality(String)"])
def test_a_type_that_is_not_known_gets_text_and_decides_itself(sql_type: str) -> None:
    for array, text in [
        (pa.array(['{"a":1}', None]), ['{"a":1}', None]),
        (pa.array([1.0, None]), ["1.0", None]),
        (pa.array([True, None]), ["true", None]),
        (pa.array([NOON, None], MICROS), ["2024-05-01T12:00:00.000000Z", None]),
    ]:
        fitted = fit(array, parse_cast(sql_type))
        assert fitted.array.to_pylist() == text
        assert fitted.array.type == pa.string()
        assert fitted.lost is None


@pytest.mark.parametrize(
    ("sql_type", "text", "expected"),
    [
        ("date", "2024-02-29", "2024-02-29"),
        ("date", "2023-02-29", None),
        ("date", "soon", None),
        ("date", "2024-02-29T00:00:00Z", None),
        ("uuid", "00000000-0000-0000-0000-00000000000A", "00000000-0000-0000-0000-00000000000a"),
        ("uuid", "00000000", None),
        ("jsonb", '{"a":1}', '{"a":1}'),
        ("json", ' [1, "7"]', ' [1, "7"]'),
        ("jsonb", "plain text", '"plain text"'),
        ("jsonb", "{broken", '"{broken"'),
        ("jsonb", "", '""'),
        *(
            (kind, text, json.dumps(text))
            for kind in ("json", "jsonb")
            for text in ("7", "-1.50", "1e5", "true", "false", "null", " 7 ", '"quoted"', "0123", "NaN")
        ),
    ],
)
def test_text_that_a_database_would_surely_refuse_is_told_apart(sql_type: str, text: str, expected: str | None) -> None:
    fitted = fit(pa.array([text, None]), parse_cast(sql_type))
    assert fitted.array.to_pylist() == [expected, None]
    assert (fitted.lost is None) == (expected is not None)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([7, None]), ["7", None]),
        (pa.array([1.5, 1e30, None]), ["1.5", "1e+30", None]),
        (pa.array([True, None]), ["true", None]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(12, 2)), ["1.5", None]),
        (pa.array([NOON, None], MICROS), ['"2024-05-01T12:00:00.000000Z"', None]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_what_is_no_text_is_what_it_is_in_json(array: pa.Array, expected: list[str | None]) -> None:
    fitted = fit(array, parse_cast("json"))
    assert (fitted.array.to_pylist(), fitted.array.type, fitted.lost) == (expected, pa.string(), None)


@given(st.lists(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
), max_size=8))  # fmt: skip
def test_a_value_of_a_mixed_column_keeps_its_type_in_json(values: list[Any]) -> None:
    spelled = pa.array([json.dumps(value) for value in values if value is not None], pa.string())
    kept = [json.loads(text) for text in fit_json(spelled, parse_cast("jsonb")).array.to_pylist()]
    for value, found in zip([value for value in values if value is not None], kept, strict=True):
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            continue
        assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (pa.array([1, None]), BIGINT),
        (pa.array([1.5, None]), DOUBLE),
        (pa.array(["x", None]), TEXT),
        (pa.array([True, None]), BOOLEAN),
        (pa.array([NOON, None], MICROS), TIME),
        (pa.array([Decimal("1.50"), None], pa.decimal128(12, 2)), "numeric(12,2)"),
    ],
)
def test_a_column_of_the_right_type_is_taken_as_it_is(array: pa.Array, target: str) -> None:
    assert fit(array, parse_cast(target)).array is array


@pytest.mark.parametrize("target", [BIGINT, DOUBLE, BOOLEAN, TEXT, TIME, "numeric(12,2)", "smallint"])
@pytest.mark.parametrize("source", [pa.bool_(), pa.int64(), pa.float64(), pa.string(), MICROS, pa.decimal128(9, 2)])
def test_nulls_and_empty_columns_lose_nothing(source: pa.DataType, target: str) -> None:
    for array in (pa.nulls(3, source), pa.array([], source), pa.chunked_array([], source), pa.nulls(2)):
        fitted = fit(array, parse_cast(target))
        assert fitted.lost is None
        assert fitted.array.type == parse_cast(target).arrow
        assert fitted.array.null_count == len(array)


JSON_VALUES = (
    st.sampled_from(["true", "false", "-0", "-0.0", "1e3", "1e400", "1e-400", "0.123456789012345678", "[1]", '"-0"'])
    | st.sampled_from([str(number) for power in (53, 62, 63) for number in range(2**power - 1, 2**power + 2)])
    | st.integers(-(2**66), 2**66).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.text(max_size=3).map(json.dumps)
    | st.integers(-(2**66), 2**66).map(lambda number: f'"{number}"')
)


@given(st.lists(JSON_VALUES, max_size=6), st.data())
def test_what_becomes_of_a_value_does_not_depend_on_those_beside_it(values: list[str], data: st.DataObject) -> None:
    target = parse_cast(data.draw(st.sampled_from([name for name in TARGETS if name != TEXT and name != "varchar(9)"])))
    together = fit_json(pa.array(values, pa.string()), target)
    together.array.validate(full=True)
    alone = [fit(read_alone(value), target).array[0].as_py() for value in values]
    assert str(together.array.to_pylist()) == str(alone)
    lost = together.lost.to_pylist() if together.lost else [False] * len(values)
    assert lost == [found is None for found in alone]


def read_alone(value: str) -> pa.Array:
    """The column of a batch that has this value and no other."""
    (column,) = flatten(pa.array([b'{"a":' + value.encode() + b"}"])).table.columns
    return column.combine_chunks()


def test_chunks_and_slices_are_fitted_like_whole_columns() -> None:
    array = pa.array(["no", "7", "x", None, "9", "no"])[1:5]
    whole = fit(array, parse_cast(BIGINT))
    chunked = fit(pa.chunked_array([array[:1], array[1:]]), parse_cast(BIGINT))
    assert whole.array.to_pylist() == chunked.array.to_pylist() == [7, None, None, 9]
    assert whole.lost is not None
    assert chunked.lost is not None
    assert whole.lost.to_pylist() == chunked.lost.to_pylist() == [False, True, False, False]
    assert fit(array[2:], parse_cast(BIGINT)).lost is None


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([7, -(2**63)]), ["7", "-9223372036854775808"]),
        (pa.array([1.5, 9.0]), ["1.5", "9.0"]),
        (pa.array([math.nan, -math.inf]), ['"nan"', '"-inf"']),
        (pa.array([Decimal("1.50"), Decimal("-0.01")]), ["1.5", "-0.01"]),
        (pa.array(['q"\\\n\0é', ""]), ['"q\\"\\\\\\u000a\\u0000é"', '""']),
        (pa.array([NOON, NOON], MICROS), ['"2024-05-01T12:00:00.000000Z"'] * 2),
    ],
)
def test_what_is_lost_is_kept_as_json(array: pa.Array, texts: list[str]) -> None:
    found = json_values(pa.concat_arrays([array, array]), pa.array([True, False, False, True]))
    assert found.to_pylist() == [texts[0], texts[1]]
    assert all(json.loads(text) is not None for text in texts)
    assert json_values(pa.chunked_array([array, array]), pa.array([False, True, False, False])).to_pylist() == texts[1:]


SOURCES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.bool_(): st.booleans(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    pa.float64(): st.floats() | st.integers(-(2**60), 2**60).map(float) | st.sampled_from([0.1, 1e22, 123.456]),
    pa.decimal128(38, 18): st.decimals(-(10**19), 10**19, places=18),
    pa.decimal128(12, 2): st.decimals(-99, 99, places=2),
    pa.string(): st.text(max_size=8)
    | st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{1,4})?(e[+-]?[0-9]{1,3})?", fullmatch=True)
    | st.datetimes().map(lambda value: value.isoformat() + "Z")
    | st.sampled_from(["true", "false", "nan", "-0", "1e+30", "2024-05-01T10:00:00+02:00"]),
    MICROS: st.datetimes(timezones=st.just(UTC)),
}
TARGETS = [BIGINT, "smallint", DOUBLE, BOOLEAN, TEXT, "varchar(9)", TIME, "numeric", "numeric(12,2)", "numeric(38,0)"]
OWN_SQL_TYPE = {
    pa.bool_(): BOOLEAN,
    pa.int64(): BIGINT,
    pa.float64(): DOUBLE,
    pa.decimal128(38, 18): "numeric(38,18)",
    pa.decimal128(12, 2): "numeric(12,2)",
    pa.string(): TEXT,
    MICROS: TIME,
}


@given(st.data(), st.sampled_from(list(SOURCES)), st.sampled_from(TARGETS))
def test_what_is_not_lost_can_be_had_back(data: st.DataObject, source: pa.DataType, target: str) -> None:
    values = data.draw(st.lists(st.none() | SOURCES[source], max_size=5))
    array = pa.array(values, source)
    fitted = fit(array, parse_cast(target))
    fitted.array.validate(full=True)
    lost = fitted.lost.to_pylist() if fitted.lost is not None else [False] * len(values)
    assert all(not gone or value is not None for gone, value in zip(lost, values, strict=True))
    assert fitted.array.is_null().to_pylist() == [
        gone or value is None for gone, value in zip(lost, values, strict=True)
    ]
    assert None not in map(json.loads, json_values(array, array.is_valid()).to_pylist())
    back = fit(fitted.array, parse_cast(OWN_SQL_TYPE[source]))
    if source == pa.float64() and target.startswith("numeric"):
        return  # rounded to the scale
    for value, gone, returned in zip(values, lost, back.array.to_pylist(), strict=True):
        if not gone and value is not None and value == value and value not in (math.inf, -math.inf):
            assert same(returned, value, source)


@given(
    st.lists(
        st.floats() | st.decimals(-(10**6), 10**6, places=4).map(float) | st.integers(-(2**63), 2**63 - 1).map(float)
    ),
    st.sampled_from([(38, 18), (12, 2), (3, 0), (18, 18), (38, 30), (38, 0), (1, 1)]),
)
def test_a_double_goes_into_a_decimal_by_the_digits_it_is_spelled_with(
    doubles: list[float], digits: tuple[int, int]
) -> None:
    precision, scale = digits
    fitted = fit(pa.array(doubles, pa.float64()), parse_cast(f"numeric({precision},{scale})"))
    fitted.array.validate(full=True)
    assert fitted.array.to_pylist() == [exactly(double, precision, scale) for double in doubles]


def exactly(double: float, precision: int, scale: int) -> Decimal | None:
    if not math.isfinite(double):
        return None
    found = Decimal(repr(double)).quantize(Decimal(1).scaleb(-scale), context=Context(prec=400))
    if found != Decimal(repr(double)) or abs(found) >= Decimal(10) ** (precision - scale):
        return None
    return found


def same(returned: object, value: object, source: pa.DataType) -> bool:
    """Text may come back in another spelling of the same number or moment."""
    if returned == value:
        return True
    if source != pa.string() or not isinstance(returned, str) or not isinstance(value, str):
        return False
    try:
        return Decimal(returned) == Decimal(value)
    except ArithmeticError:
        return moment(returned) == moment(value if value[-1] == "Z" or value[-6] in "+-" else value + "Z")


ANY_TYPE = st.sampled_from(
    [pa.int8(), pa.uint64(), pa.float32(), pa.date32(), pa.time64("us"), pa.timestamp("ns"), pa.timestamp("s", "CET"),
     pa.binary(), pa.large_string(), pa.list_(pa.int64()), pa.dictionary(pa.int32(), pa.string()), pa.duration("us"),
     pa.decimal256(50, 2), pa.struct([("a", pa.int64())]), pa.null(), pa.month_day_nano_interval()]
)  # fmt: skip
ANY_VALUE: dict[pa.DataType, list[object]] = {
    pa.int8(): [-7],
    pa.uint64(): [2**64 - 1, 1],
    pa.float32(): [0.1],
    pa.date32(): [NOON.date()],
    pa.binary(): [b"\xff", b"7"],
    pa.list_(pa.int64()): [[1]],
    pa.decimal256(50, 2): [Decimal("1.5"), Decimal(10**45)],
    pa.struct([("a", pa.int64())]): [{"a": 1}],
    pa.timestamp("ns"): [10**18 + 1],
    pa.timestamp("s", "CET"): [2**50, 0],
}


@given(ANY_TYPE, st.sampled_from([*TARGETS, "uuid"]))
def test_a_column_of_any_arrow_type_is_either_converted_or_lost(source: pa.DataType, target: str) -> None:
    values = [*ANY_VALUE.get(source, []), None]
    array = pa.array(values, source)
    fitted = fit(array, parse_cast(target))
    fitted.array.validate(full=True)
    lost = fitted.lost.to_pylist() if fitted.lost is not None else [False] * len(values)
    assert fitted.array.is_valid().to_pylist() == [
        value is not None and not gone for value, gone in zip(values, lost, strict=True)
    ]
    assert all(json.loads(text) != "" for text in json_values(array, array.is_valid()).to_pylist())


def test_moments_that_have_no_year_of_four_digits_are_kept() -> None:
    array = pa.array([2**62, -(2**62), 0], pa.int64()).view(MICROS)
    assert fit(array, Cast("text", parse_cast("text").type)).array.to_pylist() == [
        str(2**62),
        str(-(2**62)),
        "1970-01-01T00:00:00.000000Z",
    ]
