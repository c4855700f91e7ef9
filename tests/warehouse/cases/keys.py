"""Primary keys: loading is an upsert, in stream and in batch alike."""

from __future__ import annotations

from tests.warehouse.case import (
    MODEL_ONLY,
    NUMERIC,
    Case,
    Existing,
    at,
    at_once,
    either_way,
    in_turn,
    mapping,
    move,
    outcome,
)

ID = {"primary_key": ["id"]}
VERSIONED = {"primary_key": ["id"], "version_column": "v"}
TIME = "2024-05-01T10:00:00Z"

CASES: list[Case] = [
    either_way(
        "key-the-last-event-wins",
        [{"id": 1, "a": 1}, {"id": 2, "a": 2}, {"id": 1, "a": 3}],
        outcome({"id": "INT64", "a": "INT64"}, [{"id": 1, "a": 3}, {"id": 2, "a": 2}]),
        options=ID,
    ),
    either_way(
        "key-columns-that-an-event-does-not-carry-keep-their-value",
        [{"id": 1, "a": 1, "b": "x"}, {"id": 1, "a": 2}, {"id": 1, "c": True}],
        outcome({"id": "INT64", "a": "INT64", "b": "STRING", "c": "BOOL"}, [{"id": 1, "a": 2, "b": "x", "c": True}]),
        options=ID,
    ),
    either_way(
        # A null vanishes like in any other event: it is not carried, and removes nothing.
        "key-a-null-is-not-carried",
        [{"id": 1, "a": 1}, {"id": 1, "a": None}],
        outcome({"id": "INT64", "a": "INT64"}, [{"id": 1, "a": 1}]),
        options=ID,
        engines=NUMERIC,
    ),
    either_way(
        "key-an-empty-string-is-carried",
        [{"id": 1, "a": "x"}, {"id": 1, "a": ""}],
        outcome({"id": "INT64", "a": "STRING"}, [{"id": 1, "a": ""}]),
        options=ID,
        engines=NUMERIC,
    ),
    either_way(
        "key-an-event-of-nothing-but-its-key",
        [{"id": 1, "a": 1}, {"id": 1}, {"id": 2}],
        outcome({"id": "INT64", "a": "INT64"}, [{"id": 1, "a": 1}, {"id": 2}]),
        options=ID,
        engines=NUMERIC,
    ),
    either_way(
        "key-a-table-of-nothing-but-its-key",
        [{"id": 1}, {"id": 1}, {"id": 2}],
        outcome({"id": "INT64"}, [{"id": 1}, {"id": 2}]),
        options=ID,
    ),
    either_way(
        "key-of-text",
        [{"id": "b", "n": 1}, {"id": "a", "n": 2}, {"id": "b", "n": 3}, {"id": "", "n": 4}, {"id": "B", "n": 5}],
        outcome(
            {"id": "STRING", "n": "INT64"},
            [{"id": "b", "n": 3}, {"id": "a", "n": 2}, {"id": "", "n": 4}, {"id": "B", "n": 5}],
        ),
        options=ID,
        engines=NUMERIC,
    ),
    either_way(
        "key-of-two-columns",
        [
            {"user": 1, "day": "mon", "n": 1},
            {"user": 1, "day": "tue", "n": 2},
            {"user": 2, "day": "mon", "n": 3},
            {"user": 1, "day": "mon", "n": 4},
        ],
        outcome(
            {"user": "INT64", "day": "STRING", "n": "INT64"},
            [
                {"user": 1, "day": "mon", "n": 4},
                {"user": 1, "day": "tue", "n": 2},
                {"user": 2, "day": "mon", "n": 3},
            ],
        ),
        options={"primary_key": ["user", "day"]},
    ),
    either_way(
        "key-of-two-columns-says-so",
        [{"user": 1, "day": "mon", "n": 1}],
        outcome(
            {"user": "INT64", "day": "STRING", "n": "INT64"},
            [{"user": 1, "day": "mon", "n": 1}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("user" bigint, "day" text, "n" bigint,'
                ' CONSTRAINT "events_penstock_key" PRIMARY KEY ("day", "user"))'
            ],
        ),
        options={"primary_key": ["day", "user"]},
        engines=NUMERIC,
    ),
    either_way(
        "key-that-is-a-timestamp",
        [{"_timestamp": TIME, "n": 1}, {"_timestamp": "2024-05-01T12:00:00+02:00", "n": 2}],
        outcome({"_timestamp": "TIMESTAMP", "n": "INT64"}, [{"_timestamp": at(TIME), "n": 2}]),
        options={"primary_key": ["_timestamp"]},
    ),
    either_way(
        "key-that-is-nested",
        [{"user": {"id": 1}, "n": 1}, {"user": {"id": 1}, "n": 2}],
        outcome({"user_id": "INT64", "n": "INT64"}, [{"user_id": 1, "n": 2}]),
        options={"primary_key": ["user_id"]},
        engines=NUMERIC,
    ),
    either_way(
        "key-that-a-rule-makes",
        [{"UserId": "7", "n": 1}, {"UserId": 7, "n": 2}],
        outcome({"id": "INT64", "n": "INT64"}, [{"id": 7, "n": 2}]),
        options=ID,
        steps=mapping(move("/UserId", "/id", type="bigint")),
        engines=NUMERIC,
    ),
    either_way(
        "key-that-is-missing-or-null-fails",
        [{"id": 1, "a": 1}, {"a": 2}, {"id": None, "a": 3}, {"id": 2, "a": 4}],
        outcome(
            {"id": "INT64", "a": "INT64"},
            [{"id": 1, "a": 1}, {"id": 2, "a": 4}],
            failed={1: ["key", "id"], 2: ["key", "id"]},
        ),
        options=ID,
    ),
    either_way(
        "key-that-no-event-has-makes-no-table",
        [{"a": 1}, {"a": 2}],
        outcome(failed={0: ["key", "id"], 1: ["key", "id"]}),
        options=ID,
    ),
    either_way(
        "key-of-two-columns-of-which-one-is-missing",
        [{"user": 1, "day": "mon", "n": 1}, {"user": 1, "n": 2}, {"day": "mon", "n": 3}],
        outcome(
            {"user": "INT64", "day": "STRING", "n": "INT64"},
            [{"user": 1, "day": "mon", "n": 1}],
            failed={1: ["day"], 2: ["user"]},
        ),
        options={"primary_key": ["user", "day"]},
        engines=NUMERIC,
    ),
    in_turn(
        "key-that-no-event-of-a-batch-has",
        [[{"id": 1, "a": 1}], [{"a": 2}], [{"b": 3}], [{"id": 1, "a": 4}]],
        outcome(
            {"id": "INT64", "a": "INT64", "b": "INT64"},
            [{"id": 1, "a": 4}],
            failed={1: ["key", "id"], 2: ["key", "id"]},
        ),
        options=ID,
    ),
    in_turn(
        # Their table, their columns: without one for the key nothing can be told apart, and nothing is lost.
        "key-that-a-frozen-table-has-no-column-for",
        [[{"id": 1, "a": 1}]],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [], failed={0: ["key", "id"]}),
        options={**ID, "schema": "freeze"},
        existing=Existing({"a": "INT64"}),
    ),
    in_turn(
        "key-that-the-config-changes-to-a-column-that-is-still-to-come",
        [[{"id": 1, "a": 1}], [{"id": 1, "a": 2}]],
        outcome({"id": "INT64", "a": "INT64"}, [{"id": 1, "a": 1}], failed={1: ["key", "b"]}),
        options=ID,
        later={"primary_key": ["id", "b"]},
    ),
    in_turn(
        "key-of-another-type-is-converted",
        [[{"id": 1, "a": 1}], [{"id": "1", "a": 2}], [{"id": 1.0, "a": 3}]],
        outcome({"id": "INT64", "a": "INT64"}, [{"id": 1, "a": 3}]),
        options=ID,
    ),
    at_once(
        "key-of-several-types-in-one-batch",
        [{"id": 1, "a": 1}, {"id": "1", "a": 2}, {"id": "x", "a": 3}],
        outcome({"id": "STRING", "a": "INT64"}, [{"id": "1", "a": 2}, {"id": "x", "a": 3}]),
        streamed=outcome(
            {"id": "INT64", "a": "INT64", "_unmapped": "JSON"}, [{"id": 1, "a": 2}], failed={2: ["key", "id"]}
        ),
        options=ID,
        engines=MODEL_ONLY,
    ),
    in_turn(
        "key-that-its-column-cannot-hold-fails",
        [[{"id": 1, "a": 1}], [{"id": "x", "a": 2}, {"id": 2, "a": 3}]],
        outcome(
            {"id": "INT64", "a": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "a": 1}, {"id": 2, "a": 3}],
            failed={1: ["id"]},
        ),
        options=ID,
    ),
    in_turn(
        # The event's value finds no place in the column: what was there is outdated, and what came is beside it.
        "key-a-conflict-in-another-column",
        [[{"id": 1, "a": 1, "b": 1}], [{"id": 1, "a": "x", "b": 2}]],
        outcome(
            {"id": "INT64", "a": "INT64", "b": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "b": 2, "_unmapped": {"a": "x"}}],
        ),
        options=ID,
    ),
    in_turn(
        "key-a-value-that-fits-again-goes-back-into-its-column",
        [
            [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 1}],
            [{"id": 1, "a": "x", "b": "y"}, {"id": 2, "a": "z"}],
            [{"id": 1, "a": 3}, {"id": 2, "a": 4}],
        ],
        outcome(
            {"id": "INT64", "a": "INT64", "b": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "a": 3, "_unmapped": {"b": "y"}}, {"id": 2, "a": 4, "b": 1}],
        ),
        options=ID,
    ),
    in_turn(
        "key-conflicts-and-values-that-fit-in-one-batch",
        [
            [{"id": 1, "a": 1}, {"id": 2, "a": 1}],
            [{"id": 1, "a": "x"}, {"id": 1, "a": 2}, {"id": 2, "a": 3}, {"id": 2, "a": "y"}],
        ],
        outcome(
            {"id": "INT64", "a": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "a": 2}, {"id": 2, "_unmapped": {"a": "y"}}],
        ),
        options=ID,
    ),
    in_turn(
        "key-a-cast-that-fails-empties-the-column-too",
        [
            [{"id": 1, "n": "1"}, {"id": 2, "n": "2"}],
            [{"id": 1, "n": "one"}],
            [{"id": 2, "n": "two"}, {"id": 2, "n": "22"}],
        ],
        outcome(
            {"id": "INT64", "n": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "_unmapped": {"n": "one"}}, {"id": 2, "n": 22}],
        ),
        steps=[{"map": {"fields": [{"src": "/n", "action": "cast", "type": "bigint"}]}}],
        options=ID,
    ),
    in_turn(
        "key-a-cast-of-our-own-that-fails-empties-the-column-too",
        [[{"id": 1, "_timestamp": "2024-05-01T10:00:00Z"}], [{"id": 1, "_timestamp": "soon"}]],
        outcome(
            {"id": "INT64", "_timestamp": "TIMESTAMP", "_unmapped": "JSON"},
            [{"id": 1, "_unmapped": {"_timestamp": "soon"}}],
        ),
        options=ID,
    ),
    in_turn(
        # A field that an event does not carry keeps its value, also where that value is not in a column.
        "key-what-is-kept-aside-is-kept-by-field",
        [[{"id": 1, "a": 1, "b": 1}], [{"id": 1, "a": "x"}], [{"id": 1, "b": "y"}], [{"id": 1, "a": "z"}]],
        outcome(
            {"id": "INT64", "a": "INT64", "b": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "_unmapped": {"a": "z", "b": "y"}}],
        ),
        options=ID,
    ),
    either_way(
        "key-what-a-frozen-table-keeps-aside-is-kept-by-field",
        [
            {"id": 1, "a": 1},
            {"id": 1, "b": True},
            {"id": 2, "c": "x"},
            {"id": 1, "c": [1.50, None]},
            {"id": 1, "b": False},
        ],
        outcome(
            {"id": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "_unmapped": {"a": 1, "b": False, "c": [1.5, None]}}, {"id": 2, "_unmapped": {"c": "x"}}],
        ),
        options={**ID, "schema": "freeze"},
        existing=Existing({"id": "INT64"}, "events_penstock_key", ("id",)),
        engines=NUMERIC,
    ),
    either_way(
        "key-what-is-kept-aside-keeps-its-digits",
        [b'{"id":1,"a":12345678901234567890123}', b'{"id":1,"b":0.1234567890123456789012}', b'{"id":1,"c":1e300}'],
        outcome(
            {"id": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "_unmapped": '{"a":12345678901234567890123,"b":0.1234567890123456789012,"c":1e300}'}],
        ),
        options={**ID, "schema": "freeze"},
        existing=Existing({"id": "INT64"}),
    ),
    in_turn(
        "key-over-batches-with-new-columns",
        [[{"id": 1, "a": 1}], [{"id": 1, "b": {"c": "x"}}, {"id": 2, "a": 5}], [{"id": 2, "b": {"c": "y"}}]],
        outcome(
            {"id": "INT64", "a": "INT64", "b_c": "STRING"},
            [{"id": 1, "a": 1, "b_c": "x"}, {"id": 2, "a": 5, "b_c": "y"}],
        ),
        options=ID,
        engines=NUMERIC,
    ),
    either_way(
        "version-the-highest-wins",
        [{"id": 1, "v": 2, "a": "two"}, {"id": 1, "v": 3, "a": "three"}, {"id": 1, "v": 1, "a": "one"}],
        outcome({"id": "INT64", "v": "INT64", "a": "STRING"}, [{"id": 1, "v": 3, "a": "three"}]),
        options=VERSIONED,
    ),
    either_way(
        "version-of-two-equal-ones-the-later-wins",
        [{"id": 1, "v": 2, "a": "first"}, {"id": 1, "v": 2, "a": "second"}],
        outcome({"id": "INT64", "v": "INT64", "a": "STRING"}, [{"id": 1, "v": 2, "a": "second"}]),
        options=VERSIONED,
        engines=NUMERIC,
    ),
    either_way(
        "version-a-lower-one-changes-nothing-not-even-what-is-empty",
        [{"id": 1, "v": 2, "a": "x"}, {"id": 1, "v": 1, "b": "late"}],
        outcome({"id": "INT64", "v": "INT64", "a": "STRING", "b": "STRING"}, [{"id": 1, "v": 2, "a": "x"}]),
        options=VERSIONED,
    ),
    either_way(
        # Nobody knows how old it is, so it does not go over what is known to be newer than something.
        "version-that-is-missing-is-the-lowest",
        [{"id": 1, "v": 2, "a": "x"}, {"id": 1, "a": "unknown"}],
        outcome({"id": "INT64", "v": "INT64", "a": "STRING"}, [{"id": 1, "v": 2, "a": "x"}]),
        options=VERSIONED,
    ),
    either_way(
        "version-that-comes-after-none-wins",
        [{"id": 1, "a": "unknown", "b": 1}, {"id": 1, "a": "later", "b": 2}, {"id": 1, "v": 1, "a": "x"}],
        outcome({"id": "INT64", "a": "STRING", "b": "INT64", "v": "INT64"}, [{"id": 1, "v": 1, "a": "x", "b": 2}]),
        options=VERSIONED,
    ),
    either_way(
        "version-that-nobody-sends-is-as-if-there-were-none",
        [{"id": 1, "a": 1}, {"id": 1, "a": 2}],
        outcome({"id": "INT64", "a": "INT64"}, [{"id": 1, "a": 2}]),
        options=VERSIONED,
        engines=NUMERIC,
    ),
    either_way(
        "version-that-is-a-timestamp",
        [
            {"id": 1, "_timestamp": "2024-05-02T00:00:00Z", "a": "newer"},
            {"id": 1, "_timestamp": "2024-05-01T23:00:00-05:00", "a": "newest"},
            {"id": 1, "_timestamp": "2024-05-01T00:00:00Z", "a": "older"},
        ],
        outcome(
            {"id": "INT64", "_timestamp": "TIMESTAMP", "a": "STRING"},
            [{"id": 1, "_timestamp": at("2024-05-02T04:00:00Z"), "a": "newest"}],
        ),
        options={"primary_key": ["id"], "version_column": "_timestamp"},
    ),
    either_way(
        "version-that-is-a-float",
        [{"id": 1, "v": 1.5, "a": 1}, {"id": 1, "v": 1.25, "a": 2}, {"id": 1, "v": 10.5, "a": 3}],
        outcome({"id": "INT64", "v": "FLOAT64", "a": "INT64"}, [{"id": 1, "v": 10.5, "a": 3}]),
        options=VERSIONED,
        engines=NUMERIC,
    ),
    in_turn(
        # As if each had come alone: what is older than the table's row says nothing, also beside one that is newer.
        "version-of-the-table-lies-between-those-of-a-batch",
        [
            [
                {"id": 1, "v": 5, "a": 1, "b": "kept"},
                {"id": 2, "v": 1, "a": 1, "b": "old"},
                {"id": 3, "a": 1, "b": "old"},
            ],
            [
                {"id": 1, "v": 3, "b": "late"},
                {"id": 1, "v": 7, "a": 2},
                {"id": 2, "v": 3, "b": "new"},
                {"id": 2, "v": 7, "a": 2},
                {"id": 3, "b": "new"},
                {"id": 3, "v": 1, "a": 2},
                {"id": 4, "b": "first"},
                {"id": 4, "v": 1, "a": 2},
                {"id": 5, "v": 1, "a": 5},
            ],
        ],
        outcome(
            {"id": "INT64", "v": "INT64", "a": "INT64", "b": "STRING"},
            [
                {"id": 1, "v": 7, "a": 2, "b": "kept"},
                {"id": 2, "v": 7, "a": 2, "b": "new"},
                {"id": 3, "v": 1, "a": 2, "b": "new"},
                {"id": 4, "v": 1, "a": 2, "b": "first"},
                {"id": 5, "v": 1, "a": 5},
            ],
        ),
        options=VERSIONED,
    ),
    in_turn(
        "version-of-the-table-lies-between-those-of-a-batch-with-conflicts",
        [
            [{"id": 1, "v": 5, "a": 1, "b": 1}, {"id": 2, "v": 5, "a": 1, "b": 1}],
            [
                {"id": 1, "v": 3, "b": "late"},
                {"id": 1, "v": 6, "a": "x"},
                {"id": 1, "v": 7, "b": 2},
                {"id": 2, "v": 6, "b": "x"},
                {"id": 2, "v": 6, "a": "y"},
                {"id": 2, "v": 8, "b": 9},
                {"id": 2, "v": 7, "a": 4},
            ],
        ],
        outcome(
            {"id": "INT64", "v": "INT64", "a": "INT64", "b": "INT64", "_unmapped": "JSON"},
            [{"id": 1, "v": 7, "b": 2, "_unmapped": {"a": "x"}}, {"id": 2, "v": 8, "b": 9, "_unmapped": {"a": "y"}}],
        ),
        options=VERSIONED,
    ),
    in_turn(
        # By its bytes, whatever the database's language: as the rows of one batch are compared.
        "version-that-is-text",
        [
            [{"id": 1, "v": "b", "a": 1, "b": 1}],
            [{"id": 1, "v": "C", "a": 2}, {"id": 1, "v": "a", "b": 2}, {"id": 1, "v": "c", "a": 3}],
            [{"id": 1, "v": "Z", "a": 4}],
        ],
        outcome({"id": "INT64", "v": "STRING", "a": "INT64", "b": "INT64"}, [{"id": 1, "v": "c", "a": 3, "b": 1}]),
        options=VERSIONED,
    ),
    either_way(
        "version-per-key",
        [{"id": 1, "v": 5, "a": 1}, {"id": 2, "v": 1, "a": 2}, {"id": 1, "v": 4, "a": 3}, {"id": 2, "v": 2, "a": 4}],
        outcome({"id": "INT64", "v": "INT64", "a": "INT64"}, [{"id": 1, "v": 5, "a": 1}, {"id": 2, "v": 2, "a": 4}]),
        options=VERSIONED,
        engines=NUMERIC,
    ),
    in_turn(
        "key-that-the-config-adds-later",
        [[{"id": 1, "a": 1}], [{"id": 1, "a": 2}, {"id": 2, "a": 3}]],
        outcome(
            {"id": "INT64", "a": "INT64"},
            [{"id": 1, "a": 2}, {"id": 2, "a": 3}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("id" bigint, "a" bigint)',
                'ALTER TABLE "events" ADD CONSTRAINT "events_penstock_key" PRIMARY KEY ("id")',
            ],
        ),
        later=ID,
    ),
    in_turn(
        "key-that-the-config-changes",
        [[{"id": 1, "b": 1}], [{"id": 1, "b": 2}, {"id": 1, "b": 2, "n": 1}]],
        outcome(
            {"id": "INT64", "b": "INT64", "n": "INT64"},
            [{"id": 1, "b": 1}, {"id": 1, "b": 2, "n": 1}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("id" bigint, "b" bigint,'
                ' CONSTRAINT "events_penstock_key" PRIMARY KEY ("id"))',
                'ALTER TABLE "events" ADD COLUMN "n" bigint',
                'ALTER TABLE "events" DROP CONSTRAINT "events_penstock_key", ALTER COLUMN "id" DROP NOT NULL',
                'ALTER TABLE "events" ADD CONSTRAINT "events_penstock_key" PRIMARY KEY ("id", "b")',
            ],
        ),
        options=ID,
        later={"primary_key": ["id", "b"]},
    ),
    in_turn(
        "key-that-the-config-drops",
        [[{"id": 1}], [{"id": 1}]],
        outcome(
            {"id": "INT64"},
            [{"id": 1}, {"id": 1}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("id" bigint,'
                ' CONSTRAINT "events_penstock_key" PRIMARY KEY ("id"))',
                'ALTER TABLE "events" DROP CONSTRAINT "events_penstock_key", ALTER COLUMN "id" DROP NOT NULL',
            ],
        ),
        options=ID,
        later={},
    ),
    either_way(
        "key-of-a-foreign-name-is-used-and-never-touched",
        [{"id": 1, "b": 1}, {"id": 1, "b": 2}],
        outcome({"id": "INT64", "b": "INT64"}, [{"id": 1, "b": 2}], ddl=[]),
        options={"primary_key": ["b"]},
        existing=Existing({"id": "INT64", "b": "INT64"}, "theirs", ("id",)),
        engines=NUMERIC,
    ),
    either_way(
        "key-of-a-foreign-name-is-used-without-a-config",
        [{"id": 1, "b": 1}, {"id": 1, "b": 2}, {"b": 3}],
        outcome({"id": "INT64", "b": "INT64"}, [{"id": 1, "b": 2}], failed={2: ["key", "id"]}, ddl=[]),
        existing=Existing({"id": "INT64", "b": "INT64"}, "theirs", ("id",)),
        engines=NUMERIC,
    ),
    either_way(
        "key-of-a-thousand-equal-events-is-one-row",
        [{"id": "same", "n": 7}] * 20,
        outcome({"id": "STRING", "n": "INT64"}, [{"id": "same", "n": 7}]),
        options=ID,
        engines=MODEL_ONLY,
    ),
    at_once(
        "key-and-widen",
        [{"id": 1, "a": 1}, {"id": 1, "a": "x"}],
        outcome({"id": "INT64", "a": "STRING"}, [{"id": 1, "a": "x"}]),
        streamed=outcome({"id": "INT64", "a": "STRING"}, [{"id": 1, "a": "x"}]),
        options={**ID, "on_type_conflict": "widen"},
    ),
    in_turn(
        "key-and-fail",
        [[{"id": 1, "a": 1}], [{"id": 1, "a": "x", "b": 2}, {"id": 1, "a": 3}]],
        outcome({"id": "INT64", "a": "INT64", "b": "INT64"}, [{"id": 1, "a": 3}], failed={1: ["'a'"]}),
        options={**ID, "on_type_conflict": "fail"},
        engines=NUMERIC,
    ),
]
