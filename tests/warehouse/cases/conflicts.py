"""Values for a column that exists with another type: ``on_type_conflict``, pair by pair."""

from __future__ import annotations

from decimal import Decimal

from tests.warehouse.case import (
    DUCKDB_ONLY,
    EVERY_ENGINE,
    MODEL_ONLY,
    NUMERIC,
    Case,
    Engine,
    Existing,
    at,
    at_once,
    either_way,
    in_turn,
    outcome,
)

TIME = "2024-05-01T10:00:00Z"
LOST = object()
FITS: dict[str, list[tuple[bytes, object]]] = {
    "BOOL": [
        (b"true", True),
        (b"false", False),
        (b"1", True),
        (b"0", False),
        (b"1.0", True),
        (b'"true"', True),
        (b"2", LOST),
        (b"-1", LOST),
        (b"0.5", LOST),
        (b'"x"', LOST),
        (b'""', LOST),
        (b"[true]", LOST),
    ],
    "INT64": [
        (b"7", 7),
        (b"-7", -7),
        (b"true", 1),
        (b"false", 0),
        (b"9.0", 9),
        (b"1e3", 1000),
        (b'"7"', 7),
        (b'"-7"', -7),
        (b"9.5", LOST),
        (b'"x"', LOST),
        (b'""', LOST),
        (b'" 7"', LOST),
        (b'"007"', LOST),
        (b'"7.5"', LOST),
        (b"[7]", LOST),
        (b"9223372036854775808", LOST),
        (b"1e30", LOST),
        (b"1e400", LOST),
        (b'"true"', LOST),
    ],
    "FLOAT64": [
        (b"1.5", 1.5),
        (b"7", 7.0),
        (b"true", 1.0),
        (b'"1.5"', 1.5),
        (b'"7"', 7.0),
        (b'"x"', LOST),
        (b'""', LOST),
        (b"[1.5]", LOST),
        (b"1e400", LOST),
        (b'"1,5"', LOST),
    ],
    "STRING": [
        (b'"x"', "x"),
        (b"true", "true"),
        (b"7", "7"),
        (b"1.5", "1.5"),
        (b"9.0", "9.0"),
        (b"[1,2]", "[1,2]"),
        (b"9223372036854775808", "9223372036854775808"),
        (b"1e400", "1e400"),
        (b'""', ""),
    ],
    "TIMESTAMP": [
        (b'"2024-05-01T10:00:00Z"', at(TIME)),
        (b'"2024-05-01T12:00:00+02:00"', at(TIME)),
        (b'"2024-05-01T10:00:00"', at(TIME)),
        (b'"x"', LOST),
        (b'""', LOST),
        (b"7", LOST),
        (b"1.5", LOST),
        (b"true", LOST),
        (b"[1]", LOST),
        (b'"2024-02-30T10:00:00Z"', LOST),
    ],
}
"""Per type of an existing column: what comes, and what it is then. ``LOST``: NULL, and the original is kept aside."""

WIDENED: list[tuple[str, object, object, str, list[object]]] = [
    ("bool-to-int", True, 7, "INT64", [1, 7]),
    ("bool-to-float", True, 1.5, "FLOAT64", [1.0, 1.5]),
    ("bool-to-string", True, "x", "STRING", ["true", "x"]),
    ("int-to-float", 1, 1.5, "FLOAT64", [1.0, 1.5]),
    ("int-to-string", 1, "x", "STRING", ["1", "x"]),
    ("int-to-array", 1, [2], "STRING", ["1", "[2]"]),
    ("float-to-string", 1.5, "x", "STRING", ["1.5", "x"]),
    # What fits as it is needs no wider column.
    ("int-by-text-that-is-one", 1, "2", "INT64", [1, 2]),
    ("bool-by-a-one", True, 1, "BOOL", [True, True]),
    ("float-by-an-int", 1.5, 2, "FLOAT64", [1.5, 2.0]),
    ("string-by-anything", "x", 7, "STRING", ["x", "7"]),
]
FAILING: list[tuple[str, object, object, str]] = [
    ("text-for-an-integer", 1, "x", "bigint"),
    ("a-fraction-for-an-integer", 1, 1.5, "bigint"),
    ("an-integer-for-a-boolean", True, 7, "boolean"),
    ("an-array-for-a-float", 1.5, [1], "numeric(38,18)"),
]


def raw(value: object) -> str:
    """What ``_unmapped`` says of a value that was lost, as JSON."""
    assert isinstance(value, bytes)
    return '{"a":' + value.decode() + "}"


