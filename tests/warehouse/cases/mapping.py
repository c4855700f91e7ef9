"""The step ``map``: rules in order, in place."""

from __future__ import annotations

from collections.abc import Mapping

from tests.warehouse.case import (
    EVERY_ENGINE,
    MODEL_ONLY,
    NUMERIC,
    Case,
    at,
    either_way,
    in_turn,
    mapping,
    move,
    outcome,
)

Rule = Mapping[str, object]
TIME = "2024-05-01T10:00:00.123456Z"


def cast(kind: str, **path: str) -> Rule:
    return {"action": "cast", "type": kind, **path}


def constant(dst: str, value: object, **more: object) -> Rule:
    return {"action": "constant", "dst": dst, "value": value, **more}


def remove(src: str) -> Rule:
    return {"action": "remove", "src": src}


CONSTANTS: list[tuple[str, object, dict[str, str], dict[str, object]]] = [
    ("text", "web", {"c": "STRING"}, {"c": "web"}),
    ("an-integer", 7, {"c": "INT64"}, {"c": 7}),
    ("a-float", 2.5, {"c": "FLOAT64"}, {"c": 2.5}),
    ("a-boolean", False, {"c": "BOOL"}, {"c": False}),
    ("a-list", [1, "x", None], {"c": "STRING"}, {"c": '[1,"x",null]'}),
    ("an-object", {"d": 1, "e": {"f": "g"}}, {"c_d": "INT64", "c_e_f": "STRING"}, {"c_d": 1, "c_e_f": "g"}),
    # Null is a value of JSON like any other, and vanishes like any other null.
    ("null", None, {}, {}),
    ("empty-text", "", {"c": "STRING"}, {"c": ""}),
]

