"""PostgreSQL's dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.destinations.postgres.type_names import POSTGRES_TYPES
from penstock.destinations.sql.config import FloatType
from penstock.destinations.sql.dialect import Dialect, assignments
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.load.row_limit import RowLimit
from penstock.destinations.sql.mirror.stage.declared_types import parse_declared
from penstock.destinations.sql.schema.schema_operations import DropKey, Operation, Table, TypedColumn
from penstock.flatten.casts import Cast
from penstock.flatten.inner_types import InnerType, promotions

_T = InnerType
TYPES = {
    _T.STRING: "text",
    _T.FLOAT64: "numeric(38,18)",
    _T.INT64: "bigint",
    _T.BOOL: "boolean",
    _T.TIMESTAMP: "timestamp with time zone",
}
SYSTEM_COLUMNS = frozenset(("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"))

_ROW_LIMIT = RowLimit(
    # The 8,160 bytes of a page, less 224 for the row's header with a bit for each of 1,600 columns, 32 for _unmapped,
    # and 48 for what a merge stages besides the values.
    room=8_160 - 224 - 32 - 48,
    short=23,
    # A pointer has 18 bytes. But a text that compression made as short as 24 stays, aligned to 4.
    long=27,
    fixed={
        "bigint": (8, 8),
        "integer": (4, 4),
        "smallint": (2, 2),
        "boolean": (1, 1),
        "double precision": (8, 8),
        "real": (4, 4),
        "timestamp with time zone": (8, 8),
        "timestamp without time zone": (8, 8),
        "date": (4, 4),
        "uuid": (16, 1),
        "interval": (16, 8),
        "name": (64, 1),
    },
    widest=27,
)

_SHORT_TEXTS = {"name": 63, '"char"': 1}
"""Types that cut off longer text silently, with the bytes that they keep."""

BUILT_IN = frozenset((
    "smallint", "integer", "bigint", "real", "double precision", "numeric", "money", "boolean", "oid",
    "text", "character varying", "character", '"char"', "name", "bytea", "uuid", "json", "jsonb", "xml",
    "date", "timestamp without time zone", "timestamp with time zone", "time without time zone", "time with time zone",
    "interval", "inet", "cidr", "macaddr", "macaddr8", "bit", "bit varying", "tsvector", "tsquery", "pg_lsn",
    "point", "line", "lseg", "box", "path", "polygon", "circle",
    "int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange",
))  # fmt: skip
"""Types that every PostgreSQL has, as ``format_type()`` spells them."""


@dataclass(frozen=True)
class PostgresDialect(Dialect):
    database_schema: str = "public"

    def relation(self, table: str) -> str:
        return f"{self.identifier(self.database_schema)}.{self.identifier(table)}"

    def render(self, operation: Operation) -> str:
        statement = super().render(operation)
        if isinstance(operation, DropKey):
            # A key makes its columns NOT NULL, and dropping it leaves them so.
            free = [f"ALTER COLUMN {self.identifier(name)} DROP NOT NULL" for name in operation.key.columns]
            return ", ".join([statement, *free])
        return statement

    def widen_statement(self, table: str, column: TypedColumn, was: str) -> str:
        """Values keep their meaning: ``true`` becomes 1, a number loses the zeros that only its type added."""
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

    def target(self, sql_type: str) -> Cast:
        if sql_type in _SHORT_TEXTS:
            return Cast(sql_type, _T.STRING, max_bytes=_SHORT_TEXTS[sql_type])
        return super().target(sql_type)

    def mirror_type(self, declared_type: str) -> str | None:
        """As it is declared, if every PostgreSQL has the type. Others (enums, extensions) may not exist here."""
        name = parse_declared(declared_type).name
        known = name in BUILT_IN or name.startswith("interval ")
        return " ".join(declared_type.split()) if known else None

    def holds(self, real: str, other: str) -> bool:
        # Without a precision it holds any number except those of floating types.
        if real == "numeric":
            return other.startswith("numeric") or self.target(other).type is _T.INT64
        if other == "numeric" and real.startswith("numeric"):
            return False
        return super().holds(real, other)

    def merge(self, table: Table, staged: str, columns: Sequence[str], merge: Merge) -> str:
        listed = self.real_names(table, columns)
        keys = self.real_names(table, merge.key)
        changes = self.update_values(table, columns, merge, comes="EXCLUDED")
        newer = self.is_newer(table, columns, merge, comes="EXCLUDED")
        action = f"UPDATE SET {assignments(changes)}{f' WHERE {newer}' if newer else ''}" if changes else "NOTHING"
        return (
            f"INSERT INTO {self.relation(table.name)} AS t ({listed}) SELECT {listed}"
            f" FROM {self.due_rows(table, staged, columns, merge)} AS s ON CONFLICT ({keys}) DO {action}"
        )

    def comparable(self, value: str, table: Table, column: str) -> str:
        text = self.target(table.columns[column].type).type is _T.STRING
        return f'{value} COLLATE "C"' if text else value

    def merged_unmapped(self, there: str, comes: str, carried: Mapping[str, str]) -> str:
        taken = ", ".join(
            f"CASE WHEN {value} IS NOT NULL THEN {self.literal(name)} END" for name, value in carried.items()
        )
        left = f"{there} - array_remove(ARRAY[{taken}]::text[], NULL)"
        merged = f"NULLIF(({left}) || COALESCE({comes}, '{{}}'), '{{}}')"
        return f"CASE WHEN {there} IS NULL THEN {comes} ELSE {merged} END"

    def is_unmapped(self, spare: str, name: str) -> str:
        return f"jsonb_exists({spare}, {self.literal(name)})"


def postgres_dialect(database_schema: str, floats: FloatType = FloatType.NUMERIC) -> PostgresDialect:
    types = TYPES if floats is FloatType.NUMERIC else {**TYPES, _T.FLOAT64: "double precision"}
    return PostgresDialect(
        types=types,
        json_type="jsonb",
        max_name=63,
        most_columns=1_600,
        known=POSTGRES_TYPES,
        spellings={"json": "jsonb", "numeric": "numeric(38,18)", "string": "text", "double": "double precision",
                   "timestamp_tz": "timestamp with time zone"},
        reserved=SYSTEM_COLUMNS,
        takes_nul=False,
        json_keeps_repeats=False,
        row_limit=_ROW_LIMIT,
        converts_numbers=True,
        widens=promotions(),
        database_schema=database_schema,
    )  # fmt: skip