def into(kind: str) -> Case:
    rows: list[dict[str, object]] = []
    for number, (sent, value) in enumerate(FITS[kind]):
        rows.append({"n": number, "_unmapped": raw(sent)} if value is LOST else {"n": number, "a": value})
    spare = {"_unmapped": "JSON"} if any(value is LOST for _, value in FITS[kind]) else {}
    return either_way(
        f"all-kinds-of-values-into-{kind}",
        [b'{"n":%d,"a":%s}' % (number, sent) for number, (sent, _) in enumerate(FITS[kind])],
        outcome({"n": "INT64", "a": kind, **spare}, rows),
        existing=Existing({"n": "INT64", "a": kind}),
    )


def one_by_one(kind: str) -> list[Case]:
    return [
        in_turn(
            f"into-{kind}-{number}-{sent.decode()}",
            [[b'{"a":' + sent + b',"n":1}']],
            outcome(
                {"a": kind, "n": "INT64", **({"_unmapped": "JSON"} if value is LOST else {})},
                [{"n": 1, "_unmapped": raw(sent)} if value is LOST else {"n": 1, "a": value}],
            ),
            existing=Existing({"a": kind}),
            engines=MODEL_ONLY,
        )
        for number, (sent, value) in enumerate(FITS[kind])
    ]


def widened(name: str, first: object, then: object, kind: str, values: list[object]) -> Case:
    return in_turn(
        f"widen-{name}",
        [[{"a": first}], [{"a": then}]],
        outcome({"a": kind}, [{"a": value} for value in values]),
        options={"on_type_conflict": "widen"},
        engines=EVERY_ENGINE if name.startswith(("bool-to", "int-to", "float-to")) else NUMERIC,
    )


TOO_FINE: list[tuple[str, str, str, bool, frozenset[Engine]]] = [
    ("milliseconds", "timestamp(3) with time zone", "Z", False, NUMERIC),
    ("milliseconds-inferred", "timestamp(3) with time zone", "Z", True, NUMERIC),
    ("milliseconds-in-duckdb", "TIMESTAMP_MS", "", False, DUCKDB_ONLY),
]


def too_fine(name: str, kind: str, zone: str, infer: bool, engines: frozenset[Engine]) -> Case:
    """Times for columns that keep milliseconds. What an engine gives back has a zone or not, as the column has."""
    second = "2024-05-01T10:00:0"
    lost = f"{second}3.999600Z"
    return either_way(
        f"a-time-with-more-digits-than-{name}-is-kept-aside",
        [{"_timestamp": text, "a": text} for text in (f"{second}1.000000Z", f"{second}2.250000Z", lost)],
        outcome(
            {"_timestamp": kind, "a": kind, "_unmapped": "JSON"},
            [
                *(dict.fromkeys(("_timestamp", "a"), at(f"{second}{rest}{zone}")) for rest in ("1", "2.250")),
                {"_unmapped": {"_timestamp": lost, "a": lost}},
            ],
        ),
        existing=Existing({"_timestamp": kind, "a": kind}),
        options={"infer_timestamps": infer},
        engines=engines,
    )


