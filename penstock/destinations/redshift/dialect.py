"""Redshift's dialect.

It speaks an old version of PostgreSQL's SQL, so the statements here are ones that both understand: no ON CONFLICT, no
alias for the target of MERGE. A merge is therefore an UPDATE of existing rows and an INSERT of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.destinations.postgres.dialect import SYSTEM_COLUMNS
from penstock.destinations.redshift.type_names import REDSHIFT_TYPES
from penstock.destinations.sql.config import FloatType
from penstock.destinations.sql.dialect import Dialect, assignments, not_a_type
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.load.wrapped_json import wrap_lossy_json
from penstock.destinations.sql.schema.schema_operations import Table
from penstock.flatten.casts import Cast, parse_cast
from penstock.flatten.inner_types import InnerType

MAX_TEXT = 65_535
"""The most bytes of a text, in a text column or inside a SUPER value."""

_T = InnerType
TYPES = {
    _T.STRING: f"character varying({MAX_TEXT})",
    _T.FLOAT64: "numeric(38,18)",
    _T.INT64: "bigint",
    _T.BOOL: "boolean",
    _T.TIMESTAMP: "timestamp with time zone",
}
_SPELLINGS = {
    **dict.fromkeys(("text", "string", "varchar", "character varying"), TYPES[_T.STRING]),
    **dict.fromkeys(("numeric", "decimal"), TYPES[_T.FLOAT64]),
    **dict.fromkeys(("double", "float", "float8", "float64"), "double precision"),
    **dict.fromkeys(("timestamptz", "timestamp_tz"), TYPES[_T.TIMESTAMP]),
    **dict.fromkeys(("int64", "long"), "bigint"),
    **dict.fromkeys(("json", "jsonb"), "super"),
}


@dataclass(frozen=True)
class RedshiftDialect(Dialect):
    database_schema: str = "public"

    def relation(self, table: str) -> str:
        return f"{self.identifier(self.database_schema)}.{self.identifier(table)}"

    def cast_type(self, asked: str) -> str:
        found = super().cast_type(asked)
        if found.endswith("]"):
            raise not_a_type(asked, "Redshift has no arrays")
        return found

    def target(self, sql_type: str) -> Cast:
        """``varchar(20)`` is 20 bytes here, not characters."""
        if sql_type == "super":
            return replace(parse_cast("json"), sql_type=sql_type)
        found = super().target(sql_type)
        return replace(found, max_length=None, max_bytes=found.max_length) if found.max_length else found

    def unmapped_json(self, text: pa.Array) -> pa.Array:
        return wrap_lossy_json(text, MAX_TEXT)

    def merge(self, table: Table, staged: str, columns: Sequence[str], merge: Merge) -> str:
        """Two statements, to be run in one transaction."""
        target, there = self.relation(table.name), self.identifier(table.name)
        rows = f"{self.due_rows(table, staged, columns, merge)} AS s"
        same = self.key_match(table, merge.key, there)
        changes = self.update_values(table, columns, merge, there)
        newer = self.is_newer(table, columns, merge, there)
        update = (
            f"UPDATE {target} SET {assignments(changes)} FROM {rows} WHERE {same}{f' AND ({newer})' if newer else ''}; "
        )
        real = [self.identifier(table.columns[name].name) for name in columns]
        values = ", ".join(f"s.{name}" for name in real)
        missing = f"{there}.{self.identifier(table.columns[merge.key[0]].name)} IS NULL"
        return (
            f"{update if changes else ''}INSERT INTO {target} ({', '.join(real)}) SELECT {values} FROM {rows}"
            f" LEFT JOIN {target} ON {same} WHERE {missing}"
        )

    def is_unmapped(self, spare: str, name: str) -> str:
        return f"{spare}.{self.identifier(name)} IS NOT NULL"


def redshift_dialect(database_schema: str, floats: FloatType = FloatType.NUMERIC) -> RedshiftDialect:
    types = TYPES if floats is FloatType.NUMERIC else {**TYPES, _T.FLOAT64: "double precision"}
    return RedshiftDialect(
        types=types,
        json_type="super",
        max_name=127,
        known=REDSHIFT_TYPES,
        spellings=_SPELLINGS,
        takes_nul=False,
        ignores_trailing_blanks=True,
        reserved=SYSTEM_COLUMNS,
        # Only the length of a varchar can be changed in place, and ours has the maximum already.
        widens=frozenset(),
        database_schema=database_schema,
    )