MOVES: list[tuple[str, list[Rule], dict[str, object], dict[str, str], dict[str, object]]] = [
    ("to-a-new-name", [move("/a", "/b")], {"a": 1, "c": 2}, {"b": "INT64", "c": "INT64"}, {"b": 1, "c": 2}),
    ("of-a-missing-source-does-nothing", [move("/x", "/b")], {"a": 1}, {"a": "INT64"}, {"a": 1}),
    ("of-a-missing-nested-source", [move("/a/x", "/b")], {"a": {"y": 1}}, {"a_y": "INT64"}, {"a_y": 1}),
    ("through-a-scalar-source", [move("/a/x", "/b")], {"a": 1}, {"a": "INT64"}, {"a": 1}),
    (
        "without-leading-slashes",
        [move("b", "a/y")],
        {"a": {"x": 1}, "b": 2},
        {"a_x": "INT64", "a_y": "INT64"},
        {"a_x": 1, "a_y": 2},
    ),
    ("is-case-sensitive", [move("/userid", "/uid")], {"UserId": 1}, {"userid": "INT64"}, {"userid": 1}),
    (
        "of-a-subtree",
        [move("/a", "/z/y")],
        {"a": {"b": 1, "c": {"d": "x"}}},
        {"z_y_b": "INT64", "z_y_c_d": "STRING"},
        {"z_y_b": 1, "z_y_c_d": "x"},
    ),
    (
        "up-to-the-top",
        [move("/a/b", "/b")],
        {"a": {"b": 1, "c": 2}},
        {"b": "INT64", "a_c": "INT64"},
        {"b": 1, "a_c": 2},
    ),
    ("in-a-chain", [move("/a", "/b"), move("/b", "/c/d")], {"a": 1}, {"c_d": "INT64"}, {"c_d": 1}),
    (
        "that-swaps-two-fields",
        [move("/a", "/t"), move("/b", "/a"), move("/t", "/b")],
        {"a": 1, "b": "x"},
        {"a": "STRING", "b": "INT64"},
        {"a": "x", "b": 1},
    ),
    ("into-its-own-child", [move("/a", "/a/b")], {"a": {"x": 1}}, {"a_b_x": "INT64"}, {"a_b_x": 1}),
    ("of-a-scalar-into-its-own-child", [move("/a", "/a/b")], {"a": 5}, {"a_b": "INT64"}, {"a_b": 5}),
    ("onto-itself", [move("/a", "/a")], {"a": {"x": 1}}, {"a_x": "INT64"}, {"a_x": 1}),
    (
        "that-merges-two-objects",
        [move("/b", "/a")],
        {"a": {"x": 1}, "b": {"y": 2}},
        {"a_x": "INT64", "a_y": "INT64"},
        {"a_x": 1, "a_y": 2},
    ),
    (
        "that-merges-deeply",
        [move("/b", "/a")],
        {"a": {"o": {"x": 1}}, "b": {"o": {"y": 2}}},
        {"a_o_x": "INT64", "a_o_y": "INT64"},
        {"a_o_x": 1, "a_o_y": 2},
    ),
    # What is moved is the newer word on a field that both have.
    ("that-merges-over-a-field", [move("/b", "/a")], {"a": {"x": 1}, "b": {"x": 2}}, {"a_x": "INT64"}, {"a_x": 2}),
    ("of-a-scalar-onto-a-scalar", [move("/b", "/a")], {"a": 1, "b": 2}, {"a": "INT64"}, {"a": 2}),
    ("of-a-scalar-onto-an-object", [move("/b", "/a")], {"a": {"x": 1}, "b": 2}, {"a": "INT64"}, {"a": 2}),
    (
        "of-props-to-the-root",
        [move("/props", "/")],
        {"props": {"x": 1, "y": {"z": 2}}, "k": 3},
        {"x": "INT64", "y_z": "INT64", "k": "INT64"},
        {"x": 1, "y_z": 2, "k": 3},
    ),
    (
        "to-the-root-merges",
        [move("/props", "/")],
        {"props": {"o": {"y": 2}}, "o": {"x": 1}},
        {"o_x": "INT64", "o_y": "INT64"},
        {"o_x": 1, "o_y": 2},
    ),
    (
        "of-the-root-into-a-field",
        [move("/", "/raw")],
        {"a": 1, "b": {"c": "x"}},
        {"raw_a": "INT64", "raw_b_c": "STRING"},
        {"raw_a": 1, "raw_b_c": "x"},
    ),
    ("of-an-array", [move("/a", "/b/c")], {"a": [1, 2]}, {"b_c": "STRING"}, {"b_c": "[1,2]"}),
    # A null is nothing: a column never shows it, so it is not in the way either.
    ("through-a-null", [move("/b", "/a/y")], {"a": None, "b": 2}, {"a_y": "INT64"}, {"a_y": 2}),
    ("of-names-with-odd-characters", [move("/a b/ü", "/c")], {"a b": {"ü": 1}}, {"c": "INT64"}, {"c": 1}),
    ("then-removed", [move("/a", "/b"), remove("/b/x")], {"a": {"x": 1, "y": 2}}, {"b_y": "INT64"}, {"b_y": 2}),
]

