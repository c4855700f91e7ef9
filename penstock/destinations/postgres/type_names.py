"""The types of PostgreSQL, of the extensions that most have, and the words of others that Penstock spells for it."""

from __future__ import annotations

from penstock.destinations.sql.type_names import Arguments, TypeNames, digits, fraction, length, named, times

_MOST = 10_485_760
_FIELDS = "year, month, day, hour, minute, second, year to month, day to hour, day to minute, day to second"
_INTERVALS = [*_FIELDS.split(", "), "hour to minute", "hour to second", "minute to second"]
_ANY_LENGTH = (
    "character varying, varchar, character, char, bpchar, national character, national character varying, nchar"
)

POSTGRES_TYPES = TypeNames(
    "PostgreSQL",
    known={
        **named("smallint, int2, integer, int, int4, bigint, int8, boolean, bool"),
        **named("real, float4, double precision, float8"),
        **named("float", length(53)),
        **named("numeric, decimal, dec", digits(1_000)),
        **named(_ANY_LENGTH, length(_MOST)),
        **named("bit, bit varying, varbit", length(83_886_080)),
        **times(),
        **named("timestamptz, timetz, interval", fraction()),
        **named(", ".join(f"interval {words}" for words in _INTERVALS)),
        **named("text, name, bytea, date, money, uuid, xml, json, jsonb, jsonpath, cidr, inet, macaddr, macaddr8"),
        **named("point, line, lseg, box, path, polygon, circle, tsvector, tsquery, oid, pg_lsn, xid, xid8, cid, tid"),
        **named("int4range, int8range, numrange, tsrange, tstzrange, daterange, regclass, regtype, regproc, regrole"),
        **named("int4multirange, int8multirange, nummultirange, tsmultirange, tstzmultirange, datemultirange"),
        **named("citext, hstore, ltree, lquery, ltxtquery, cube, seg, earth, isbn, isbn13, issn, ean13, upc"),
        **named("geometry, geography, raster, box2d, box3d", Arguments()),
        **named("vector, halfvec, sparsevec", length(1_000_000_000)),
        **named("string, double, timestamp_tz"),
    },
    arrays=True,
    own_types=True,
    instead={
        "int64": "bigint", "long": "bigint", "int32": "integer", "int16": "smallint", "tinyint": "smallint",
        "float64": "double precision", "float32": "real", "number": "numeric", "datetime": "timestamp",
        "timestamp_ntz": "timestamp", "timestamp_ltz": "timestamptz", "blob": "bytea", "variant": "jsonb",
        "super": "jsonb",
    },
)  # fmt: skip
