"""``schema: freeze`` and ``max_columns``: fields that get no column are kept in ``_unmapped``."""

from __future__ import annotations

from tests.warehouse.case import MODEL_ONLY, Case, Existing, at_once, either_way, in_turn, outcome

FREEZE = {"schema": "freeze"}

CASES: list[Case] = [
    in_turn(
        "frozen-new-fields-are-kept-aside",
        [[{"a": 1}], [{"a": 2, "b": {"c": "x"}, "d": 1.5, "e": [1, 2], "f": True}]],
        outcome(
            {"a": "INT64", "_unmapped": "JSON"},
            [{"a": 1}, {"a": 2, "_unmapped": {"b_c": "x", "d": 1.5, "e": [1, 2], "f": True}}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("a" bigint)',
                'ALTER TABLE "events" ADD COLUMN "_unmapped" jsonb',
            ],
        ),
        options=FREEZE,
    ),
    either_way(
        "frozen-a-table-that-does-not-exist-is-made",
        [{"a": 1, "b": "x"}],
        outcome({"a": "INT64", "b": "STRING"}, [{"a": 1, "b": "x"}]),
        options=FREEZE,
        engines=MODEL_ONLY,
    ),
    either_way(
        "frozen-a-row-of-nothing-but-new-fields-loads",
        [{"b": "x"}, {"c": 9223372036854775808}],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"_unmapped": {"b": "x"}}, {"_unmapped": {"c": 2**63}}]),
        options=FREEZE,
        existing=Existing({"a": "INT64"}),
    ),
    either_way(
        "frozen-conflicts-are-kept-beside-new-fields",
        [{"a": "x", "b": 1}, {"a": 2}],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"_unmapped": {"a": "x", "b": 1}}, {"a": 2}]),
        options=FREEZE,
        existing=Existing({"a": "INT64"}),
    ),
    in_turn(
        "frozen-a-table-with-a-spare-column-is-not-touched",
        [[{"a": 1, "b": 2}], [{"c": 3}]],
        outcome(
            {"a": "INT64", "_unmapped": "JSON"}, [{"a": 1, "_unmapped": {"b": 2}}, {"_unmapped": {"c": 3}}], ddl=[]
        ),
        options=FREEZE,
        existing=Existing({"a": "INT64", "_unmapped": "JSON"}),
    ),
    in_turn(
        "frozen-and-then-thawed",
        [[{"a": 1, "b": 2}], [{"a": 2, "b": 3}]],
        outcome({"a": "INT64", "_unmapped": "JSON", "b": "INT64"}, [{"a": 1, "_unmapped": {"b": 2}}, {"a": 2, "b": 3}]),
        options=FREEZE,
        later={"schema": "evolve"},
        existing=Existing({"a": "INT64"}),
    ),
    either_way(
        "frozen-new-fields-that-collide",
        [{"B": 1, "b": 2, "a": 1}],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1, "_unmapped": {"b": 1, "/b": 2}}]),
        options=FREEZE,
        existing=Existing({"a": "INT64"}),
        engines=MODEL_ONLY,
    ),
    at_once(
        # New fields of one batch may have several types; each is kept as it was sent.
        "frozen-new-fields-of-several-types-keep-their-values",
        [{"a": 1, "b": 1}, {"a": 2, "b": "1"}, {"a": 3, "b": 1.5}, {"a": 4, "b": True}, {"a": 5, "b": [1]}],
        outcome(
            {"a": "INT64", "_unmapped": "JSON"},
            [
                {"a": 1, "_unmapped": {"b": 1}},
                {"a": 2, "_unmapped": {"b": "1"}},
                {"a": 3, "_unmapped": {"b": 1.5}},
                {"a": 4, "_unmapped": {"b": True}},
                {"a": 5, "_unmapped": {"b": [1]}},
            ],
        ),
        options=FREEZE,
        existing=Existing({"a": "INT64"}),
    ),
    at_once(
        # The same without text among them: true is not 1 because its neighbour is a number.
        "frozen-booleans-and-numbers-keep-their-values",
        [{"a": 1, "b": 7}, {"a": 2, "b": True}],
        outcome(
            {"a": "INT64", "_unmapped": "JSON"}, [{"a": 1, "_unmapped": {"b": 7}}, {"a": 2, "_unmapped": {"b": True}}]
        ),
        options=FREEZE,
        existing=Existing({"a": "INT64"}),
        engines=MODEL_ONLY,
    ),
    either_way(
        "max-columns-the-first-fields-have-them",
        [{f"f{number}": number for number in range(5)}],
        outcome(
            {"f0": "INT64", "f1": "INT64", "f2": "INT64", "_unmapped": "JSON"},
            [{"f0": 0, "f1": 1, "f2": 2, "_unmapped": {"f3": 3, "f4": 4}}],
            ddl=['CREATE TABLE IF NOT EXISTS "events" ("f0" bigint, "f1" bigint, "f2" bigint, "_unmapped" jsonb)'],
        ),
        options={"max_columns": 3},
    ),
    in_turn(
        "max-columns-a-full-table-takes-no-more",
        [[{"a": 1, "b": 2}], [{"a": 3, "c": True}], [{"b": 4, "d": "x"}]],
        outcome(
            {"a": "INT64", "b": "INT64", "_unmapped": "JSON"},
            [{"a": 1, "b": 2}, {"a": 3, "_unmapped": {"c": True}}, {"b": 4, "_unmapped": {"d": "x"}}],
        ),
        options={"max_columns": 2},
    ),
    in_turn(
        "max-columns-there-is-room-for-some",
        [[{"a": 1}], [{"b": 2, "c": 3, "d": 4}]],
        outcome({"a": "INT64", "b": "INT64", "_unmapped": "JSON"}, [{"a": 1}, {"b": 2, "_unmapped": {"c": 3, "d": 4}}]),
        options={"max_columns": 2},
        engines=MODEL_ONLY,
    ),
    either_way(
        "max-columns-exactly-as-many-as-allowed",
        [{"a": 1, "b": 2}],
        outcome({"a": "INT64", "b": "INT64"}, [{"a": 1, "b": 2}]),
        options={"max_columns": 2},
        engines=MODEL_ONLY,
    ),
    either_way(
        "max-columns-the-key-has-a-column-first",
        [{"a": 1, "b": 2, "id": 7}],
        outcome({"a": "INT64", "id": "INT64", "_unmapped": "JSON"}, [{"a": 1, "id": 7, "_unmapped": {"b": 2}}]),
        options={"max_columns": 2, "primary_key": ["id"]},
    ),
    either_way(
        "max-columns-can-be-one",
        [{"a": 1, "b": 2}, {"a": 2}],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1, "_unmapped": {"b": 2}}, {"a": 2}]),
        options={"max_columns": 1},
        engines=MODEL_ONLY,
    ),
]
