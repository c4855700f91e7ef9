"""The statements sent to BigQuery, as text and values: made and tested without a connection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.destinations.bigquery.dialect import BigqueryDialect, is_plain
from penstock.destinations.contract import Batch
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.marks import KEPT_MARKS, MARKS, Mark, last_expired_batch
from penstock.flatten.values.to_json import as_text

Value = str | int

LOADED_ALREADY = "penstock has loaded this batch already"
STAGED_PREFIX = "_penstock_staged_"
MARK_COLUMNS = (
    "`scope` STRING, `route` STRING, `batch` INT64, `table_name` STRING, `loaded` INT64, `failures` STRING,"
    " `committed_at` TIMESTAMP, `origin` STRING"
)


@dataclass(frozen=True)
class Statement:
    text: str
    values: Mapping[str, Value]
    """By the name that the text has after an ``@``."""


# Tables


def column_type(field_type: str, mode: str | None, precision: int | None, scale: int | None, length: int | None) -> str:
    """A column's type as statements spell it, from the API's description, which still uses older names."""
    name = _API_NAMES.get(field_type.upper(), field_type.upper())
    if precision is not None:
        name += f"({precision}, {scale or 0})"
    elif length is not None:
        name += f"({length})"
    return f"ARRAY<{name}>" if mode == "REPEATED" else name


_API_NAMES = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "RECORD": "STRUCT"}


def combine_added_columns(dialect: BigqueryDialect, table: str, statements: Iterable[str]) -> list[str]:
    """Combines consecutive added columns into one change: BigQuery allows only a few changes per minute and table."""
    adding = dialect.add_column_prefix(table)
    found: list[str] = []
    for statement in statements:
        if found and statement.startswith(adding) and found[-1].startswith(adding):
            found[-1] += f", ADD COLUMN IF NOT EXISTS {statement.removeprefix(adding)}"
        else:
            found.append(statement)
    return found


# Files


def file_schema(dialect: BigqueryDialect, load: Load) -> pa.Schema:
    """The schema of the one file with all rows of a load; a column that a row lacks is null."""
    return pa.schema([pa.field(c.name, file_type(dialect.target(c.type).arrow)) for c in load.staged_columns(dialect)])


def file_type(arrow: pa.DataType | None) -> pa.DataType:
    """Decimals travel as text: BigQuery maps Parquet's decimals to one of two types by its own rules."""
    return pa.string() if arrow is None or pa.types.is_decimal(arrow) else arrow


def file_rows(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        columns.append(as_text(column) if column.type != field.type else column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def staged_type(arrow: pa.DataType) -> str:
    """The type of a staged column."""
    if pa.types.is_timestamp(arrow):
        return "TIMESTAMP"
    return {pa.bool_(): "BOOL", pa.int64(): "INT64", pa.float64(): "FLOAT64"}.get(arrow, "STRING")


# Loads


def create_staged_statement(dialect: BigqueryDialect, name: str, schema: pa.Schema) -> str:
    """Creates a table for one load. It is dropped afterwards; if nobody does so, it expires."""
    columns = ", ".join(f"{dialect.identifier(field.name)} {staged_type(field.type)}" for field in schema)
    return (
        f"CREATE TABLE {dialect.relation(name)} ({columns})"
        " OPTIONS (expiration_timestamp = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 1 DAY))"
    )


def load_script(dialect: BigqueryDialect, load: Load, staged: str, schema: pa.Schema, mark: Mark | None) -> Statement:
    """The script that moves staged rows into their table and writes the mark: one transaction, in one job.

    Without a mark it rolls back: a trial.
    """
    script = ["BEGIN TRANSACTION"]
    if mark is not None:
        marked = f"EXISTS (SELECT 1 FROM {dialect.relation(MARKS)} WHERE {_MARKED})"
        script.append(f"SELECT IF({marked}, ERROR('{LOADED_ALREADY}'), NULL)")
    script.append(_move(dialect, load, staged, schema))
    if mark is None:
        return Statement(_script([*script, "ROLLBACK TRANSACTION"]), {})
    script.append(
        f"INSERT INTO {dialect.relation(MARKS)}"
        " (`scope`, `route`, `batch`, `table_name`, `loaded`, `failures`, `committed_at`, `origin`)"
        " VALUES (@scope, @route, @batch, @table_name, @loaded, @failures, CURRENT_TIMESTAMP(), @origin)"
    )
    values = {
        **_place(mark.batch, mark.table),
        "loaded": mark.rows,
        "failures": mark.failures,
        "origin": mark.batch.origin,
    }
    return Statement(_script([*script, "COMMIT TRANSACTION"]), values)


def _move(dialect: BigqueryDialect, load: Load, staged: str, schema: pa.Schema) -> str:
    types = {column.name: column.type for column in load.staged_columns(dialect)}
    fields = [field for field in schema if is_plain(types[field.name])]
    selected = ", ".join(
        typed(dialect.identifier(field.name), staged_type(field.type), types[field.name]) for field in fields
    )
    rows = f"SELECT {selected} FROM {dialect.relation(staged)}"
    by_real = {column.name: name for name, column in load.table.columns.items()}
    names = [by_real[field.name] for field in fields if field.name in by_real]
    if load.merge is not None:
        return dialect.merge(load.table, f"({rows})", names, load.merge)
    listed = dialect.real_names(load.table, names)
    return f"INSERT INTO {dialect.relation(load.table.name)} ({listed}) {rows}"


def typed(name: str, staged: str, real: str) -> str:
    """A staged column as a value for a real one."""
    # Types in a cast have no length; the column's own length still applies.
    bare = real.partition("(")[0]
    if bare == staged:
        return name
    if bare == "JSON":
        return f"PARSE_JSON({name}) AS {name}"
    return f"CAST({name} AS {bare}) AS {name}"


# Marks


def create_marks_statement(dialect: BigqueryDialect) -> str:
    return f"CREATE TABLE IF NOT EXISTS {dialect.relation(MARKS)} ({MARK_COLUMNS})"


def add_origin_statement(dialect: BigqueryDialect) -> Statement:
    """For a table of marks that an older release made."""
    return Statement(f"ALTER TABLE {dialect.relation(MARKS)} ADD COLUMN IF NOT EXISTS `origin` STRING", {})


def delete_marks_statement(dialect: BigqueryDialect, batch: Batch) -> Statement | None:
    """Deletes old marks now and then, outside of the load: a DELETE makes concurrent transactions fail."""
    if batch.number < KEPT_MARKS or batch.number % 100:
        return None
    return Statement(
        f"DELETE FROM {dialect.relation(MARKS)} WHERE `scope` = @scope AND `route` = @route AND `batch` <= @batch",
        {"scope": batch.scope, "route": batch.route, "batch": last_expired_batch(batch)},
    )


def job_id(mark: Mark, attempt: int) -> str:
    """The same id for the same attempt at the same load, whoever makes it: BigQuery runs a job id only once."""
    batch = mark.batch
    place = json.dumps([batch.scope, batch.route, batch.number, batch.origin, mark.table])
    return f"penstock_{hashlib.sha256(place.encode()).hexdigest()[:40]}_{attempt}"


_MARKED = "`scope` = @scope AND `route` = @route AND `batch` = @batch AND `table_name` = @table_name"


def _place(batch: Batch, table: str) -> dict[str, Value]:
    return {"scope": batch.scope, "route": batch.route, "batch": batch.number, "table_name": table}


def _script(statements: Sequence[str]) -> str:
    return ";\n".join(statements) + ";"
