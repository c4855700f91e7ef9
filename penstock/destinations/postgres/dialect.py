"""PostgreSQL's words for things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.destinations.sql.config import FloatType
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.operations import Table, TypedColumn
from penstock.flatten.types import InnerType, promotions
from penstock.flatten.unmapped import UNMAPPED

_T = InnerType
TYPES = {
    _T.STRING: "text",
    _T.FLOAT64: "numeric(38,18)",
    _T.INT64: "bigint",
    _T.BOOL: "boolean",
    _T.TIMESTAMP: "timestamp with time zone",
}
SYSTEM_COLUMNS = frozenset(("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"))


@dataclass(frozen=True)
class PostgresDialect(Dialect):
    database_schema: str = "public"

    def relation(self, table: str) -> str:
        return f"{self.identifier(self.database_schema)}.{self.identifier(table)}"

    def widening(self, table: str, column: TypedColumn, was: str) -> str:
        """Values keep their meaning: ``true`` becomes 1, a number loses the zeros that only its type gave it."""
        name = self.identifier(column.name)
        inner = self.target(was).type
        value = name
        if inner is _T.BOOL and column.type != TYPES[_T.STRING]:
            value = f"{name}::integer"
        elif inner is _T.FLOAT64 and was.startswith("numeric"):
            value = f"trim_scale({name})"
        elif inner is _T.TIMESTAMP:
            value = f"to_char({name} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
        return f"ALTER TABLE {self.relation(table)} ALTER COLUMN {name} TYPE {column.type} USING {value}::{column.type}"

    def merge(self, table: Table, staged: str, columns: Sequence[str], key: Sequence[str], version: str | None) -> str:
        real = {name: self.identifier(table.columns[name].name) for name in columns}
        keys = [real[name] for name in key]
        spare = self.identifier(UNMAPPED)
        changes = [
            f"{name} = "
            + (self.both_kept if name == spare else "COALESCE({1}, {0})".format)(f"t.{name}", f"EXCLUDED.{name}")
            for name in real.values()
            if name not in keys
        ]
        listed = ", ".join(real.values())
        action = f"UPDATE SET {', '.join(changes)}" if changes else "NOTHING"
        newer = ""
        if changes and version in real:
            newer = f" WHERE t.{real[version]} IS NULL OR EXCLUDED.{real[version]} >= t.{real[version]}"
        return (
            f"INSERT INTO {self.relation(table.name)} AS t ({listed}) SELECT {listed} FROM {staged}"
            f" ON CONFLICT ({', '.join(keys)}) DO {action}{newer}"
        )

    def both_kept(self, there: str, comes: str) -> str:
        return f"COALESCE({there} || {comes}, {comes}, {there})"


def postgres_dialect(database_schema: str, floats: FloatType = FloatType.NUMERIC) -> PostgresDialect:
    types = TYPES if floats is FloatType.NUMERIC else {**TYPES, _T.FLOAT64: "double precision"}
    return PostgresDialect(
        types=types,
        json_type="jsonb",
        max_name=63,
        spellings={"json": "jsonb", "numeric": "numeric(38,18)", "string": "text", "double": "double precision",
                   "timestamp_tz": "timestamp with time zone"},
        reserved=SYSTEM_COLUMNS,
        takes_nul=False,
        converts_numbers=True,
        widens=promotions(),
        database_schema=database_schema,
    )  # fmt: skip
