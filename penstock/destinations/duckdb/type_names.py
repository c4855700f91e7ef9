"""The types of DuckDB, and the words of others that Penstock spells for it."""

from __future__ import annotations

from penstock.destinations.sql.type_names import TypeNames, digits, fraction, length, named

_MOST_TEXT = 2**31 - 1

DUCKDB_TYPES = TypeNames(
    "DuckDB",
    known={
        **named("tinyint, int1, smallint, int2, int16, short, integer, int, int4, int32, signed, integral"),
        **named("bigint, int8, int64, long, oid, hugeint, int128, bignum, varint"),
        **named("utinyint, uint8, usmallint, uint16, uinteger, uint32, ubigint, uint64, uhugeint, uint128"),
        **named("boolean, bool, logical, double, double precision, float8, real, float4"),
        **named("float", length(53)),
        **named("numeric, decimal, dec", digits(38)),
        **named("varchar, char, bpchar, text, string, nvarchar, character varying, character", length(_MOST_TEXT)),
        **named("bit, bitstring, blob, bytea, binary, varbinary, date, interval, uuid, guid, json, jsonb, variant"),
        **named("timestamp", fraction(9)),
        **named("timestamp with time zone, timestamp without time zone, timestamptz, datetime"),
        **named("timestamp_s, timestamp_ms, timestamp_us, timestamp_ns, timestamp_tz, timestamptz_ns"),
        **named("time, timetz, time with time zone, time without time zone, time_ns, geometry"),
    },
    arrays=True,
    instead={
        "float64": "double", "float32": "real", "number": "numeric", "timestamp_ntz": "timestamp",
        "timestamp_ltz": "timestamptz", "super": "json",
    },
)  # fmt: skip
