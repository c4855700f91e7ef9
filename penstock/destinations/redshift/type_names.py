"""The types of Redshift, and the words of others that Penstock spells for it."""

from __future__ import annotations

from penstock.destinations.sql.type_names import NOTHING, TypeNames, digits, length, named, times

REDSHIFT_TYPES = TypeNames(
    "Redshift",
    known={
        **named("smallint, int2, integer, int, int4, bigint, int8, boolean, bool"),
        **named("real, float4, double precision, float8"),
        **named("float", length(53)),
        **named("numeric, decimal", digits(38, 37)),
        **named("char, character, nchar", length(4_096)),
        **named("varchar, character varying, nvarchar", length(65_535)),
        **named("varbyte, varbinary, binary varying", length(16_777_216)),
        **dict.fromkeys(times(), NOTHING),
        **named("timestamptz, timetz, date, text, bpchar, super, geometry, geography, hllsketch"),
        **named("interval year to month, interval day to second"),
        **named("string, double, float64, timestamp_tz, int64, long, json, jsonb"),
    },
    instead={
        "int32": "integer", "int16": "smallint", "tinyint": "smallint", "float32": "real", "number": "numeric",
        "datetime": "timestamp", "timestamp_ntz": "timestamp", "timestamp_ltz": "timestamptz", "bytea": "varbyte",
        "blob": "varbyte", "variant": "super", "uuid": "varchar(36)",
    },
)  # fmt: skip
