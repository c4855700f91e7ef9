"""DuckDB's words for things."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

import duckdb

from penstock.destinations.sql.dialect import Dialect, not_a_type
from penstock.flatten.types import InnerType, promotions


class DuckdbDialect(Dialect):
    def cast_type(self, asked: str) -> str:
        """Spelled as DuckDB's catalogue does; a type that it does not have is refused."""
        return _canonical(super().cast_type(asked))

    def both_kept(self, there: str, comes: str, carried: Mapping[str, str]) -> str:
        # A member that a patch has as null is taken out.
        gone = ", ".join(
            f"CASE WHEN {value} IS NOT NULL THEN {self.literal(json.dumps(name) + ':null')} END"
            for name, value in carried.items()
        )
        taken = f"'{{' || concat_ws(',', {gone}) || '}}'" if gone else "'{}'"
        merged = f"NULLIF(json_merge_patch({there}, {taken}, COALESCE({comes}, '{{}}')), '{{}}')"
        return f"CASE WHEN {there} IS NULL THEN {comes} ELSE {merged} END"

    def is_aside(self, spare: str, name: str) -> str:
        return f"json_exists({spare}, {self.literal(f'$.{json.dumps(name)}')})"


_T = InnerType

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
    # A bare numeric would be DECIMAL(18,3) and round what numeric(38,18), its meaning elsewhere in Penstock, keeps.
    spellings={
        "numeric": "DECIMAL(38,18)",
        "decimal": "DECIMAL(38,18)",
        "jsonb": "JSON",
        "timestamp_tz": "TIMESTAMPTZ",
    },
    widens=promotions(),
    # DuckDB can neither drop a key again nor widen a column of a table that has one. It has one writer at a time, so
    # merging is safe without.
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
