"""The rows of a load as Parquet files, ready for a stage.

Fields are called ``c0``, ``c1`` and so on, whatever their columns are called. Times are RFC 3339 text: how Snowflake
reads a Parquet timestamp depends on settings.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.row_pieces import load_pieces
from penstock.destinations.sql.load.table_load import Load

FILE_BYTES = 128 << 20
"""Snowflake loads files in parallel, best at about this size."""


def write_files(load: Load, dialect: Dialect, directory: Path) -> list[Path]:
    paths: list[Path] = []
    writer: pq.ParquetWriter | None = None
    try:
        for piece in load_pieces(load, dialect):
            rows = pa.table([_stored(column) for column in piece.columns], [f"c{n}" for n in range(piece.num_columns)])
            if writer is None:
                paths.append(directory / f"{len(paths)}.parquet")
                writer = pq.ParquetWriter(paths[-1], rows.schema, compression="snappy")
            writer.write_table(rows)
            if paths[-1].stat().st_size > FILE_BYTES:
                writer.close()
                writer = None
    finally:
        if writer is not None:
            writer.close()
    return paths


def _stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.strftime(column, "%Y-%m-%dT%H:%M:%S+00:00")
