"""The rows of a load in batches of exactly one DuckDB row group.

One thread compresses such a batch, so several run at once, and the batch is final: DuckDB regroups groups of other
sizes when it closes the file, which takes as long as loading them. Staged files are cut to that size and pass through
as they are. The remaining rows of all files come at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.sql.load.row_pieces import load_schema, with_all_columns
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.stage.table_files import FILE_ROWS


def row_groups(load: Load) -> Iterator[pa.RecordBatch]:
    """All rows with all columns of the load. A load that is smaller than a group keeps its order."""
    schema = load_schema(load, DUCKDB)
    left: list[pa.RecordBatch] = []
    for reader in load.rows.readers():
        for batch in reader:
            rows = with_all_columns(batch, schema)
            if rows.num_rows == FILE_ROWS:
                yield rows
            else:
                left.append(rows)
    # The batches are in mapped files: keeping them costs next to nothing.
    rest = pa.Table.from_batches(left, schema)
    for start in range(0, rest.num_rows, FILE_ROWS):
        yield from rest.slice(start, FILE_ROWS).combine_chunks().to_batches()
