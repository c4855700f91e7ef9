"""BigQuery's dialect."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from penstock.destinations.bigquery.type_names import BIGQUERY_TYPES
from penstock.destinations.sql.dialect import Dialect, not_a_type
from penstock.destinations.sql.load.wrapped_json import wrap_lossy_json
from penstock.destinations.sql.schema.schema_operations import TypedColumn
from penstock.flatten.casts import Cast, parse_cast
from penstock.flatten.inner_types import InnerType

_T = InnerType
TYPES = {
    _T.STRING: "STRING",
    _T.FLOAT64: "FLOAT64",
    _T.INT64: "INT64",
    _T.BOOL: "BOOL",
    _T.TIMESTAMP: "TIMESTAMP",
}
PLAIN = frozenset(("STRING", "BYTES", "DATE", "TIME", "DATETIME", "JSON", "NUMERIC", "BIGNUMERIC", *TYPES.values()))
_WORDS = {
    **dict.fromkeys(("jsonb", "variant", "super"), "JSON"),
    **dict.fromkeys(("timestamp_ntz", "timestamp without time zone", "datetime"), "DATETIME"),
    "bytea": "BYTES",
    "bigdecimal": "BIGNUMERIC",
}
_NUMERIC_DIGITS, _NUMERIC_SCALE = 29, 9
"""What a NUMERIC holds before and after the point."""


@dataclass(frozen=True)
class BigqueryDialect(Dialect):
    project: str = ""
    dataset: str = ""

    def parameter(self, name: str) -> str:
        return f"@{name}"

    def identifier(self, name: str) -> str:
        """Names contain no backticks and no backslashes; asking for any other table is an error."""
        if "`" in name or "\\" in name:
            raise ValueError(f"{name!r} is no name in BigQuery")
        return f"`{name}`"

    def relation(self, table: str) -> str:
        return ".".join(map(self.identifier, (self.project, self.dataset, table)))

    def cast_type(self, asked: str) -> str:
        """BigQuery's name for a type of any engine. A bare numeric has as many digits as elsewhere."""
        plain = " ".join(super().cast_type(asked).lower().split())
        word = _WORDS.get(plain, plain.upper())
        if word in PLAIN and word != "NUMERIC":
            return word
        cast = parse_cast(plain)
        if cast.type is _T.FLOAT64 and cast.precision:
            return _decimal(cast.precision, cast.scale)
        if cast.type is _T.STRING and cast.max_length:
            return f"STRING({cast.max_length})"
        if cast.type is not None:
            return TYPES[cast.type]
        raise not_a_type(asked, "BigQuery has no column type of that name")

    def target(self, sql_type: str) -> Cast:
        if not is_plain(sql_type):
            # An array or a struct holds none of our values: no text is short enough.
            return Cast(sql_type, _T.STRING, max_bytes=-1)
        if sql_type == "NUMERIC":
            return Cast(sql_type, _T.FLOAT64, precision=_NUMERIC_DIGITS + _NUMERIC_SCALE, scale=_NUMERIC_SCALE)
        return parse_cast(re.sub(r"^BIGNUMERIC\(", "NUMERIC(", sql_type))

    def unmapped_json(self, text: pa.Array) -> pa.Array:
        return wrap_lossy_json(text)

    def is_unmapped(self, spare: str, name: str) -> str:
        return f"JSON_QUERY({spare}, {self.literal(f'$.{name}')}) IS NOT NULL"

    def widen_statement(self, table: str, column: TypedColumn, was: str) -> str:
        name = self.identifier(column.name)
        return f"ALTER TABLE {self.relation(table)} ALTER COLUMN {name} SET DATA TYPE {column.type}"


def bigquery_dialect(project: str, dataset: str) -> BigqueryDialect:
    return BigqueryDialect(
        types=TYPES,
        json_type="JSON",
        max_name=300,
        known=BIGQUERY_TYPES,
        quote="`",
        adds_if_missing=True,
        widens=frozenset({(_T.INT64, _T.FLOAT64)}),
        # A key has no name there by which we could recognise ours, and is not enforced.
        has_keys=False,
        project=project,
        dataset=dataset,
    )


def is_plain(sql_type: str) -> bool:
    """Whether single values can be cast to a type."""
    return sql_type.partition("(")[0] in PLAIN


def _decimal(precision: int, scale: int) -> str:
    small = scale <= _NUMERIC_SCALE and precision - scale <= _NUMERIC_DIGITS
    return f"{'NUMERIC' if small else 'BIGNUMERIC'}({precision}, {scale})"
