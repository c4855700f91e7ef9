"""The types of BigQuery, and the words of others that Penstock spells for it."""

from __future__ import annotations

from penstock.destinations.sql.type_names import TypeNames, digits, fraction, length, named, times

BIGQUERY_TYPES = TypeNames(
    "BigQuery",
    known={
        **named("int64, bigint, int8, long, integer, int, int4, int32, smallint, int2, int16, bool, boolean"),
        **named("float64, double, double precision, float, float8, real, float4, float32"),
        **named("numeric, decimal, number", digits(38)),
        **named(
            "bignumeric, bigdecimal, bytes, bytea, date, time, datetime, json, jsonb, variant, super, timestamp_ntz"
        ),
        **named("varchar, character varying, char, character", length(1_000_000_000)),
        **named("string, text"),
        **times(words="timestamp"),
        **named("timestamp without time zone"),
        **named("timestamptz, timestamp_tz, timestamp_ltz", fraction()),
        **named("timestamp_s, timestamp_ms, datetime64"),
    },
    instead={"tinyint": "int64", "blob": "bytes", "binary": "bytes", "uuid": "string", "object": "json"},
)
