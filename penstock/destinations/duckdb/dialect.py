"""DuckDB's dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

import duckdb

from penstock.destinations.duckdb.merge_function import MERGE_UNMAPPED
from penstock.destinations.duckdb.type_names import DUCKDB_TYPES
from penstock.destinations.sql.dialect import Dialect, not_a_type
from penstock.destinations.sql.mirror.stage.declared_types import parse_declared
from penstock.flatten.casts import INTEGER, Cast
from penstock.flatten.inner_types import InnerType, promotions


class DuckdbDialect(Dialect):
    def parameter(self, name: str) -> str:
        return f"${name}"

    def cast_type(self, asked: str) -> str:
        """As DuckDB's catalogue spells it; a type that DuckDB does not have is refused."""
        return _canonical(super().cast_type(asked))

    def target(self, sql_type: str) -> Cast:
        return _OWN_TYPES.get(sql_type) or super().target(sql_type)

    def mirror_type(self, declared_type: str) -> str | None:
        asked = parse_declared(declared_type)
        if asked.is_array:
            return None
        if asked.name == "numeric":
            precision, scale = (*asked.arguments, 0)[:2] if asked.arguments else (38, 18)
            return f"DECIMAL({precision},{scale})" if scale <= precision <= 38 else None
        return _MIRRORED.get(asked.name)

    def holds(self, real: str, other: str) -> bool:
        # Both are read from text, but not of the same format.
        if "TIMESTAMP" in real and "TIMESTAMP" in other:
            return real == other
        return super().holds(real, other)

    def readable_pattern(self, sql_type: str) -> str | None:
        target = self.target(sql_type)
        if target.precision:
            whole, scale = target.precision - target.scale, target.scale
            return rf"^-?0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{scale}}}0*)?$"
        return _READS.get(sql_type)

    def merged_unmapped(self, there: str, comes: str, carried: Mapping[str, str]) -> str:
        """Leaves the text as it is if all old members go, or none; else our own function rebuilds it."""
        names = ", ".join(
            f"CASE WHEN {value} IS NOT NULL THEN {self.literal(name)} END" for name, value in carried.items()
        )
        gone = f"list_concat([{names}]::VARCHAR[], json_keys({comes}))"
        patched = f"CAST({MERGE_UNMAPPED}({there}::VARCHAR, {comes}::VARCHAR, [{names}]::VARCHAR[]) AS JSON)"
        added = f"CAST(left({there}::VARCHAR, -1) || ',' || substr({comes}::VARCHAR, 2) AS JSON)"
        return (
            f"CASE WHEN {there} IS NULL OR list_has_all({gone}, json_keys({there})) THEN {comes}"
            f" WHEN list_has_any(json_keys({there}), {gone}) THEN {patched} WHEN {comes} IS NULL THEN {there}"
            f" ELSE {added} END"
        )

    def is_unmapped(self, spare: str, name: str) -> str:
        return f"json_exists({spare}, {self.literal(f'$.{json.dumps(name)}')})"


_T = InnerType

_OWN_TYPES = {
    "FLOAT": Cast("FLOAT", _T.FLOAT64, bits=32),
    "TINYINT": Cast("TINYINT", _T.INT64, bits=8),
    # An unsigned number of 8 bits is a signed one of 9 that is not below zero.
    "UTINYINT": Cast("UTINYINT", _T.INT64, bits=9, unsigned=True),
    "USMALLINT": Cast("USMALLINT", _T.INT64, bits=17, unsigned=True),
    "UINTEGER": Cast("UINTEGER", _T.INT64, bits=33, unsigned=True),
    # As many digits as the type can always hold.
    "UBIGINT": Cast("UBIGINT", _T.FLOAT64, precision=19, unsigned=True),
    "HUGEINT": Cast("HUGEINT", _T.FLOAT64, precision=38),
    "UHUGEINT": Cast("UHUGEINT", _T.FLOAT64, precision=38, unsigned=True),
    "BIGNUM": Cast("BIGNUM", None, pattern=INTEGER),
}
_MIRRORED = {
    **dict.fromkeys(("text", "character varying", "character", "name"), "VARCHAR"),
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "time without time zone": "TIME",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
    "uuid": "UUID",
    **dict.fromkeys(("json", "jsonb"), "JSON"),
}
_DAY = r"[0-9]{4,5}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_READS = {
    "DATE": rf"^(-?infinity|{_DAY})$",
    "TIME": rf"^{_TIME}$",
    "TIMESTAMP": rf"^(-?infinity|{_DAY}([T ]{_TIME})?)$",
    "TIMESTAMP WITH TIME ZONE": rf"^(-?infinity|{_DAY}([T ]{_TIME}(Z|[+-][0-9]{{2}}(:[0-9]{{2}})?))?)$",
}
"""Texts that DuckDB reads as PostgreSQL means them: it reads years BC as years AD."""

DUCKDB = DuckdbDialect(
    types={
        _T.STRING: "VARCHAR",
        _T.FLOAT64: "DOUBLE",
        _T.INT64: "BIGINT",
        _T.BOOL: "BOOLEAN",
        _T.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    },
    json_type="JSON",
    max_name=255,
    known=DUCKDB_TYPES,
    # A bare numeric would be DECIMAL(18,3) and round what numeric(38,18), its meaning elsewhere in Penstock, keeps.
    spellings={
        "numeric": "DECIMAL(38,18)",
        "decimal": "DECIMAL(38,18)",
        "jsonb": "JSON",
        "timestamp_tz": "TIMESTAMPTZ",
    },
    widens=promotions(),
    # DuckDB can neither drop a key nor widen a column of a table with one. It has one writer at a time, so merging is
    # safe without a key.
    has_keys=False,
)


@cache
def _canonical(sql_type: str) -> str:
    with duckdb.connect() as connection:
        try:
            found = connection.execute(f"SELECT typeof(CAST(NULL AS {sql_type}))").fetchone()
        except duckdb.Error as error:
            raise not_a_type(sql_type, str(error).partition("\n")[0]) from error
    return str(found[0]) if found else sql_type
