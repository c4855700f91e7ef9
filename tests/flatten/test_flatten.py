"""What a user sees of flattening: columns, types, values, and where the rest went."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flatten import Collision, Column, Flattened, flatten, flatten_pieces
from penstock.flatten.fit_column import plain_text
from penstock.flatten.inner_types import InnerType, promote
from penstock.flatten.values.to_json import as_text

B, I, F, S, T = InnerType.BOOL, InnerType.INT64, InnerType.FLOAT64, InnerType.STRING, InnerType.TIMESTAMP  # noqa: E741


def of(*documents: str, **options: object) -> Flattened:
    return flatten(pa.array(documents, pa.string()), **options)  # type: ignore[arg-type]


def types(found: Flattened) -> dict[str, InnerType]:
    return {column.name: column.type for column in found.columns}


CASES = [
    ("nested keys are joined", ['{"a":{"b":{"c":1}},"d":"x"}'], {"a_b_c": (I, [1]), "d": (S, ["x"])}),
    ("an array is its JSON text", ['{"a":[1,2.50,"x",null]}'], {"a": (S, ['[1,2.50,"x",null]'])}),
    (
        "an array loses only whitespace",
        ['{"a": [ 1 ,\\n {"k k" : "v  \\\\" v"}, [ ] ]}'.replace("\\n", "\n").replace('\\\\"', '\\"')],
        {"a": (S, ['[1,{"k k":"v  \\" v"},[]]'])},
    ),
    ("int and float", ['{"a":1}', '{"a":1.5}'], {"a": (F, [1.0, 1.5])}),
    ("bool and int", ['{"a":true}', '{"a":7}', '{"a":false}'], {"a": (I, [1, 7, 0])}),
    ("bool and float", ['{"a":true}', '{"a":0.5}'], {"a": (F, [1.0, 0.5])}),
    (
        "anything and text",
        ['{"a":true}', '{"a":1.50}', '{"a":"x"}', '{"a":[1]}', '{"a":-0}'],
        {"a": (S, ["true", "1.50", "x", "[1]", "-0"])},
    ),
    (
        "missing is null",
        ['{"a":1}', '{"b":true}', '{"c":"x","a":2}'],
        {"a": (I, [1, None, 2]), "b": (B, [None, True, None]), "c": (S, [None, None, "x"])},
    ),
    ("nulls and empty objects vanish", ['{"a":null,"b":{},"c":{"d":{}},"e":1}'], {"e": (I, [1])}),
    ("null tells nothing of order", ['{"a":null,"b":1}', '{"a":1}'], {"b": (I, [1, None]), "a": (I, [None, 1])}),
    (
        "names are cleaned",
        ['{"UserID":1,"a.b-c d/e":2,"":3,"\\u0130x":4}'],
        {"userid": (I, [1]), "a_b_c_d_e": (I, [2]), "_unnamed": (I, [3]), "ix": (I, [4])},
    ),
    ("an escaped key is the key", ['{"\\u0061":1}', '{"a":2}'], {"a": (I, [1, 2])}),
    (
        "the largest integers",
        ['{"a":9223372036854775807}', '{"a":-9223372036854775808}'],
        {"a": (I, [2**63 - 1, -(2**63)])},
    ),
    (
        "an integer beyond 64 bits is kept as text",
        ['{"a":9223372036854775808}', '{"a":1}'],
        {"a": (S, ["9223372036854775808", "1"])},
    ),
    ("a huge integer is kept as text", ['{"a":' + "9" * 400 + "}"], {"a": (S, ["9" * 400])}),
    (
        "a huge integer among floats",
        ['{"a":9223372036854775808}', '{"a":1.5}'],
        {"a": (S, ["9223372036854775808", "1.5"])},
    ),
    ("a float beyond doubles is kept as text", ['{"a":1e400}', '{"a":1.5}'], {"a": (S, ["1e400", "1.5"])}),
    (
        "an integer is not rounded by a float beside it",
        ['{"a":9007199254740993}', '{"a":1.5}'],
        {"a": (S, ["9007199254740993", "1.5"])},
    ),
    (
        "an even one is whole in a double",
        ['{"a":9007199254740994}', '{"a":1.5}'],
        {"a": (F, [9007199254740994.0, 1.5])},
    ),
    (
        "a double gives back the digits that it is said with",
        ['{"a":0.1}', '{"a":1.7976931348623157e308}', '{"a":5e-324}', '{"a":2.2250738585072014e-308}', '{"a":8.5e23}'],
        {"a": (F, [0.1, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 8.5e23])},
    ),
    (
        "a number with more digits than a double keeps is text",
        ['{"a":0.1000000000000000055511151231257827}', '{"a":1.5}'],
        {"a": (S, ["0.1000000000000000055511151231257827", "1.5"])},
    ),
    (
        "every escape is resolved",
        ['{"a":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00"}'],
        {"a": (S, ['"\\/\b\f\n\r\té😀'])},
    ),
    ("NUL is a character", ['{"a":"x\\u0000y"}'], {"a": (S, ["x\0y"])}),
    (
        "a lone surrogate stays as its escape",
        ['{"a":"x\\ud800y","b":"\\udc00\\ud800"}'],
        {"a": (S, ["x\\ud800y"]), "b": (S, ["\\udc00\\ud800"])},
    ),
    ("an empty string is a value", ['{"a":""}'], {"a": (S, [""])}),
    ("timestamps are not guessed", ['{"a":"2026-11-15T08:05:26Z"}'], {"a": (S, ["2026-11-15T08:05:26Z"])}),
    (
        "the two known timestamps",
        ['{"_timestamp":"2026-11-15T08:05:26.5Z","eventn_ctx":{"utc_time":"2026-11-15T09:05:26+01:00"}}'],
        {
            "_timestamp": (T, [datetime(2026, 11, 15, 8, 5, 26, 500_000, UTC)]),
            "eventn_ctx_utc_time": (T, [datetime(2026, 11, 15, 8, 5, 26, 0, UTC)]),
        },
    ),
]


@pytest.mark.parametrize(("documents", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_documents_become_columns(documents: list[str], expected: dict[str, tuple[InnerType, list[object]]]) -> None:
    found = of(*documents)
    assert found.table.to_pydict() == {name: values for name, (_, values) in expected.items()}
    assert types(found) == {name: inner for name, (inner, _) in expected.items()}
    found.table.validate(full=True)


@pytest.mark.parametrize(
    ("texts", "inner"),
    [
        (["2026-11-15T08:05:26Z", "2026-11-15T08:05:26.123456+02:00", "2026-11-15T08:05:26"], T),
        (["2026-11-15T08:05:26Z", "x"], S),
        (["2026-11-15 08:05:26Z"], S),
        (["2026-11-15"], S),
        (["2026-02-30T00:00:00Z"], S),
        (["2026-11-15T08:05:26\\u005a"], S),
    ],
)
def test_timestamps_are_inferred_when_asked(texts: list[str], inner: InnerType) -> None:
    found = of(*(f'{{"a":"{text}"}}' for text in texts), infer_timestamps=True)
    assert types(found) == {"a": inner}


def test_a_timestamp_and_a_number_meet_as_text() -> None:
    found = of('{"a":"2026-11-15T08:05:26Z"}', '{"a":7}', infer_timestamps=True)
    assert found.table.to_pydict() == {"a": ["2026-11-15T08:05:26Z", "7"]}


@pytest.mark.parametrize(
    ("document", "kept", "lost"),
    [
        ('{"a_b":1,"a":{"b":2}}', {"a_b": 1}, '{"/a/b":2}'),
        ('{"a":{"b":2},"a_b":1}', {"a_b": 2}, '{"/a_b":1}'),
        ('{"A":1,"a":"\\u00e9"}', {"a": 1}, '{"/a":"\\u00e9"}'),
        ('{"A":1,"a":2,"á":3,"à":[ 4 ]}', {"a": 1, "_": 3}, '{"/a":2,"/à":[4]}'),
        ('{"x":1,"_unmapped":{"y":1},"_UNMAPPED":2}', {"x": 1, "_unmapped_y": 1}, '{"/_UNMAPPED":2}'),
    ],
)
def test_the_first_path_keeps_a_name_and_the_other_goes_to_unmapped(
    document: str, kept: dict[str, object], lost: str
) -> None:
    found = of('{"z":0}', document)
    assert found.table.drop_columns("z").to_pylist() == [
        dict.fromkeys([*kept, "_unmapped"]),
        {**kept, "_unmapped": lost},
    ]
    assert found.columns[-1] == Column("_unmapped", (), S)
    assert sum(collision.values for collision in found.collisions) == len(json.loads(lost))


def test_a_collision_names_both_paths() -> None:
    found = of('{"A":1,"a":2}', '{"a":3}', '{"A":1,"a":4,"á":1,"à":2}', '{"a":5,"A":6}')
    assert found.collisions == (
        Collision("a", "/A", "/a", 1),
        Collision("a", "/a", "/A", 2),
        Collision("_", "/à", "/á", 1),
    )


@pytest.mark.parametrize(
    ("documents", "cells", "paths"),
    [
        (['{"A":1}', '{"a":2}'], {"a": [1, 2]}, {"a": ("/A", "/a")}),
        (['{"a_b":1}', '{"a":{"b":2}}'], {"a_b": [1, 2]}, {"a_b": ("/a_b", "/a/b")}),
        (['{"A":1}', '{"a":"x"}', '{"A":2.5}'], {"a": ["1", "x", "2.5"]}, {"a": ("/A", "/a")}),
        (
            ['{"a":1,"A":2}', '{"A":3}', '{"A":4,"a":5}'],
            {"a": [1, 3, 4], "_unmapped": ['{"/A":2}', None, '{"/a":5}']},
            {"a": ("/a", "/A"), "_unmapped": ()},
        ),
        (
            ['{"a":1,"A":2}', '{"a":3}'],
            {"a": [1, 3], "_unmapped": ['{"/A":2}', None]},
            {"a": ("/a",), "_unmapped": ()},
        ),
    ],
)
def test_paths_that_meet_only_in_different_documents_share_a_column(
    documents: list[str], cells: dict[str, list[object]], paths: dict[str, tuple[str, ...]]
) -> None:
    found = of(*documents)
    assert found.table.to_pydict() == cells
    assert {column.name: column.paths for column in found.columns} == paths
    found.table.validate(full=True)


def test_the_first_path_with_a_cast_decides_for_a_shared_column() -> None:
    found = of('{"A":"1"}', '{"a":"2"}', '{"á":0,"à":"x"}', casts={"/a": "bigint", "/A": "text", "/à": "bigint"})
    assert found.columns[0] == Column("a", ("/A", "/a"), S, "text")
    found = of('{"a":"1"}', '{"b":0,"A":"x"}', casts={"/A": "bigint"})
    assert found.columns[0] == Column("a", ("/a", "/A"), I, "bigint")
    assert found.table.to_pydict() == {"a": [1, None], "b": [None, 0], "_unmapped": [None, '{"a":"x"}']}


MOMENT = datetime(2026, 11, 15, 8, 5, 26, 0, UTC)


@pytest.mark.parametrize(
    ("sql_type", "inner", "arrow", "taken", "refused"),
    [
        (
            "bigint",
            I,
            pa.int64(),
            {
                "7": 7,
                '"7"': 7,
                "9.0": 9,
                "1e3": 1000,
                "true": 1,
                '"-12"': -12,
                '"1.50e1"': 15,
                "9223372036854775807": 2**63 - 1,
                "-9223372036854775808": -(2**63),
                "0e999999999999": 0,
            },
            [
                '"x"',
                "9.5",
                '""',
                "[1]",
                "9223372036854775808",
                "-9223372036854775809",
                '" 7"',
                "1e400",
                '"0x1"',
                "1e-1",
            ],
        ),
        ("INTEGER", I, pa.int64(), {"2147483647": 2**31 - 1, "-2147483648": -(2**31)}, ["2147483648", "-2147483649"]),
        ("smallint", I, pa.int64(), {"-32768": -32768}, ["32768"]),
        (
            "double precision",
            F,
            pa.float64(),
            {
                "1": 1.0,
                '"1.5"': 1.5,
                "true": 1.0,
                "9007199254740992": 9007199254740992.0,
                "false": 0.0,
                "100000000000000000000000000000": 1e29,
                '"1.7976931348623157e308"': 1.7976931348623157e308,
            },
            ['"x"', "1e400", "[1]", '"NaN"', '"1."', "9007199254740993", '"0.12345678901234567891"', "1e-400"],
        ),
        (
            "numeric(12,2)",
            F,
            pa.decimal128(12, 2),
            {
                "1.5": Decimal("1.50"),
                '"12.34"': Decimal("12.34"),
                "-0.010": Decimal("-0.01"),
                "0e400": Decimal("0.00"),
                "9999999999.99": Decimal("9999999999.99"),
                "1e3": Decimal("1000.00"),
                "true": Decimal("1.00"),
            },
            ["10000000000", '"x"', "1e400", "9999999999.995", "[]", "0.004", '"12.345"', "1e-999999999999", "99.995"],
        ),
        (
            "decimal(38)",
            F,
            pa.decimal128(38, 0),
            {"9" * 38: Decimal("9" * 38), "-" + "9" * 38: Decimal("-" + "9" * 38)},
            ["1" + "0" * 38, "9" * 60],
        ),
        ("NUMERIC", F, pa.decimal128(38, 18), {"0.1": Decimal("0.100000000000000000")}, ["1e20"]),
        ("text", S, pa.string(), {"1.50": "1.50", '"x"': "x", "[1, 2]": "[1,2]", "true": "true"}, []),
        ("varchar(3)", S, pa.string(), {'"abc"': "abc", '"äöü"': "äöü", "123": "123"}, ['"abcd"', "1234"]),
        (
            "boolean",
            B,
            pa.bool_(),
            {"true": True, "false": False, "1": True, "0": False, '"TRUE"': True, '"false"': False, '"0"': False},
            ["2", '"yes"', "1.0", '"True "', '"trve"', '"falsy"', "[true]"],
        ),
        (
            "timestamp",
            T,
            pa.timestamp("us", "UTC"),
            {
                '"2026-11-15T08:05:26Z"': MOMENT,
                '"2026-11-15 08:05:26"': MOMENT,
                '"2026-11-15T10:05:26.000000000+02:00"': MOMENT,
                '"2026-11-15"': datetime(2026, 11, 15, tzinfo=UTC),
                '"2026-11-15T08:05:26\\u005A"': MOMENT,
                '"0001-01-01T00:00:00Z"': datetime(1, 1, 1, tzinfo=UTC),
            },
            [
                '"x"',
                "1763193926",
                "true",
                '"2026-02-29"',
                '"2026-11-15T25:00:00Z"',
                '"2026-11-15T08:05:26+1"',
                '""',
                '"0001-01-01T00:00:00+01:00"',
                '"2026-11-15T08:05:60Z"',
                '"2026-11-15T08:05:26ZZ"',
                '"2026-11-15T10:05:26.000000999+02:00"',
            ],
        ),
        (
            "timestamp(3)",
            T,
            pa.timestamp("us", "UTC"),
            {
                '"2026-11-15T08:05:26.000000Z"': MOMENT,
                '"1969-12-31T23:59:59.9990Z"': datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
            },
            ['"x"', '"2026-11-15T08:05:26.000999Z"', '"1969-12-31T23:59:59.9995Z"'],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cast_converts_or_refuses_each_value_on_its_own(
    sql_type: str, inner: InnerType, arrow: pa.DataType, taken: dict[str, object], refused: list[str]
) -> None:
    spelled = [*taken, *refused]
    found = of(*(f'{{"k":1,"V":{value}}}' for value in spelled), casts={"V": sql_type})
    assert found.table.column("v").type == arrow
    assert found.table.column("v").to_pylist() == [*taken.values(), *([None] * len(refused))]
    assert found.columns[1] == Column("v", ("/V",), inner, sql_type)
    assert found.refused == len(refused)
    if refused:
        lost = found.table.column("_unmapped").to_pylist()
        assert lost == [None] * len(taken) + [f'{{"v":{value}}}' for value in refused]
    found.table.validate(full=True)


def test_an_unknown_sql_type_goes_to_the_destination_with_the_values_own_type() -> None:
    found = of('{"a":1}', casts={"/a": "LowCardinality(String)"})
    assert found.columns == (Column("a", ("/a",), I, "LowCardinality(String)"),)


def test_a_cast_is_by_path_and_case_sensitive() -> None:
    found = of(
        '{"UID":"7","uid2":"7","a":{"b":"7"},"x/y":"7"}',
        casts={"/UID": "bigint", "UID2": "bigint", "a/b": "bigint", "/x~1y": "bigint"},
    )
    assert types(found) == {"uid": I, "uid2": S, "a_b": I, "x_y": I}


def test_a_default_cast_can_be_replaced() -> None:
    found = of('{"_timestamp":"2026-11-15T08:05:26Z"}', casts={"/_timestamp": "text"})
    assert found.columns == (Column("_timestamp", ("/_timestamp",), S, "text"),)


def test_a_timestamp_that_is_none_is_not_lost() -> None:
    found = of('{"_timestamp":"soon","a":1}', '{"_timestamp":"2026-11-15T08:05:26Z","a":2}')
    assert found.table.to_pydict() == {
        "_timestamp": [None, MOMENT],
        "a": [1, 2],
        "_unmapped": ['{"_timestamp":"soon"}', None],
    }
    assert found.columns[0] == Column("_timestamp", ("/_timestamp",), T)


def test_every_document_ends_in_one_place() -> None:
    found = flatten(pa.array([b'{"a":1}', b"{}", b"x", None, b'{"a":{"b":null}}', b'{"a":2}']))
    assert found.rows.to_pylist() == [0, 5]
    assert found.empty.to_pylist() == [1, 4]
    assert [(failure.record, str(failure.code)) for failure in found.failures] == [(2, "not_json"), (3, "no_document")]


@pytest.mark.parametrize("documents", [[], ["{}"], ["x"], [None]])
def test_a_batch_without_values_is_a_table_without_columns(documents: list[str | None]) -> None:
    found = flatten(pa.array(documents, pa.binary()))
    assert found.table.num_rows == 0
    assert found.columns == ()


@pytest.mark.parametrize(
    ("document", "row"),
    [
        ('{"a":1,"a":"x"}', {"a": "x", "_unmapped": '{"/a#1":1}'}),
        ('{"a":"x","a":null}', {"_unmapped": '{"/a#1":"x"}'}),
        ('{"o":{"p":1},"o":{"q":2}}', {"o_q": 2, "_unmapped": '{"/o/p#1":1}'}),
        ('{"a":1,"a":[2],"a":3,"a":4}', {"a": 4, "_unmapped": '{"/a#1":1,"/a#2":[2],"/a#3":3}'}),
        ('{"A":1,"a":2,"a":3}', {"a": 1, "_unmapped": '{"/a#1":2,"/a":3}'}),
    ],
)
def test_what_a_repeated_key_replaces_is_kept_aside(document: str, row: dict[str, object]) -> None:
    found = of(document, '{"b":1}')
    assert {name: value for name, value in found.table.to_pylist()[0].items() if value is not None} == row
    assert found.replaced == max(1, document.count('"a"') - 1)


def test_long_names_are_cut_to_what_the_destination_takes() -> None:
    found = of(json.dumps({"x" * 100: {"a": 1, "b": 2}}), max_name=63)
    names = found.table.column_names
    assert [len(name) for name in names] == [63, 63]
    assert names[0] != names[1]


def test_a_slice_of_an_array_is_flattened_alone() -> None:
    array = pa.array(['{"a":"no"}', '{"a":1}', '{"a":2}', '{"b":1}'], pa.large_string())
    assert flatten(array[1:3]).table.to_pydict() == {"a": [1, 2]}
    assert flatten(pa.chunked_array([array[1:2], array[2:3]])).table.to_pydict() == {"a": [1, 2]}


def test_deep_wide_and_long_values_come_through() -> None:
    deep = '{"k":' * 300 + '"v"' + "}" * 300
    wide = json.dumps({f"c{n}": n for n in range(5_000)})
    long = json.dumps({"s": "é\n" * 500_000})
    found = of(deep, wide, long)
    assert found.table.column("_".join(["k"] * 300)).to_pylist() == ["v", None, None]
    assert found.table.column("c4999").to_pylist() == [None, 4999, None]
    assert found.table.column("s")[2].as_py() == "é\n" * 500_000
    assert found.table.num_columns == 5_002


def test_a_column_of_more_than_strings_can_be_had_as_json_and_as_text() -> None:
    documents = pa.array([b'{"a":"x\\"\\u00fc","b":[1, "y"],"c":"z"}', b'{"a": 7.50}', b'{"a":[ 1]}', b'{"a":true}'])
    ((_, flat),) = flatten_pieces(documents, keep_json=True)
    columns = {column.name: column.json for column in flat.columns}
    assert columns == {"a": True, "b": True, "c": False}
    values = flat.table.column("a").combine_chunks()
    assert values.to_pylist() == ['"x\\"\\u00fc"', "7.50", "[1]", "true"]
    assert plain_text(values).to_pylist() == flatten(documents).table.column("a").to_pylist()


@pytest.mark.parametrize(
    ("values", "inner", "as_json"),
    [
        (["9007199254740993", "1.5"], F, True),
        (["1.5", "-9223372036854775808", "9223372036854775807", "true"], F, True),
        (["9007199254740992", "1.5"], F, True),
        (["5", "2.50"], F, True),
        (["2.5", "1152921504606846976.0"], F, True),
        (["2.5", "-0.25", "9.0", "0.0", "1234567890.5", "0.00001", "0.30000000000000004", "-0.0"], F, False),
        (["2.50"], F, True),
        (["1e2"], F, True),
        (["2.5", "0.1234567890123456789"], F, True),
        (["123456789012345678901.5"], F, True),
        (["18446744073709551616", "1.5"], S, True),
        (["1.8446744073709551616"], F, True),
        (["18446744073709551616.0"], F, True),
        (["9007199254740993", "7"], I, False),
        (["9223372036854775808", "1.5"], S, True),
        (["9007199254740993", "1e400"], S, True),
        (["9007199254740993", "1e-400"], S, True),
    ],
)
def test_numbers_are_doubles_that_keep_their_spelling_or_json_that_does(
    values: list[str], inner: InnerType, as_json: bool
) -> None:
    together = pa.array([f'{{"a":{value}}}' for value in values])
    ((_, flat),) = flatten_pieces(together, keep_json=True)
    assert (types(flat), flat.columns[0].json) == ({"a": inner}, as_json)
    apart = [piece.columns[0].type for one in together for _, piece in flatten_pieces(pa.array([one]), keep_json=True)]
    assert reduce(promote, apart) is inner
    if as_json:
        assert flat.table.column("a").to_pylist() == values


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
MULTIPLES = st.tuples(st.integers(1, 99), st.integers(0, 25)).map(
    lambda found: f"{(digits := str(found[0] * 2**64))[: found[1] or 1]}.{digits[found[1] or 1 :] or 0}"
)


@given(NUMBERS | MULTIPLES | st.floats(allow_nan=False, allow_infinity=False).map(repr))
def test_a_double_is_what_was_sent(number: str) -> None:
    found = of(f'{{"a":{number}}}', casts={"/a": "double precision"})
    value = float(number)
    is_kept = math.isfinite(value) and Decimal(repr(value)) == Decimal(number)
    assert found.table.column("a").to_pylist() == ([value] if is_kept else [None])
    ((_, flat),) = flatten_pieces(pa.array([f'{{"a":{number}}}']), keep_json=True)
    column = flat.table.column("a")
    if column.type == pa.float64():
        assert column.to_pylist() == [value]
        assert as_text(column.combine_chunks()).to_pylist() == [number]
    elif column.type == pa.string():
        assert column.to_pylist() == [number]
