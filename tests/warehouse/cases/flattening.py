"""Nested documents into columns: what becomes a column, what vanishes, what an array looks like."""

from __future__ import annotations

from tests.warehouse.case import MODEL_ONLY, Case, Event, either_way, outcome

ARRAYS: list[tuple[str, bytes, str]] = [
    (
        "of-objects-keeps-the-order-of-keys",
        b'[{"z":1,"a":2},{"m":{"y":1,"b":2}}]',
        '[{"z":1,"a":2},{"m":{"y":1,"b":2}}]',
    ),
    ("of-arrays", b"[[1,[2]],[],[[]]]", "[[1,[2]],[],[[]]]"),
    ("that-is-empty", b"[]", "[]"),
    ("of-nothing-but-null", b"[null,null]", "[null,null]"),
    ("with-whitespace-is-compact", b'[ 1 ,\n\t{ "a" : "x y" } ]', '[1,{"a":"x y"}]'),
    (
        "keeps-numbers-verbatim",
        b"[1.0,1.50,1E5,1e-7,-0,-0.0,123456789012345678901234567890,1e400]",
        "[1.0,1.50,1E5,1e-7,-0,-0.0,123456789012345678901234567890,1e400]",
    ),
    ("of-text-with-quotes-and-commas", b'["a\\"b","c,d","]"]', '["a\\"b","c,d","]"]'),
    ("of-objects-that-are-empty", b"[{},{}]", "[{},{}]"),
    ("of-booleans", b"[true,false]", "[true,false]"),
]
EMPTY: list[tuple[str, Event]] = [
    ("an-object", {}),
    ("a-null", {"a": None}),
    ("nulls-at-every-level", {"a": None, "b": {"c": None, "d": {"e": None}}}),
    ("empty-objects", {"a": {}, "b": {"c": {}}}),
    ("an-object-with-spaces", b" { \n } "),
]

CASES: list[Case] = [
    either_way(
        "deep-nesting-is-joined-by-underscores",
        [{"user": {"address": {"city": "Berlin", "geo": {"lat": 52.5}}}, "n": 1}],
        outcome(
            {"user_address_city": "STRING", "user_address_geo_lat": "FLOAT64", "n": "INT64"},
            [{"user_address_city": "Berlin", "user_address_geo_lat": 52.5, "n": 1}],
        ),
    ),
    either_way(
        "null-and-empty-objects-vanish-beside-values",
        [{"a": 1, "b": None, "c": {}, "d": {"e": None, "f": {}}}],
        outcome({"a": "INT64"}, [{"a": 1}], ddl=['CREATE TABLE IF NOT EXISTS "events" ("a" bigint)']),
    ),
    either_way(
        "an-empty-string-is-a-value",
        [{"a": ""}, {"a": None, "b": 1}],
        outcome({"a": "STRING", "b": "INT64"}, [{"a": ""}, {"b": 1}]),
    ),
    either_way(
        "rows-with-other-fields-share-a-table",
        [{"a": 1}, {"b": "x"}, {"a": 2, "c": True}],
        outcome({"a": "INT64", "b": "STRING", "c": "BOOL"}, [{"a": 1}, {"b": "x"}, {"a": 2, "c": True}]),
        engines=MODEL_ONLY,
    ),
    either_way(
        "false-and-zero-are-values",
        [{"a": False, "b": 0, "c": 0.0}],
        outcome({"a": "BOOL", "b": "INT64", "c": "FLOAT64"}, [{"a": False, "b": 0, "c": 0.0}]),
        engines=MODEL_ONLY,
    ),
    either_way(
        "an-empty-row-among-others-is-skipped",
        [{"a": 1}, {}, {"a": None}, {"a": 2}],
        outcome({"a": "INT64"}, [{"a": 1}, {"a": 2}], skipped=2),
        engines=MODEL_ONLY,
    ),
    either_way(
        "what-is-no-object-fails-and-its-neighbours-load",
        [{"a": 1}, b"[1]", b"7", b'"x"', b"null", b"", b"{", b"nonsense", b'{"a":1}}', {"a": 2}],
        outcome({"a": "INT64"}, [{"a": 1}, {"a": 2}], failed={number: [] for number in range(1, 9)}),
    ),
    *(
        either_way(
            f"an-array-{name}",
            [b'{"a":' + text + b',"n":1}'],
            outcome({"a": "STRING", "n": "INT64"}, [{"a": expected, "n": 1}]),
            engines=MODEL_ONLY,
        )
        for name, text, expected in ARRAYS
    ),
    *(
        either_way(f"a-row-of-nothing-is-skipped-{name}", [event], outcome(skipped=1), engines=MODEL_ONLY)
        for name, event in EMPTY
    ),
]