CASES: list[Case] = [
    *(into(kind) for kind in FITS),
    *(case for kind in FITS for case in one_by_one(kind)),
    *(widened(*row) for row in WIDENED),
    in_turn(
        "widen-says-so",
        [[{"a": 1}], [{"a": 1.5}]],
        outcome(
            {"a": "FLOAT64"},
            [{"a": 1.0}, {"a": 1.5}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("a" bigint)',
                'ALTER TABLE "events" ALTER COLUMN "a" TYPE numeric(38,18) USING "a"::numeric(38,18)',
            ],
        ),
        options={"on_type_conflict": "widen"},
        engines=NUMERIC,
    ),
    in_turn(
        "widen-twice",
        [[{"a": True}], [{"a": 7}], [{"a": "x"}]],
        # The first was true, then 1: a column of text gets what the column of integers had.
        outcome({"a": "STRING"}, [{"a": "1"}, {"a": "7"}, {"a": "x"}]),
        options={"on_type_conflict": "widen"},
        engines=NUMERIC,
    ),
    in_turn(
        "widen-an-integer-for-one-beyond-64-bits",
        [[b'{"a":1}'], [b'{"a":9223372036854775808}']],
        outcome({"a": "STRING"}, [{"a": "1"}, {"a": "9223372036854775808"}]),
        options={"on_type_conflict": "widen"},
    ),
    in_turn(
        "widen-a-timestamp-to-text",
        [[{"_timestamp": TIME}], [{"n": 1}]],
        outcome({"_timestamp": "TIMESTAMP", "n": "INT64"}, [{"_timestamp": at(TIME)}, {"n": 1}]),
        options={"on_type_conflict": "widen"},
        engines=MODEL_ONLY,
    ),
    in_turn(
        "widen-an-inferred-timestamp-to-text",
        [[{"a": TIME}], [{"a": "x"}]],
        outcome({"a": "STRING"}, [{"a": "2024-05-01T10:00:00.000000Z"}, {"a": "x"}]),
        options={"on_type_conflict": "widen", "infer_timestamps": True},
        engines=NUMERIC,
    ),
    in_turn(
        "widen-where-there-is-nothing-wider-keeps-aside",
        [[{"a": 1.5}], [{"a": 1e30}]],
        outcome({"a": "FLOAT64", "_unmapped": "JSON"}, [{"a": 1.5}, {"_unmapped": {"a": 1e30}}]),
        options={"on_type_conflict": "widen"},
        engines=NUMERIC,
    ),
    in_turn(
        "widen-keeps-aside-what-even-the-wider-column-cannot-hold",
        [[{"a": 1}], [{"a": 1.5}, {"a": 1e30}]],
        outcome({"a": "FLOAT64", "_unmapped": "JSON"}, [{"a": 1.0}, {"a": 1.5}, {"_unmapped": {"a": 1e30}}]),
        options={"on_type_conflict": "widen"},
        engines=NUMERIC,
    ),
    in_turn(
        "widen-one-column-and-leave-the-others",
        [[{"a": 1, "b": 1, "c": "x"}], [{"a": "y", "b": 2}]],
        outcome({"a": "STRING", "b": "INT64", "c": "STRING"}, [{"a": "1", "b": 1, "c": "x"}, {"a": "y", "b": 2}]),
        options={"on_type_conflict": "widen"},
        engines=NUMERIC,
    ),
    *(
        in_turn(
            f"fail-{name}",
            [[{"a": first, "n": 1}], [{"a": then, "n": 2}, {"a": first, "n": 3}]],
            outcome(
                {"a": {bool: "BOOL", int: "INT64", float: "FLOAT64"}[type(first)], "n": "INT64"},
                [{"a": first, "n": 1}, {"a": first, "n": 3}],
                failed={1: ["'a'", kind]},
            ),
            options={"on_type_conflict": "fail"},
            engines=NUMERIC,
        )
        for name, first, then, kind in FAILING
    ),
    in_turn(
        "fail-names-both-types",
        [[{"a": 1}], [{"a": "x"}]],
        outcome({"a": "INT64"}, [{"a": 1}], failed={1: ["'a'", "bigint", "string"]}),
        options={"on_type_conflict": "fail"},
        engines=NUMERIC,
    ),
    in_turn(
        "fail-names-the-type-of-each-value-of-a-mixed-batch",
        [[{"a": 1}], [{"a": "x"}, {"a": 1.5}, {"a": [1]}, {"a": True}]],
        outcome({"a": "INT64"}, [{"a": 1}, {"a": 1}], failed={1: ["bigint", "string"], 2: ["number"], 3: ["array"]}),
        options={"on_type_conflict": "fail"},
        engines=NUMERIC,
    ),
    in_turn(
        "fail-does-not-fail-what-can-be-converted",
        [[{"a": 1}], [{"a": "7"}], [{"a": 9.0}], [{"a": True}]],
        outcome({"a": "INT64"}, [{"a": 1}, {"a": 7}, {"a": 9}, {"a": 1}]),
        options={"on_type_conflict": "fail"},
        engines=NUMERIC,
    ),
    in_turn(
        "fail-fails-an-event-once-for-two-conflicts",
        [[{"a": 1, "b": 1}], [{"a": "x", "b": "y"}]],
        outcome({"a": "INT64", "b": "INT64"}, [{"a": 1, "b": 1}], failed={1: ["cannot hold"]}),
        options={"on_type_conflict": "fail"},
        engines=NUMERIC,
    ),
    in_turn(
        # A cast makes the column's type; under `fail` a value that it cannot take is a conflict like any other.
        "fail-fails-what-a-cast-cannot-take",
        [[{"_timestamp": TIME, "n": 1}], [{"_timestamp": "soon", "n": 2}]],
        outcome(
            # Nothing is kept aside, so there is no column for it.
            {"_timestamp": "TIMESTAMP", "n": "INT64"},
            [{"_timestamp": at(TIME), "n": 1}],
            failed={1: ["'_timestamp'", "string"]},
        ),
        options={"on_type_conflict": "fail"},
    ),
    either_way(
        "fail-makes-no-column-that-only-failing-events-would-fill",
        [{"_timestamp": TIME, "n": 1}, {"_timestamp": "soon", "n": 2, "N": 3}],
        outcome(
            {"_timestamp": "TIMESTAMP", "n": "INT64"},
            [{"_timestamp": at(TIME), "n": 1}],
            failed={1: ["'_timestamp'", "timestamp", "string"]},
        ),
        options={"on_type_conflict": "fail"},
        engines=NUMERIC,
    ),
    either_way(
        "fail-still-keeps-aside-what-others-bring",
        [{"_timestamp": "soon", "n": 1}, {"_timestamp": TIME, "n": 2, "N": 3}],
        outcome(
            {"_timestamp": "TIMESTAMP", "n": "INT64", "_unmapped": "JSON"},
            [{"_timestamp": at(TIME), "n": 2, "_unmapped": {"/N": 3}}],
            failed={0: ["'_timestamp'", "string"]},
        ),
        options={"on_type_conflict": "fail"},
    ),
    in_turn(
        "fail-with-a-frozen-schema-makes-no-column-for-an-event-that-fails",
        [[{"_timestamp": TIME}], [{"_timestamp": "soon", "new": 1}, {"_timestamp": TIME}]],
        outcome({"_timestamp": "TIMESTAMP"}, [{"_timestamp": at(TIME)}] * 2, failed={1: ["'_timestamp'", "string"]}),
        options={"on_type_conflict": "fail", "schema": "freeze"},
    ),
    in_turn(
        "fail-of-every-event-makes-a-table-and-nothing-aside",
        [[{"_timestamp": "soon"}]],
        outcome({"_timestamp": "TIMESTAMP"}, failed={0: ["'_timestamp'", "string"]}),
        options={"on_type_conflict": "fail"},
    ),
    either_way(
        "fail-names-the-missing-key-of-an-event-with-a-collision",
        [{"k": 1, "a": 1}, {"a": 1, "A": 2}],
        outcome({"k": "INT64", "a": "INT64", "_unmapped": "JSON"}, [{"k": 1, "a": 1}], failed={1: ["key", "'k'"]}),
        options={"on_type_conflict": "fail", "primary_key": ["k"]},
        engines=NUMERIC,
    ),
    either_way(
        # A collision is not about types: its loser is kept aside whatever conflicts do.
        "fail-does-not-fail-a-collision",
        [{"a": 1, "A": 2}],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1, "_unmapped": {"/A": 2}}]),
        options={"on_type_conflict": "fail"},
        engines=NUMERIC,
    ),
    in_turn(
        "a-new-column-that-cannot-hold-its-first-value",
        [[{"b": 1}], [{"a": 1e20}], [{"a": 0.5}]],
        outcome(
            {"b": "INT64", "a": "FLOAT64", "_unmapped": "JSON"}, [{"b": 1}, {"_unmapped": {"a": 1e20}}, {"a": 0.5}]
        ),
        engines=NUMERIC,
    ),
    in_turn(
        "widen-a-new-column-that-cannot-hold-its-first-value",
        [[{"b": 1}], [{"a": 1e20, "b": 1.5}]],
        outcome(
            {"b": "FLOAT64", "a": "FLOAT64", "_unmapped": "JSON"}, [{"b": 1.0}, {"b": 1.5, "_unmapped": {"a": 1e20}}]
        ),
        options={"on_type_conflict": "widen"},
        engines=NUMERIC,
    ),
    in_turn(
        "fail-a-new-column-that-cannot-hold-its-first-value",
        [[{"b": 1}], [{"a": 1e20}]],
        outcome({"b": "INT64", "a": "FLOAT64"}, [{"b": 1}], failed={1: ["'a'", "numeric", "number"]}),
        options={"on_type_conflict": "fail"},
        engines=NUMERIC,
    ),
    in_turn(
        "several-conflicts-in-one-row-are-kept-together",
        [[{"a": 1, "b": True, "c": 1.5}], [{"a": "x", "b": 7, "c": [1, 2], "d": "new"}]],
        outcome(
            {"a": "INT64", "b": "BOOL", "c": "FLOAT64", "_unmapped": "JSON", "d": "STRING"},
            [{"a": 1, "b": True, "c": 1.5}, {"d": "new", "_unmapped": {"a": "x", "b": 7, "c": [1, 2]}}],
        ),
    ),
    in_turn(
        "a-conflict-and-then-a-fitting-value",
        [[{"a": 1}], [{"a": "x"}], [{"a": 2}]],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1}, {"_unmapped": {"a": "x"}}, {"a": 2}]),
        engines=NUMERIC,
    ),
    in_turn(
        "a-column-that-somebody-made-narrower-is-respected",
        [[{"a": 40000, "b": "too long for it", "c": 7}]],
        outcome(
            {"a": "smallint", "b": "character varying(5)", "c": "integer", "_unmapped": "JSON"},
            [{"c": 7, "_unmapped": {"a": 40000, "b": "too long for it"}}],
        ),
        existing=Existing({"a": "smallint", "b": "character varying(5)", "c": "integer"}),
        engines=NUMERIC,
    ),
    in_turn(
        "columns-that-a-batch-does-not-have-are-left-alone",
        [[{"a": 1}]],
        outcome({"a": "INT64", "theirs": "STRING", "more": "double precision"}, [{"a": 1}], ddl=[]),
        existing=Existing({"a": "INT64", "theirs": "STRING", "more": "double precision"}),
    ),
    in_turn(
        "a-large-integer-into-a-numeric-is-exact",
        [[b'{"a":9007199254740993}']],
        outcome({"a": "FLOAT64"}, [{"a": 9007199254740993.0}]),
        existing=Existing({"a": "FLOAT64"}),
        engines=NUMERIC,
    ),
    in_turn(
        "a-large-integer-into-a-double-is-kept-aside",
        [[b'{"a":9007199254740993}'], [b'{"a":9007199254740992}']],
        outcome(
            {"a": "FLOAT64", "_unmapped": "JSON"},
            [{"_unmapped": {"a": 9007199254740993}}, {"a": 9007199254740992.0}],
        ),
        existing=Existing({"a": "FLOAT64"}),
        engines=DUCKDB_ONLY,
    ),
    *(too_fine(*row) for row in TOO_FINE),
    at_once(
        "booleans-and-numbers-of-one-batch-into-text-are-what-they-were",
        [{"a": True}, {"a": 7}, {"a": 1.5}, {"a": False}],
        outcome({"a": "STRING"}, [{"a": "true"}, {"a": "7"}, {"a": "1.5"}, {"a": "false"}]),
        existing=Existing({"a": "STRING"}),
    ),
    at_once(
        "a-batch-with-and-without-conflicts",
        [{"a": 1}, {"a": "x"}, {"a": 2}],
        outcome({"a": "STRING"}, [{"a": "1"}, {"a": "x"}, {"a": "2"}]),
        streamed=outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1}, {"_unmapped": {"a": "x"}}, {"a": 2}]),
        options={"on_type_conflict": "unmapped"},
    ),
    either_way(
        # Whatever stands beside it: digits and spelling as they were sent.
        "number-into-text-is-spelled-as-it-was-sent",
        [b'{"n":1,"s":1152921504606846976}', b'{"n":2,"s":2.50}', b'{"n":3,"s":5}', b'{"n":4,"s":1e2}'],
        outcome(
            {"n": "INT64", "s": "STRING"},
            [{"n": 1, "s": "1152921504606846976"}, {"n": 2, "s": "2.50"}, {"n": 3, "s": "5"}, {"n": 4, "s": "1e2"}],
        ),
        existing=Existing({"n": "INT64", "s": "STRING"}),
    ),
    either_way(
        "number-kept-aside-has-all-its-digits",
        [b'{"n":1,"s":123456789012345678901.5}', b'{"n":2,"s":1.50}', b'{"n":3,"s":3}'],
        outcome(
            {"n": "INT64", "s": "INT64", "_unmapped": "JSON"},
            [
                {"n": 1, "_unmapped": '{"s":123456789012345678901.5}'},
                {"n": 2, "_unmapped": '{"s":1.50}'},
                {"n": 3, "s": 3},
            ],
        ),
        existing=Existing({"n": "INT64", "s": "INT64"}),
    ),
    either_way(
        "number-whose-digits-are-a-multiple-of-two-to-the-64th",
        [b'{"n":1,"f":1.8446744073709551616}', b'{"n":2,"f":368934881474191032320.0}', b'{"n":3,"f":1.5}'],
        outcome(
            {"n": "INT64", "f": "FLOAT64", "_unmapped": "JSON"},
            [
                {"n": 1, "_unmapped": '{"f":1.8446744073709551616}'},
                {"n": 2, "_unmapped": '{"f":368934881474191032320.0}'},
                {"n": 3, "f": Decimal("1.5")},
            ],
        ),
        engines=NUMERIC,
    ),
]
