"""From JSON values to inner types, one kind at a time."""

from __future__ import annotations

from tests.warehouse.case import MODEL_ONLY, NUMERIC, Case, at, at_once, either_way, outcome

LARGEST = 2**63 - 1
VALUES: list[tuple[str, bytes, str, object]] = [
    ("true", b"true", "BOOL", True),
    ("false", b"false", "BOOL", False),
    ("an-integer", b"42", "INT64", 42),
    ("a-negative-integer", b"-42", "INT64", -42),
    ("zero", b"0", "INT64", 0),
    ("minus-zero", b"-0", "INT64", 0),
    ("the-largest-integer", b"9223372036854775807", "INT64", LARGEST),
    ("the-smallest-integer", b"-9223372036854775808", "INT64", -(2**63)),
    ("an-integer-just-too-large", b"9223372036854775808", "STRING", "9223372036854775808"),
    ("an-integer-just-too-small", b"-9223372036854775809", "STRING", "-9223372036854775809"),
    ("an-integer-of-forty-digits", b"1" + b"0" * 39, "STRING", "1" + "0" * 39),
    ("a-float", b"1.5", "FLOAT64", 1.5),
    ("a-float-that-is-whole", b"1.0", "FLOAT64", 1.0),
    ("an-exponent", b"1e3", "FLOAT64", 1000.0),
    ("a-capital-exponent", b"1E3", "FLOAT64", 1000.0),
    ("a-negative-exponent", b"25e-1", "FLOAT64", 2.5),
    ("an-exponent-with-plus", b"1e+3", "FLOAT64", 1000.0),
    ("a-float-of-minus-zero", b"-0.0", "FLOAT64", 0.0),
    ("a-tenth", b"0.1", "FLOAT64", 0.1),
    ("a-number-beyond-doubles", b"1e400", "STRING", "1e400"),
    ("a-number-below-doubles", b"-1e400", "STRING", "-1e400"),
    ("text", b'"x"', "STRING", "x"),
    ("text-like-an-integer", b'"7"', "STRING", "7"),
    ("text-like-a-float", b'"1.50"', "STRING", "1.50"),
    ("text-like-a-boolean", b'"true"', "STRING", "true"),
    ("text-like-null", b'"null"', "STRING", "null"),
    ("text-like-a-timestamp", b'"2024-05-01T10:00:00Z"', "STRING", "2024-05-01T10:00:00Z"),
    ("text-like-json", b'"{\\"a\\":1}"', "STRING", '{"a":1}'),
    ("text-with-escapes", b'"\\u00e9\\n\\t\\"\\\\\\/"', "STRING", 'é\n\t"\\/'),
    ("text-with-a-surrogate-pair", b'"\\ud83d\\ude00"', "STRING", "😀"),
]
INFERRED: list[tuple[str, str, str, object]] = [
    ("with-z", "2024-05-01T10:00:00Z", "TIMESTAMP", at("2024-05-01T10:00:00Z")),
    ("with-a-zone", "2024-05-01T12:00:00+02:00", "TIMESTAMP", at("2024-05-01T10:00:00Z")),
    ("with-a-negative-zone", "2024-05-01T04:30:00-05:30", "TIMESTAMP", at("2024-05-01T10:00:00Z")),
    ("without-a-zone-is-utc", "2024-05-01T10:00:00", "TIMESTAMP", at("2024-05-01T10:00:00Z")),
    ("with-a-fraction", "2024-05-01T10:00:00.5Z", "TIMESTAMP", at("2024-05-01T10:00:00.500000Z")),
    ("with-microseconds", "2024-05-01T10:00:00.123456Z", "TIMESTAMP", at("2024-05-01T10:00:00.123456Z")),
    # No column keeps nanoseconds, and a timestamp that was only guessed must not lose any.
    ("with-nanoseconds-stays-text", "2024-05-01T10:00:00.123456789Z", "STRING", "2024-05-01T10:00:00.123456789Z"),
    ("with-a-space-stays-text", "2024-05-01 10:00:00Z", "STRING", "2024-05-01 10:00:00Z"),
    ("of-a-day-stays-text", "2024-05-01", "STRING", "2024-05-01"),
    ("of-no-such-day-stays-text", "2024-02-30T10:00:00Z", "STRING", "2024-02-30T10:00:00Z"),
    ("of-no-such-hour-stays-text", "2024-02-03T24:00:00Z", "STRING", "2024-02-03T24:00:00Z"),
    ("of-a-leap-day", "2024-02-29T00:00:00Z", "TIMESTAMP", at("2024-02-29T00:00:00Z")),
    ("with-words-stays-text", "2024-05-01T10:00:00Z!", "STRING", "2024-05-01T10:00:00Z!"),
]

