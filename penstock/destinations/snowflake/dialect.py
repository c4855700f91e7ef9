"""Snowflake's dialect.

Names of ours are in upper case, so that people can write ``select * from events``. Real names, as the catalogue has
them, are used as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.destinations.snowflake.type_names import SNOWFLAKE_TYPES
from penstock.destinations.sql.config import FloatType
from penstock.destinations.sql.dialect import Dialect, assignments
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.load.wrapped_json import wrap_lossy_json
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn
from penstock.flatten.casts import Cast, Form, parse_cast
from penstock.flatten.inner_types import InnerType

_T = InnerType
TYPES = {
    _T.STRING: "TEXT",
    _T.FLOAT64: "NUMBER(38,18)",
    _T.INT64: "NUMBER(38,0)",
    _T.BOOL: "BOOLEAN",
    _T.TIMESTAMP: "TIMESTAMP_TZ",
}
LONGEST_TEXT = 16_777_216
STAGED = "_PENSTOCK_STAGED"
_JSON = ("VARIANT", "OBJECT", "ARRAY")


@dataclass(frozen=True)
class SnowflakeDialect(Dialect):
    database: str = ""
    database_schema: str = "PUBLIC"

    def relation(self, table: str) -> str:
        return f"{self.identifier(self.database)}.{self.identifier(self.database_schema)}.{self._ours(table)}"

    def _ours(self, name: str) -> str:
        return self.identifier(name.upper())

    # Types

    def catalogued(self, kind: str, precision: int | None, scale: int | None, length: int | None) -> str:
        """A column's type, from its description in the catalogue."""
        if kind == "NUMBER":
            return f"NUMBER({precision},{scale})"
        return f"{kind}({length})" if kind == "TEXT" and length is not None and length < LONGEST_TEXT else kind

    def target(self, sql_type: str) -> Cast:
        if sql_type in _JSON:
            return Cast(sql_type, None, form=Form.JSON)
        if sql_type.startswith("TEXT("):
            return parse_cast(sql_type.replace("TEXT", "VARCHAR"))
        known = parse_cast(sql_type)
        # Its bigint and integer are decimals of 38 digits.
        if known.precision >= 19 and known.scale == 0:
            return Cast(sql_type, InnerType.INT64)
        return known

    def unmapped_json(self, text: pa.Array) -> pa.Array:
        return wrap_lossy_json(text, decimal_digits=38)

    # Statements

    def _definition(self, column: TypedColumn) -> str:
        return f"{self._ours(column.name)} {column.type}"

    def _constraint(self, key: Key) -> str:
        columns = ", ".join(map(self._ours, key.columns))
        return f"CONSTRAINT {self._ours(key.name)} PRIMARY KEY ({columns})"

    # Loading

    def stage(self, name: str) -> str:
        return f"@{self.identifier(self.database)}.{self.identifier(self.database_schema)}.{self.identifier(name)}"

    def put_statement(self, path: str, stage: str, folder: str) -> str:
        quoted = f"file://{path}".replace("\\", "\\\\").replace("'", "\\'")
        return f"PUT '{quoted}' {self.stage(stage)}/{folder}/ AUTO_COMPRESS = FALSE"

    def create_staging(self, table: Table, columns: Sequence[str], merge: Merge) -> str:
        """Creates a temporary table for rows that are to be merged."""
        return (
            f"CREATE OR REPLACE TEMPORARY TABLE {self.identifier(STAGED)} AS"
            f" SELECT {self.staging_select(table, columns, merge)} FROM {self.relation(table.name)} LIMIT 0"
        )

    def copy_into(self, relation: str, columns: Sequence[TypedColumn], stage: str, folder: str) -> str:
        """Load a folder of Parquet files, whose fields are called ``c0``, ``c1`` and so on, into columns."""
        listed = self.names([column.name for column in columns])
        values = ", ".join(_value(f"$1:c{place}", column.type) for place, column in enumerate(columns))
        return (
            f"COPY INTO {relation} ({listed}) FROM (SELECT {values} FROM {self.stage(stage)}/{folder}/)"
            " FILE_FORMAT = (TYPE = PARQUET)"
        )

    def merge_statements(self, table: Table, columns: Sequence[str], merge: Merge) -> list[str]:
        """Merges the staged rows: updates existing rows, then inserts the others."""
        relation, target, staged = self.relation(table.name), self._ours(table.name), self.identifier(STAGED)
        rows = self.due_rows(table, staged, columns, merge)
        rows = rows if rows == staged else f"{rows} AS {staged}"
        same = self.key_match(table, merge.key, target, staged)
        changes = self.update_values(table, columns, merge, target, staged)
        newer = self.is_newer(table, columns, merge, target, staged)
        update = (
            f"UPDATE {relation} SET {assignments(changes)} FROM {rows} WHERE {same}{f' AND ({newer})' if newer else ''}"
        )
        real = [self.identifier(table.columns[name].name) for name in columns]
        chosen = ", ".join(f"{staged}.{name}" for name in real)
        add = (
            f"INSERT INTO {relation} ({', '.join(real)}) SELECT {chosen} FROM {rows}"
            f" WHERE NOT EXISTS (SELECT 1 FROM {relation} WHERE {same})"
        )
        return [update, add] if changes else [add]

    def is_unmapped(self, spare: str, name: str) -> str:
        return f"GET_PATH({spare}, {self.literal(name)}) IS NOT NULL"


def _value(field: str, sql_type: str) -> str:
    if sql_type in _JSON:
        return f"PARSE_JSON({field}::TEXT)" + ("" if sql_type == "VARIANT" else f"::{sql_type}")
    return f"{field}::{sql_type}"


def snowflake_dialect(
    database: str, database_schema: str = "PUBLIC", floats: FloatType = FloatType.NUMERIC
) -> SnowflakeDialect:
    return SnowflakeDialect(
        types=TYPES if floats is FloatType.NUMERIC else {**TYPES, _T.FLOAT64: "DOUBLE"},
        json_type="VARIANT",
        max_name=255,
        adds_if_missing=True,
        known=SNOWFLAKE_TYPES,
        spellings={
            **dict.fromkeys(("numeric", "decimal", "number"), "NUMBER(38,18)"),
            **dict.fromkeys(("json", "jsonb"), "VARIANT"),
            **dict.fromkeys(("string", "uuid"), "TEXT"),
            **dict.fromkeys(("timestamptz", "timestamp with time zone"), "TIMESTAMP_TZ"),
            **dict.fromkeys(("timestamp", "timestamp without time zone"), "TIMESTAMP_NTZ"),
        },
        database=as_catalogued(database),
        database_schema=as_catalogued(database_schema),
    )


def as_catalogued(name: str) -> str:
    """A name as Snowflake keeps it: in upper case, unless it was quoted."""
    if len(name) > 2 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name.upper()