CASTS: list[tuple[str, list[Rule], dict[str, object], dict[str, str], dict[str, object]]] = [
    ("by-src", [cast("bigint", src="/a")], {"a": "7"}, {"a": "INT64"}, {"a": 7}),
    ("by-dst", [cast("bigint", dst="/a")], {"a": "7"}, {"a": "INT64"}, {"a": 7}),
    ("of-a-field-that-was-moved", [move("/a", "/b"), cast("text", src="/b")], {"a": 7}, {"b": "STRING"}, {"b": "7"}),
    ("that-moves-with-its-field", [cast("text", src="/a"), move("/a", "/b")], {"a": 7}, {"b": "STRING"}, {"b": "7"}),
    (
        "inside-an-object-that-moves",
        [cast("text", src="/o/a"), move("/o", "/p/q")],
        {"o": {"a": 7}},
        {"p_q_a": "STRING"},
        {"p_q_a": "7"},
    ),
    ("where-the-last-wins", [cast("text", src="/a"), cast("bigint", src="/a")], {"a": "7"}, {"a": "INT64"}, {"a": 7}),
    ("to-text", [cast("text", src="/a")], {"a": 1.5}, {"a": "STRING"}, {"a": "1.5"}),
    ("to-double", [cast("double precision", src="/a")], {"a": 7}, {"a": "double precision"}, {"a": 7.0}),
    ("to-boolean", [cast("boolean", src="/a")], {"a": 1}, {"a": "BOOL"}, {"a": True}),
    ("to-integer", [cast("integer", src="/a")], {"a": "12"}, {"a": "integer"}, {"a": 12}),
    (
        "to-timestamp",
        [cast("timestamp with time zone", src="/a")],
        {"a": "2024-05-01T12:00:00+02:00"},
        {"a": "TIMESTAMP"},
        {"a": at("2024-05-01T10:00:00+00:00")},
    ),
    (
        "that-cannot-be-done-keeps-the-value",
        [cast("bigint", src="/a")],
        {"a": "x", "b": 1},
        {"a": "INT64", "b": "INT64", "_unmapped": "JSON"},
        {"b": 1, "_unmapped": {"a": "x"}},
    ),
    (
        "that-would-overflow-keeps-the-value",
        [cast("smallint", src="/a")],
        {"a": 40000, "b": 1},
        {"a": "smallint", "b": "INT64", "_unmapped": "JSON"},
        {"b": 1, "_unmapped": {"a": 40000}},
    ),
    ("of-a-missing-field-makes-no-column", [cast("bigint", src="/x")], {"a": 1}, {"a": "INT64"}, {"a": 1}),
    ("of-a-constant", [constant("/a", "7", type="bigint")], {"b": 1}, {"a": "INT64", "b": "INT64"}, {"a": 7, "b": 1}),
    ("of-an-array-to-text", [cast("text", src="/a")], {"a": [1]}, {"a": "STRING"}, {"a": "[1]"}),
]

EVENT = {"_timestamp": TIME, "eventn_ctx": {"event_id": "e1", "url": "/x"}, "a": 1, "b": {"c": 2, "d": 3}}
ALWAYS = {"_timestamp": "TIMESTAMP", "eventn_ctx_event_id": "STRING"}
KEPT = {"_timestamp": at("2024-05-01T10:00:00.123456+00:00"), "eventn_ctx_event_id": "e1"}
UNNAMED: list[tuple[str, list[Rule], dict[str, str], dict[str, object]]] = [
    ("nothing-else", [], {}, {}),
    ("what-was-moved", [move("/b/c", "/x")], {"x": "INT64"}, {"x": 2}),
    ("a-whole-subtree", [move("/b", "/x")], {"x_c": "INT64", "x_d": "INT64"}, {"x_c": 2, "x_d": 3}),
    ("what-was-cast", [cast("text", src="/a")], {"a": "STRING"}, {"a": "1"}),
    ("constants", [constant("/k", "v")], {"k": "STRING"}, {"k": "v"}),
    ("the-end-of-a-chain", [move("/a", "/t"), move("/t", "/z")], {"z": "INT64"}, {"z": 1}),
]

BLOCKED: list[tuple[str, list[Rule], dict[str, object], list[str]]] = [
    ("a-number", [move("/b", "/a/y")], {"a": 5, "b": 1}, ["/a", "not an object"]),
    ("a-string-further-down", [move("/b", "/a/x/y/z")], {"a": {"x": "s"}, "b": 1}, ["/a/x", "not an object"]),
    ("an-array", [move("/b", "/a/y")], {"a": [1], "b": 1}, ["/a", "not an object"]),
    ("a-constant", [constant("/a/y", 1)], {"a": True}, ["/a", "not an object"]),
    # The root is an object; a number cannot be spread over it.
    ("a-scalar-to-the-root", [move("/a", "/")], {"a": 1}, ["/a", "not an object"]),
]

