"""The types of Snowflake, and the words of others that Penstock spells for it."""

from __future__ import annotations

from penstock.destinations.sql.type_names import TypeNames, digits, fraction, length, named

_MOST_TEXT = 134_217_728

SNOWFLAKE_TYPES = TypeNames(
    "Snowflake",
    known={
        **named("int, integer, bigint, smallint, tinyint, byteint, boolean, bool"),
        **named("float, float4, float8, double, double precision, real, decfloat"),
        **named("number, numeric, decimal, dec", digits(38, 37)),
        **named("varchar, char, character, nchar, string, text, nvarchar, nvarchar2", length(_MOST_TEXT)),
        **named("character varying, char varying, nchar varying", length(_MOST_TEXT)),
        **named("binary, varbinary", length(67_108_864)),
        **named("timestamp, timestamp_ntz, timestamp_ltz, timestamp_tz, datetime, time", fraction(9)),
        **named("timestampntz, timestampltz, timestamptz", fraction(9)),
        **named("timestamp with time zone, timestamp without time zone"),
        **named("date, variant, object, array, geography, geometry, json, jsonb, uuid"),
    },
    instead={
        "int64": "bigint", "int8": "bigint", "long": "bigint", "int4": "integer", "int32": "integer",
        "int2": "smallint", "int16": "smallint", "float64": "double", "float32": "float", "bytea": "binary",
        "blob": "binary", "super": "variant",
    },
)  # fmt: skip
