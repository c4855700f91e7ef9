"""The rows of a load with one schema, in pieces that fit into memory.

Where a piece ends depends on the rows, not on how they were staged: a repeated batch has the same pieces. (Very large
rows end a piece earlier, and that may differ.)
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.table_load import Load

ROWS = 65_536
BYTES = 64 << 20


def load_pieces(load: Load, dialect: Dialect) -> Iterator[pa.Table]:
    """All rows with all columns of the load, in their order."""
    schema = load_schema(load, dialect)
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for reader in load.rows.readers():
        for batch in reader:
            start = 0
            while start < batch.num_rows:
                part = batch.slice(start, ROWS - rows)
                start += part.num_rows
                rows += part.num_rows
                size += part.nbytes
                held.append(with_all_columns(part, schema))
                if rows == ROWS or size > BYTES:
                    yield pa.Table.from_batches(held).combine_chunks()
                    held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def load_schema(load: Load, dialect: Dialect) -> pa.Schema:
    """The columns of all pieces, by the table's names."""
    return pa.schema([(c.name, dialect.target(c.type).arrow or pa.string()) for c in load.staged_columns(dialect)])


def with_all_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with all columns of the schema, null where they have none."""
    there = set(batch.schema.names)
    return pa.RecordBatch.from_arrays(
        [
            batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )
