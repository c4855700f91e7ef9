"""DuckDB's words for things."""

from __future__ import annotations

from functools import cache

import duckdb

from penstock.destinations.sql.dialect import Dialect, not_a_type
from penstock.flatten.types import InnerType

MAX_NAME = 255


class DuckdbDialect(Dialect):
    def cast_type(self, asked: str) -> str:
        """Spelled as DuckDB's catalogue does, so that it can be compared with the type of a real column."""
        return _canonical(super().cast_type(asked))


DUCKDB = DuckdbDialect(
    types={
        InnerType.STRING: "VARCHAR",
        InnerType.FLOAT64: "DOUBLE",
        InnerType.INT64: "BIGINT",
        InnerType.BOOL: "BOOLEAN",
        InnerType.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    },
    json_type="JSON",
    # A bare numeric would be DECIMAL(18,3) and round what numeric(38,18), its meaning elsewhere in Penstock, keeps.
    spellings={
        "numeric": "DECIMAL(38,18)",
        "decimal": "DECIMAL(38,18)",
        "jsonb": "JSON",
        "timestamp_tz": "TIMESTAMPTZ",
    },
)


@cache
def _canonical(sql_type: str) -> str:
    with duckdb.connect() as connection:
        try:
            found = connection.execute(f"SELECT typeof(CAST(NULL AS {sql_type}))").fetchone()
        except duckdb.Error as error:
            raise not_a_type(sql_type, str(error).partition("\n")[0]) from error
    return str(found[0]) if found else sql_type
