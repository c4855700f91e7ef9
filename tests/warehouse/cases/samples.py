"""The sample of cases that must hold, those that are about rows (the others are in ``test_samples.py``)."""

from __future__ import annotations

from tests.warehouse.case import Case, at_once, either_way, in_turn, mapping, move, outcome

EQUAL = [{"eventn_ctx": {"event_id": "e1"}, "v": 1}] * 5

CASES: list[Case] = [
    either_way(
        "sample-1-nested-keys-become-columns",
        [{"a": {"b": {"c": 1}}, "d": "x"}],
        outcome(
            {"a_b_c": "INT64", "d": "STRING"},
            [{"a_b_c": 1, "d": "x"}],
            ddl=['CREATE TABLE IF NOT EXISTS "events" ("a_b_c" bigint, "d" text)'],
        ),
    ),
    either_way(
        "sample-2-an-array-is-its-json-verbatim",
        [b'{"a":[1,2.50,"x",null]}'],
        outcome({"a": "STRING"}, [{"a": '[1,2.50,"x",null]'}]),
    ),
    at_once(
        "sample-3-an-integer-and-a-float",
        [{"a": 1}, {"a": 1.5}],
        outcome(
            {"a": "FLOAT64"}, [{"a": 1.0}, {"a": 1.5}], ddl=['CREATE TABLE IF NOT EXISTS "events" ("a" numeric(38,18))']
        ),
        streamed=outcome(
            {"a": "INT64", "_unmapped": "JSON"},
            [{"a": 1}, {"_unmapped": {"a": 1.5}}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("a" bigint)',
                'ALTER TABLE "events" ADD COLUMN "_unmapped" jsonb',
            ],
        ),
    ),
    at_once(
        "sample-3-a-boolean-and-an-integer",
        [{"a": True}, {"a": 7}],
        outcome({"a": "INT64"}, [{"a": 1}, {"a": 7}]),
        streamed=outcome({"a": "BOOL", "_unmapped": "JSON"}, [{"a": True}, {"_unmapped": {"a": 7}}]),
    ),
    at_once(
        "sample-3-a-timestamp-and-a-string",
        [{"a": "2024-05-01T10:00:00Z"}, {"a": "x"}],
        outcome({"a": "STRING"}, [{"a": "2024-05-01T10:00:00Z"}, {"a": "x"}]),
        options={"infer_timestamps": True},
    ),
    either_way(
        "sample-4-a-move-into-an-object-keeps-what-is-there",
        [{"a": {"x": 1}, "b": 2}],
        outcome({"a_x": "INT64", "a_y": "INT64"}, [{"a_x": 1, "a_y": 2}]),
        steps=mapping(move("/b", "/a/y")),
    ),
    either_way(
        "sample-5-a-move-with-a-type",
        [{"UserId": "7"}, {"UserId": 8}],
        outcome({"uid": "INT64"}, [{"uid": 7}, {"uid": 8}], ddl=['CREATE TABLE IF NOT EXISTS "events" ("uid" bigint)']),
        steps=mapping(move("/UserId", "/UID", type="bigint")),
    ),
    in_turn(
        "sample-7-text-into-a-column-of-integers",
        [[{"a": 1}], [{"a": "x"}]],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1}, {"_unmapped": {"a": "x"}}]),
    ),
    either_way(
        "sample-8-five-equal-events-with-a-key-are-one-row",
        EQUAL,
        outcome(
            {"eventn_ctx_event_id": "STRING", "v": "INT64"},
            [{"eventn_ctx_event_id": "e1", "v": 1}],
            ddl=[
                'CREATE TABLE IF NOT EXISTS "events" ("eventn_ctx_event_id" text, "v" bigint,'
                ' CONSTRAINT "events_penstock_key" PRIMARY KEY ("eventn_ctx_event_id"))'
            ],
        ),
        options={"primary_key": ["eventn_ctx_event_id"]},
    ),
]
