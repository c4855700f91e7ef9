"""What expressions compute is what Python's decimals say, to the last digit, or null: never another number."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.steps.set.config import SetConfig
from penstock.steps.set.step import Set
from penstock.steps.sql.config import SqlConfig
from penstock.steps.sql.step import Sql
from penstock.testing.step import batch_of, kept

LARGEST, SMALLEST = 2**63 - 1, -(2**63)
PAPER = decimal.Context(prec=5_000, rounding=decimal.ROUND_HALF_UP)


def values(expressions: Mapping[str, str], *data: str) -> list[dict[str, Any]]:
    """Per record the value of each expression, numbers as decimals."""
    outcome = Set(SetConfig.model_validate({"fields": expressions})).apply(batch_of(*(each.encode() for each in data)))
    assert outcome.failures.num_rows == 0
    return [json.loads(each, parse_float=Decimal, parse_int=Decimal) for each in kept(outcome)]


def value(expression: str, data: str = "{}") -> Any:
    return values({"result": expression}, data)[0]["result"]


EDGES: list[tuple[str, str, str | None]] = [
    ("a + 1", str(LARGEST), str(LARGEST + 1)),
    ("a - 1", str(SMALLEST), str(SMALLEST - 1)),
    ("-a", str(SMALLEST), str(-SMALLEST)),
    ("abs(a)", str(SMALLEST), str(-SMALLEST)),
    ("a * -1", str(SMALLEST), str(-SMALLEST)),
    ("a * a", str(LARGEST), str(LARGEST**2)),
    ("a % 10", "12345678901234567891", "1"),
    ("a % -1", str(SMALLEST), "0"),
    ("a / 1", str(LARGEST), str(LARGEST)),
    ("a / 10", "12345678901234567.89", "1234567890123456.789"),
    ("a - 12345678901234567890122", "12345678901234567890123", "1"),
    ("a + 0.5", "9007199254740993", "9007199254740993.5"),
    ("a * 3", "0.1", "0.3"),
    ("a / 0.1", "0.3", "3"),
    ("a % 0.1", "0.3", "0"),
    ("round(a, -1)", str(LARGEST), "9223372036854775810"),
    ("round(a, -1)", str(SMALLEST), "-9223372036854775810"),
    ("round(a, -1)", "123456789012345674", "123456789012345670"),
    ("round(a, -15)", "500000000000000", "1000000000000000"),
    ("round(a, -15)", "499999999999999", "0"),
    ("round(a, 1)", "-12345678901234567.89", "-12345678901234567.9"),
    ("round(a)", "12345678901234567890.5", "12345678901234567891"),
    ("round(a, -2)", "12345678901234567890150", "12345678901234567890200"),
    ("round(a, 15)", "0.12345678901234567890", "0.123456789012346"),
    ("round(a, 2)", "0.00000000000000000000000000000000000000049", "0"),
    ("round(a / 3, 2) * 100", "1", "33"),
    ("abs(a)", "-12345678901234567.89", "12345678901234567.89"),
    ("abs(a)", "-12345678901234567890", "12345678901234567890"),
    ("-a", "1e-400", "-1e-400"),
    ("-a", "1e400", None),
    ("a * 10", "1e308", None),
    ("a * 1", "1e-2000", "1e-2000"),
    ("a + 1", "1e-2000", None),
    ("abs(a) + 1", '"-9223372036854775807"', "9223372036854775808"),
    ("a * 2", '" +12345678901234567.89 "', "24691357802469135.78"),
]


@pytest.mark.parametrize(("expression", "a", "expected"), EDGES)
def test_a_number_that_no_double_holds_stays_that_number(expression: str, a: str, expected: str | None) -> None:
    assert value(expression, f'{{"a":{a}}}') == (None if expected is None else Decimal(expected))
    query = Sql(SqlConfig.model_validate(f"select {expression} as result"))
    (made,) = kept(query.apply(batch_of(f'{{"a":{a}}}'.encode())))
    assert json.loads(made, parse_float=Decimal, parse_int=Decimal)["result"] == (expected and Decimal(expected))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("9223372036854775807 + 1", "9223372036854775808"),
        ("-(-9223372036854775808)", "9223372036854775808"),
        ("abs(-9223372036854775808)", "9223372036854775808"),
        ("-(-12345678901234567890.5)", "12345678901234567890.5"),
        ("round(12345678901234567890.5)", "12345678901234567891"),
    ],
)
def test_so_does_one_that_stands_in_the_expression(expression: str, expected: str) -> None:
    assert value(expression) == Decimal(expected)


def test_integers_stay_integers_and_decimals_keep_their_point() -> None:
    written = kept(Set(SetConfig.model_validate({"b": "a + 1", "c": "a + 0.5 + 0.5", "d": "a / 1"})).apply(
        batch_of(b'{"a":9223372036854775807}')
    ))  # fmt: skip
    assert written == [
        b'{"a":9223372036854775807,"b":9223372036854775808,"c":9223372036854775808.0,"d":9223372036854775807.0}'
    ]


WRITTEN = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,39})", fullmatch=True),
    st.from_regex(r"-?(0|[1-9][0-9]{0,19})\.[0-9]{1,20}", fullmatch=True),
    st.from_regex(r"-?(0|[1-9][0-9]{0,5})\.[0-9]{1,4}", fullmatch=True),
    st.from_regex(r"-?[1-9](\.[0-9]{1,8})?[eE][+-]?[0-9]{1,2}", fullmatch=True),
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from([2**53, 2**63, 10**15, 10**18]).flatmap(
        lambda edge: st.sampled_from([str(sign * edge + by) for sign in (1, -1) for by in (-1, 0, 1)])
    ),
)


def rounded(digits: int) -> Callable[[Decimal], Decimal]:
    return lambda number: number.quantize(Decimal((0, (1,), -digits)), context=PAPER)


BINARY: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "a + b": PAPER.add,
    "a - b": PAPER.subtract,
    "a * b": PAPER.multiply,
    "a % b": PAPER.remainder,
}
UNARY: dict[str, Callable[[Decimal], Decimal]] = {
    "-a": PAPER.copy_negate,
    "abs(a)": PAPER.copy_abs,
    **{f"round(a, {digits})": rounded(digits) for digits in (-15, -3, -1, 0, 1, 2, 7, 15)},
}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(WRITTEN, WRITTEN, st.booleans()), min_size=1, max_size=12))
def test_what_is_computed_is_what_comes_out_on_paper(pairs: list[tuple[str, str, bool]]) -> None:
    expressions = {**dict.fromkeys(BINARY, ""), **dict.fromkeys(UNARY, "")}
    names = {f"r{place}": expression for place, expression in enumerate(expressions)}
    data = [f'{{"a":"{a}","b":{b}}}' if as_text else f'{{"a":{a},"b":{b}}}' for a, b, as_text in pairs]
    for (a, b, _), made in zip(pairs, values(names, *data), strict=True):
        x, y = Decimal(a), Decimal(b)
        for name, expression in names.items():
            if expression in UNARY:
                expected: Decimal | None = UNARY[expression](x)
            else:
                expected = None if expression == "a % b" and not y else BINARY[expression](x, y)
            assert made[name] == expected, (expression, a, b)


@settings(max_examples=150, deadline=None)
@example([("9007199254740993", "9223372036854775808"), ("9007199254740995", "9223372036854775808")])
@given(st.lists(st.tuples(WRITTEN, WRITTEN), min_size=1, max_size=12))
def test_a_quotient_is_exact_or_the_nearest_double(pairs: list[tuple[str, str]]) -> None:
    data = [f'{{"a":{a},"b":{b}}}' for a, b in pairs]
    for (a, b), made in zip(pairs, values({"r": "a / b"}, *data), strict=True):
        x, y = Decimal(a), Decimal(b)
        if not y:
            assert made["r"] is None
            continue
        quotient = PAPER.divide(x, y)
        assert PAPER.multiply(made["r"], y) == x or made["r"] == Decimal(repr(float(quotient))), (a, b)
