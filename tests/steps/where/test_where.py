"""``where`` lets pass what its condition is true for, by SQL's rules over JSON's types."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.where.config import WhereConfig
from penstock.steps.where.step import Where
from penstock.testing.step import DOCUMENTS, StepContract, batch_of, kept


class TestWhere(StepContract):
    name = "where"
    configs: ClassVar[list[Any]] = [
        "price > 10 and user.name in ('DE', 'FR')",
        {"condition": "a = b or a <=> c or not id is null"},
        "a + b * 2 > -price / id or length(name) % 2 = 1",
        "lower(concat(a, b)) like '%x%' or substring(name, -2, 1) rlike '[a-z]' or contains(user, '1')",
        "case when a then b when c = 1 then false else cast(name as boolean) end",
        "cast(a as int) = 1 or cast(b as double) between 1 and 2 or round(abs(price), 1) = id",
        "true",
    ]


def passes(condition: str, data: bytes) -> bool:
    outcome = Where(WhereConfig.model_validate(condition)).apply(batch_of(data))
    assert outcome.failures.num_rows == 0
    return outcome.kept.num_rows == 1


CASES: list[tuple[str, bytes, bool]] = [
    # numbers as numbers, whatever their spelling
    ("a = 1", b'{"a":1}', True),
    ("a = 1", b'{"a":1.0}', True),
    ("a = 1", b'{"a":1e0}', True),
    ("a = 1.50", b'{"a":1.5}', True),
    ("a == 100", b'{"a":0.1E3}', True),
    ("a > 10", b'{"a":9}', False),
    ("a > 10", b'{"a":10.000001}', True),
    ("a < 0", b'{"a":-0.5}', True),
    ("a = 9007199254740993", b'{"a":9007199254740993}', True),
    ("a = 9007199254740993", b'{"a":9007199254740992}', False),
    ("a = 9223372036854775807", b'{"a":9223372036854775807}', True),
    ("a > 9223372036854775807", b'{"a":12345678901234567890123}', True),
    ("a = 0.1", b'{"a":0.1000000000000000055511151231257827}', False),
    ("a > 0.1", b'{"a":0.1000000000000000055511151231257827}', True),
    ("a = 0.10", b'{"a":10e-2}', True),
    ("a > 9223372036854775807", b'{"a":9223372036854775808}', True),
    ("a = -9223372036854775808", b'{"a":-9223372036854775808}', True),
    ("a = 9007199254740992", b'{"a":9007199254740993.0}', False),
    ("a in (9007199254740992, 9007199254740993)", b'{"a":9007199254740993.0}', True),
    ("a = 123456789012345678901234567890", b'{"a":123456789012345678901234567891}', False),
    ("a < 123456789012345678901234567890", b'{"a":-123456789012345678901234567891}', True),
    ("a = 1000000000000000000000000000000", b'{"a":1e30}', True),
    ("a is null", b'{"a":1e400}', False),
    ("a = 1e400 and a < 2e400 and a > 1e308 and a >= b", b'{"a":1e400,"b":10e399}', True),
    ("a = -1e400", b'{"a":1e400}', False),
    ("a > 0", b'{"a":1e-400}', True),
    ("a = 0 and a = b and a = -0.0", b'{"a":-0,"b":0e9}', True),
    ("a = 0.3", b'{"a":0.30000000000000004}', False),
    ("a + b = 0.3", b'{"a":0.1,"b":0.2}', True),
    ("a + b = 0.30000000000000004", b'{"a":0.1,"b":0.2}', False),
    ("a + 0.2 = b", b'{"a":0.1,"b":0.3000000000000000444}', False),
    ("a / 3 = b", b'{"a":1,"b":0.3333333333333333148}', True),
    ("a = 9007199254740992", b'{"a":"9007199254740993.0"}', False),
    ("a = b", b'{"a":true,"b":1.00000000000000000001}', False),
    ("coalesce(c, a) = 9007199254740993.0", b'{"a":9007199254740993}', True),
    ("if(true, 1e400, a) = b", b'{"a":1,"b":2e400}', False),
    ("a + 0 is null and abs(a) is null and cast(a as double) is null and cast(a as bigint) is null",
     b'{"a":1e400}', True),
    ("a <> b", b'{"a":1,"b":1.0}', False),
    ("a != b", b'{"a":1,"b":2}', True),
    # text
    ("s = 'x'", b'{"s":"x"}', True),
    ('s = "x"', b'{"s":"x"}', True),
    ("s = 'é\"'", b'{"s":"\\u00e9\\""}', True),
    ("s < 'b'", b'{"s":"a"}', True),
    ("s >= 'b'", b'{"s":"a"}', False),
    ("s = 'it''s'", b'{"s":"its"}', True),
    # text with a number, a boolean with either
    ("s = 12", b'{"s":" 12 "}', True),
    ("s > 1.5", b'{"s":"1.6"}', True),
    ("s <> 12", b'{"s":"twelve"}', False),
    ("a = '1'", b'{"a":1.0}', True),
    ("a = true", b'{"a":"yes"}', True),
    ("a = 1", b'{"a":true}', True),
    ("a", b'{"a":true}', True),
    ("a", b'{"a":1}', False),
    ("a", b'{"a":"true"}', True),
    # null and missing
    ("a = 1", b"{}", False),
    ("not a = 1", b"{}", False),
    ("a is null", b"{}", True),
    ("a is null", b'{"a":null}', True),
    ("a is not null", b'{"a":{}}', True),
    ("a <=> null", b"{}", True),
    ("a <=> 1", b"{}", False),
    ("a = 1 or true", b"{}", True),
    ("a = 1 and false or b = 2", b'{"b":2}', True),
    ("not (a = 1 and false)", b"{}", True),
    ("a is true", b'{"a":true}', True),
    ("a is not true", b"{}", True),
    ("a in (1, null)", b'{"a":1}', True),
    ("a not in (1, null)", b'{"a":2}', False),
    # sets and ranges
    ("c in ('DE', 'FR')", b'{"c":"FR"}', True),
    ("c in ('DE', 'FR')", b'{"c":"US"}', False),
    ("c not in ('DE', 'FR')", b'{"c":"US"}', True),
    ("a in (1, 2)", b'{"a":2.0}', True),
    ("a in ('1', '2')", b'{"a":2}', True),
    ("a between 1 and 2", b'{"a":2}', True),
    ("a not between 1 and 2", b'{"a":2.1}', True),
    # paths
    ("user.age >= 18", b'{"user":{"age":18}}', True),
    ("user['age'] >= 18", b'{"user":{"age":18}}', True),
    ("a.b.c.d.e.f = 1", b'{"a":{"b":{"c":{"d":{"e":{"f":1}}}}}}', True),
    ("`a.b` = 1", b'{"a.b":1}', True),
    ("`order` = 1 and `first name` = 'x'", b'{"order":1,"first name":"x"}', True),
    ("User = 1", b'{"user":1}', False),
    ("a.b = 1", b'{"a":[{"b":1}]}', False),
    ("a = 2", b'{"a":1,"a":2}', True),
    # the record
    ("record.namespace = 'shop'", b"{}", True),
    ("record.op = 'insert' and record.mode = 'sync'", b"{}", True),
    ("record.headers.token = 'site'", b"{}", True),
    ("record.headers.missing is null and record.key is null", b"{}", True),
    ("record.partition = 3 and record.offset = 100", b"{}", True),
    ("record.timestamp rlike '^20[0-9]{2}-.*T.*Z$'", b"{}", True),
    ("`record`.op = 1", b'{"record":{"op":1}}', True),
    # arithmetic
    ("a + b * 2 - 1 = 6", b'{"a":3,"b":2}', True),
    ("a / 2 = 1.5", b'{"a":3}', True),
    ("a / 0 is null and a % 0 is null", b'{"a":3}', True),
    ("-a % 3 = -1", b'{"a":7}', True),
    ("a % 1 = 0.5", b'{"a":7.5}', True),
    ("-a < 0", b'{"a":7}', True),
    ("a + 1 = 9223372036854775808", b'{"a":9223372036854775807}', True),
    ("a * 2 > 9223372036854775807", b'{"a":9223372036854775807}', True),
    ("a * a is null", b'{"a":1e200}', True),
    ("a + 1 = 8", b'{"a":"7"}', True),
    ("a + 1 is null", b'{"a":true}', True),
    ("a / b is null", b'{"a":1,"b":0e-400}', True),
    ("a + 1 is null", b'{"a":1e-99999999999999999999}', True),
    ("cast(a as boolean)", b'{"a":1e-400}', True),
    ("cast(a as int) = 0 and cast(b as bigint) is null and cast(c as int) = 0",
     b'{"a":1e-99999999999999999999,"b":-1e99999999999999999999,"c":0e99999999999999999999}', True),
    # functions
    ("lower(s) = 'äb' and upper(s) = 'ÄB'", '{"s":"Äb"}'.encode(), True),
    ("length(s) = 2", '{"s":"é😀"}'.encode(), True),
    ("length(a) = 4", b'{"a":2.50}', True),
    ("trim(s) = 'x' and ltrim(s) = 'x ' and rtrim(s) = ' x'", b'{"s":" x "}', True),
    ("concat(s, 1, true) = 'x1true'", b'{"s":"x"}', True),
    ("concat(s, t) is null", b'{"s":"x"}', True),
    ("s || '!' = 'x!'", b'{"s":"x"}', True),
    ("coalesce(a, b, 3) = 3", b'{"a":null}', True),
    ("nvl(a, 3) = 1", b'{"a":1}', True),
    ("substring(s, 2, 3) = 'bcd'", b'{"s":"abcdef"}', True),
    ("substring(s, 5) = 'ef'", b'{"s":"abcdef"}', True),
    ("substring(s, -2) = 'ef'", b'{"s":"abcdef"}', True),
    ("substring(s, -3, 2) = 'de'", b'{"s":"abcdef"}', True),
    ("substring(s, -5, 3) = 'a'", b'{"s":"abc"}', True),
    ("substring(s, 0, 2) = 'ab'", b'{"s":"abc"}', True),
    ("substring(s, 2, 0) = ''", b'{"s":"abc"}', True),
    ("abs(a) = 2.5", b'{"a":-2.5}', True),
    ("round(a) = 3 and round(-a) = -3", b'{"a":2.5}', True),
    ("round(a, 2) = 1.01", b'{"a":1.005}', True),
    ("round(a, 1) = 0.1", b'{"a":0.05}', True),
    ("round(a, -2) = 1300", b'{"a":1250}', True),
    ("round(a, 15) = 123456789.125", b'{"a":123456789.125}', True),
    ("startswith(s, 'ab') and endswith(s, 'bc') and contains(s, 'b')", b'{"s":"abc"}', True),
    ("s like 'a%c' and s like 'a__' and not s like 'a_'", b'{"s":"abc"}', True),
    ("s like 'a\\\\_%'", b'{"s":"axc"}', False),
    ("s like 'a%'", b'{"s":"a\\nb"}', True),
    ("s rlike 'b+' and s not rlike '^b'", b'{"s":"abbc"}', True),
    ("o like '%2.50%'", b'{"o":{"k":[2.50]}}', True),
    ("if(a > 1, 'x', 'y') = 'y'", b"{}", True),
    ("case a when 1 then 'one' when 2 then 'two' end = 'two'", b'{"a":2}', True),
    ("case when a = 1 then 'one' end is null", b'{"a":2}', True),
    ("case when a = 1 then true else false end", b'{"a":1}', True),
    ("cast(s as int) = 12 and s::bigint = 12", b'{"s":"12.9"}', True),
    ("cast(a as int) = -1", b'{"a":-1.9}', True),
    ("cast(a as tinyint) is null and cast(a as smallint) = 128", b'{"a":128}', True),
    ("cast(a as bigint) is null", b'{"a":1e19}', True),
    ("cast(a as bigint) = 12345678901234567", b'{"a":12345678901234567.89}', True),
    ("cast(a as bigint) = 9223372036854775807", b'{"a":"9223372036854775807"}', True),
    ("cast(a as bigint) is null", b'{"a":"1e999999999"}', True),
    ("cast(s as double) is null", b'{"s":"1.5x"}', True),
    ("cast(a as boolean) and not cast(b as boolean)", b'{"a":2,"b":"no"}', True),
    ("cast(a as string) = '1.0'", b'{"a":1.0}', True),
    ("a + 0 = 10L", b'{"a":10}', True),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "data", "expected"), CASES)
def test_a_record_passes_when_the_condition_is_true(condition: str, data: bytes, expected: bool) -> None:
    assert passes(condition, data) is expected


def test_the_others_are_skipped_and_those_that_pass_keep_every_byte() -> None:
    passing = b' { "price" : 12.50 , "n" : 12345678901234567890123 } '
    outcome = Where(WhereConfig.model_validate("price > 10")).apply(batch_of(b'{"price":1}', passing, b"{}", passing))
    assert kept(outcome) == [passing, passing]
    assert outcome.skipped == 2


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "empty"),
        ("5", "5 is a value, not a condition"),
        ("'x'", "'x' is a value, not a condition"),
        ("null", "null is a value, not a condition"),
        ("a >", "cannot be read near '>' \\(character 3\\)"),
        ("a = 'x", "never closed"),
        ("(a = 1", "cannot be read"),
        ("a = 1 and select = 2", "near 'select' \\(character 11\\).*backticks"),
        ("a = 1; drop table b", "near 'drop'"),
        ("a = 1 or foo(b)", "FOO\\(b\\)' \\(character 10\\) is not supported"),
        ("date_add(a, 1) > b", "DATE_ADD.*is not supported"),
        ("count(*) > 1", "COUNT.*is not supported"),
        ("a in (select 1)", "give a list of values"),
        ("a[0] = 1", "by name"),
        ("a & 1 = 1", "is not supported"),
        ("cast(a as date) = 1", "cast to one of"),
        ("a rlike '(?=x)'", "not a regular expression"),
        ("a like b", "'b' \\(character 8\\) must be a plain text"),
        ("substring(a, b) = 'x'", "must be a plain number"),
        ("round(a, 99) = 1", "at most 15"),
        ("record.foo = 1", "no field of the record. Known: record.namespace"),
        ("trim(both 'x' from a) = ''", "spaces only"),
        ("a between symmetric 2 and 1", "without symmetric"),
        ("a = current_date", "CURRENT_DATE"),
    ],
)
def test_what_is_not_covered_is_refused_by_name_and_place(condition: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WhereConfig.model_validate(condition)


COMPARISONS = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}


def as_sql_compares(symbol: str, left: Any, right: Any) -> bool:
    """Whether two values of the same type compare so; nothing is true of null or of a missing field."""
    if left is None or right is None:
        return False
    return bool(getattr(left, COMPARISONS[symbol])(right))


def passing(condition: str, data: list[bytes]) -> list[bool]:
    """Of a batch, which records pass."""
    offsets = Where(WhereConfig.model_validate(condition)).apply(batch_of(*data)).kept.column("offset").to_pylist()
    return [100 + row in offsets for row in range(len(data))]


SPELLINGS = [
    "0", "-0", "0.0", "0e400", "1e-400", "5e-324", "1", "1.0", "1e0", "10e-1", "0.3", "0.30000000000000004",
    "0.300000000000000044", "9007199254740992", "9007199254740993", "9007199254740993.0", "9223372036854775807",
    "9223372036854775808", "9.223372036854775808e18", "-9223372036854775808", "-9223372036854775809", "1e30",
    "1000000000000000000000000000000", "1000000000000000000000000000001", "1e400", "10e399", "-1e400", "1.5e400",
]  # fmt: skip
NUMBERS = (
    st.sampled_from(SPELLINGS)
    | (st.integers() | st.floats(allow_nan=False, allow_infinity=False)).map(json.dumps)
    | st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)


def beside(text: str) -> st.SearchStrategy[str]:
    """The number in another spelling, and numbers so near that their doubles may be the same."""
    number = Decimal(text)
    digits, exponent = number.as_tuple().digits, int(number.as_tuple().exponent)
    near = [Decimal((number.as_tuple().sign, (*digits, *([0] * 20), last), exponent - 21)) for last in (0, 1)]
    return st.sampled_from([f"{each:e}" for each in near] + [repr(float(text)).replace("inf", "1e309")])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(COMPARISONS)), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1), st.data())
def test_numbers_compare_as_numbers(symbol: str, pairs: list[tuple[str, str]], drawn: st.DataObject) -> None:
    pairs = [*pairs, *((one, drawn.draw(beside(one))) for one, _ in pairs)]
    expected = [as_sql_compares(symbol, Decimal(left), Decimal(right)) for left, right in pairs]
    assert passing(f"a {symbol} b", [f'{{"a":{a},"b":{b}}}'.encode() for a, b in pairs]) == expected
    assert passing(f"a {symbol} b", [f'{{"a":"{a}","b":{b}}}'.encode() for a, b in pairs]) == expected
    (a, b), by_literal = pairs[-1], expected[-1]
    assert passing(f"a {symbol} {b}", [f'{{"a":{a}}}'.encode(), b"{}"]) == [by_literal, False]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(COMPARISONS)), st.lists(st.tuples(st.text(), st.text()), min_size=1), st.booleans())
def test_text_compares_by_its_bytes(symbol: str, pairs: list[tuple[str, str]], ascii_only: bool) -> None:
    expected = [as_sql_compares(symbol, left.encode(), right.encode()) for left, right in pairs]
    data = [json.dumps({"a": a, "b": b}, ensure_ascii=ascii_only).encode() for a, b in pairs]
    assert passing(f"a {symbol} b", data) == expected


TERMS = ["a", "not b", "a is null", "user is not null", "c <=> id"]


@settings(max_examples=40, deadline=None)
@given(st.lists(DOCUMENTS, min_size=1, max_size=8), st.sampled_from(TERMS), st.sampled_from(TERMS))
def test_and_or_not_agree_with_their_parts(data: list[bytes], one: str, other: str) -> None:
    left, right = passing(one, data), passing(other, data)
    both, either = passing(f"({one}) and ({other})", data), passing(f"({one}) or ({other})", data)
    assert both == [a and b for a, b in zip(left, right, strict=True)]
    assert either == [a or b for a, b in zip(left, right, strict=True)]
    negated = passing(f"not ({one})", data)
    assert not any(a and b for a, b in zip(left, negated, strict=True))