CASES: list[Case] = [
    *(
        either_way(f"a-move-{name}", [event], outcome(columns, [row]), steps=mapping(*rules), engines=MODEL_ONLY)
        for name, rules, event, columns, row in MOVES
    ),
    *(
        either_way(f"a-cast-{name}", [event], outcome(columns, [row]), steps=mapping(*rules), engines=MODEL_ONLY)
        for name, rules, event, columns, row in CASTS
    ),
    *(
        either_way(
            f"a-constant-sets-{name}",
            [{"a": 1, "c": "old"}],
            outcome({"a": "INT64", **columns}, [{"a": 1, **row}]),
            steps=mapping(constant("/c", value)),
            engines=MODEL_ONLY,
        )
        for name, value, columns, row in CONSTANTS
    ),
    *(
        either_way(
            f"without-keep_unmapped-there-is-{name}",
            [EVENT],
            outcome({**ALWAYS, **columns}, [{**KEPT, **row}]),
            steps=mapping(*rules, keep_unmapped=False),
            engines=MODEL_ONLY,
        )
        for name, rules, columns, row in UNNAMED
    ),
    *(
        either_way(
            f"a-path-is-blocked-by-{name}",
            [event, {"fine": 1}],
            outcome(
                {"fine": "INT64", **({"a_y": "INT64"} if name == "a-constant" else {})},
                [{"fine": 1, **({"a_y": 1} if name == "a-constant" else {})}],
                failed={0: words},
            ),
            steps=mapping(*rules),
            engines=MODEL_ONLY,
        )
        for name, rules, event, words in BLOCKED
    ),
    either_way(
        "a-constant-goes-into-an-object",
        [{"a": {"x": 1}}, {"b": 1}],
        outcome({"a_x": "INT64", "a_y": "STRING", "b": "INT64"}, [{"a_x": 1, "a_y": "k"}, {"b": 1, "a_y": "k"}]),
        steps=mapping(constant("/a/y", "k")),
        engines=MODEL_ONLY,
    ),
    either_way(
        "a-remove-takes-a-subtree",
        [{"a": {"b": {"c": 1, "d": 2}, "e": 3}, "f": 4}],
        outcome({"a_e": "INT64", "f": "INT64"}, [{"a_e": 3, "f": 4}]),
        steps=mapping(remove("/a/b")),
        engines=MODEL_ONLY,
    ),
    either_way(
        "a-remove-of-what-is-not-there-does-nothing",
        [{"a": 1}],
        outcome({"a": "INT64"}, [{"a": 1}]),
        steps=mapping(remove("/b/c")),
        engines=MODEL_ONLY,
    ),
    either_way(
        "a-remove-of-everything-skips-the-row",
        [{"a": 1}],
        outcome(skipped=1),
        steps=mapping(remove("/a")),
        engines=MODEL_ONLY,
    ),
    either_way(
        "two-map-steps-run-one-after-the-other",
        [{"a": "7"}],
        outcome({"c": "INT64"}, [{"c": 7}]),
        steps=[*mapping(move("/a", "/b")), *mapping(move("/b", "/c", type="bigint"))],
        engines=MODEL_ONLY,
    ),
    either_way(
        "casts-of-every-kind-on-every-engine",
        [
            {"b": 1, "i": "12", "l": "7", "d": 7, "t": 1.5, "m": "19.99", "at": "2024-05-01T12:00:00+02:00"},
            {"b": 5, "i": 2**40, "l": "x", "d": "y", "t": [1], "m": 1e15, "at": "soon"},
        ],
        outcome(
            {
                "b": "BOOL",
                "i": "integer",
                "l": "INT64",
                "d": "double precision",
                "t": "STRING",
                "m": "numeric(12,2)",
                "at": "TIMESTAMP",
                "_unmapped": "JSON",
            },
            [
                {"b": True, "i": 12, "l": 7, "d": 7.0, "t": "1.5", "m": 19.99, "at": at("2024-05-01T10:00:00Z")},
                {"t": "[1]", "_unmapped": {"b": 5, "i": 2**40, "l": "x", "d": "y", "m": 1e15, "at": "soon"}},
            ],
        ),
        steps=mapping(
            cast("boolean", src="/b"),
            cast("integer", src="/i"),
            cast("bigint", src="/l"),
            cast("text", src="/t"),
            cast("double precision", src="/d"),
            cast("numeric(12,2)", src="/m"),
            cast("timestamp with time zone", src="/at"),
        ),
        engines=EVERY_ENGINE,
    ),
    either_way(
        "a-cast-to-milliseconds-takes-milliseconds-and-cuts-nothing",
        [{"a": "2024-05-01T10:00:00.123Z"}, {"a": "2024-05-01T10:00:00.123456Z"}],
        outcome(
            {"a": "timestamp(3) with time zone", "_unmapped": "JSON"},
            [{"a": at("2024-05-01T10:00:00.123+00:00")}, {"_unmapped": {"a": "2024-05-01T10:00:00.123456Z"}}],
        ),
        steps=mapping(cast("timestamp(3) with time zone", src="/a")),
        engines=NUMERIC,
    ),
    either_way(
        "default-casts-make-timestamps",
        [{"_timestamp": TIME, "eventn_ctx": {"utc_time": "2024-05-01T10:00:00Z"}}],
        outcome(
            {"_timestamp": "TIMESTAMP", "eventn_ctx_utc_time": "TIMESTAMP"},
            [{"_timestamp": at(TIME), "eventn_ctx_utc_time": at("2024-05-01T10:00:00Z")}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("_timestamp" timestamp with time zone,'
                ' "eventn_ctx_utc_time" timestamp with time zone)'
            ],
        ),
    ),
    either_way(
        "a-default-cast-can-be-overruled",
        [{"_timestamp": TIME}],
        outcome({"_timestamp": "STRING"}, [{"_timestamp": TIME}]),
        steps=mapping(cast("text", src="/_timestamp")),
        engines=MODEL_ONLY,
    ),
    either_way(
        "a-default-cast-moves-with-its-field",
        [{"_timestamp": TIME}],
        outcome({"received_at": "TIMESTAMP"}, [{"received_at": at(TIME)}]),
        steps=mapping(move("/_timestamp", "/received_at")),
        engines=MODEL_ONLY,
    ),
    either_way(
        "a-timestamp-that-is-none-is-kept-aside",
        [{"_timestamp": "soon", "a": 1}, {"_timestamp": 1714557600, "a": 2}],
        outcome(
            {"_timestamp": "TIMESTAMP", "a": "INT64", "_unmapped": "JSON"},
            [{"a": 1, "_unmapped": {"_timestamp": "soon"}}, {"a": 2, "_unmapped": {"_timestamp": 1714557600}}],
        ),
    ),
    either_way(
        "a-cast-to-money-keeps-its-cents",
        [{"price": 19.99}, {"price": "7"}, {"price": 3}],
        outcome(
            {"price": "numeric(12,2)"},
            [{"price": 19.99}, {"price": 7.0}, {"price": 3.0}],
            ddl=['CREATE TABLE IF NOT EXISTS "events" ("price" numeric(12,2))'],
        ),
        steps=mapping(cast("numeric(12,2)", src="/price")),
    ),
    in_turn(
        "a-cast-is-the-same-in-every-batch",
        [[{"a": 1}], [{"a": "2"}, {"a": 3.0}], [{"a": "x"}]],
        outcome({"a": "STRING"}, [{"a": "1"}, {"a": "2"}, {"a": "3.0"}, {"a": "x"}]),
        steps=mapping(cast("text", src="/a")),
    ),
    either_way(
        "numbers-that-a-rule-does-not-touch-stay-verbatim",
        [b'{"a":[1.50,1e2],"b":12345678901234567890123,"c":"\\u00e9"}'],
        outcome(
            {"x": "STRING", "b": "STRING", "c": "STRING"},
            [{"x": "[1.50,1e2]", "b": "12345678901234567890123", "c": "é"}],
        ),
        steps=mapping(move("/a", "/x")),
        engines=MODEL_ONLY,
    ),
]