CASES: list[Case] = [
    *(
        either_way(
            f"a-value-{name}", [b'{"a":' + text + b"}"], outcome({"a": kind}, [{"a": value}]), engines=MODEL_ONLY
        )
        for name, text, kind, value in VALUES
    ),
    either_way(
        "every-kind-of-value-on-every-engine",
        [b"{" + b",".join(b'"v%d":%s' % (n, text) for n, (_, text, _, _) in enumerate(VALUES)) + b"}"],
        outcome(
            {f"v{n}": kind for n, (_, _, kind, _) in enumerate(VALUES)},
            [{f"v{n}": value for n, (_, _, _, value) in enumerate(VALUES)}],
        ),
    ),
    *(
        either_way(
            f"an-inferred-timestamp-{name}",
            [{"a": text}],
            outcome({"a": kind}, [{"a": value}]),
            options={"infer_timestamps": True},
            engines=MODEL_ONLY,
        )
        for name, text, kind, value in INFERRED
    ),
    either_way(
        "inferred-timestamps-on-every-engine",
        [{f"t{n}": text for n, (_, text, _, _) in enumerate(INFERRED)}],
        outcome(
            {f"t{n}": kind for n, (_, _, kind, _) in enumerate(INFERRED)},
            [{f"t{n}": value for n, (_, _, _, value) in enumerate(INFERRED)}],
        ),
        options={"infer_timestamps": True},
    ),
    at_once(
        "an-integer-beyond-64-bits-among-others-makes-them-text",
        [b'{"n":1}', b'{"n":9223372036854775808}', b'{"n":-5}'],
        outcome({"n": "STRING"}, [{"n": "1"}, {"n": "9223372036854775808"}, {"n": "-5"}]),
        streamed=outcome(
            {"n": "INT64", "_unmapped": "JSON"}, [{"n": 1}, {"_unmapped": {"n": 9223372036854775808}}, {"n": -5}]
        ),
    ),
    either_way(
        "doubles-instead-of-numerics",
        [{"a": 1.5}, {"a": 1e-30}, {"a": 1e300}],
        outcome(
            {"a": "double precision"},
            [{"a": 1.5}, {"a": 1e-30}, {"a": 1e300}],
            ddl=['CREATE TABLE IF NOT EXISTS "events" ("a" double precision)'],
        ),
        options={"float": "double"},
        engines=NUMERIC,
    ),
    either_way(
        "a-number-that-numeric-cannot-hold-is-kept-aside",
        [{"a": 0.25}, {"a": 1e20, "b": 1}, {"a": -1e25}, {"a": 1.7e308}, {"a": 1e-19}],
        outcome(
            {"a": "FLOAT64", "b": "INT64", "_unmapped": "JSON"},
            [
                {"a": 0.25},
                {"b": 1, "_unmapped": {"a": 1e20}},
                {"_unmapped": {"a": -1e25}},
                {"_unmapped": {"a": 1.7e308}},
                {"_unmapped": {"a": 1e-19}},
            ],
        ),
        engines=NUMERIC,
    ),
    either_way(
        "the-limits-of-numeric-fit",
        [b'{"a":99999999999999990000.0}', b'{"a":-1e19}', b'{"a":1e-18}', b'{"a":0.1}'],
        outcome({"a": "FLOAT64"}, [{"a": 99999999999999990000.0}, {"a": -1e19}, {"a": 1e-18}, {"a": 0.1}]),
        engines=NUMERIC,
    ),
    either_way(
        "a-column-that-is-only-ever-null-is-none",
        [{"a": None, "b": 1}, {"a": None, "b": 2}],
        outcome({"b": "INT64"}, [{"b": 1}, {"b": 2}]),
        engines=MODEL_ONLY,
    ),
    at_once(
        "an-array-and-text-share-a-text-column",
        [{"a": [1, 2]}, {"a": "x"}, {"a": []}],
        outcome({"a": "STRING"}, [{"a": "[1,2]"}, {"a": "x"}, {"a": "[]"}]),
        engines=MODEL_ONLY,
    ),
]
