"""Stage files with columns, for Parquet and CSV: the flattened data, or the records as they are.

Both formats get their columns by the rules of warehouse tables; a format only says how to create a file with given
columns (``CreateFile``).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.destinations.contract import Part, Stager
from penstock.destinations.sql.stage.stager import TypedStager
from penstock.destinations.sql.stage.table_files import CreateFile, TableWriter
from penstock.destinations.sql.stage.table_name import TableChooser
from penstock.outcome import Outcome
from penstock.record import RECORD_SCHEMA

TABLE = "file"
_MAX_NAME = 255


def column_stager(directory: Path, whole_records: bool, casts: Mapping[str, str], create: CreateFile) -> Stager:
    if whole_records:
        return RecordStager(directory, create)
    return TypedStager(directory, TableChooser(TABLE, _MAX_NAME), casts, _MAX_NAME, create, with_places=False)


def parquet_files(compression: str) -> CreateFile:
    def create(path: Path, schema: pa.Schema) -> TableWriter:
        writer: TableWriter = pq.ParquetWriter(path, schema, compression=compression)
        return writer

    return create


class RecordStager(Stager):
    """Writes whole records into one file, opened at the first of them."""

    def __init__(self, directory: Path, create: CreateFile) -> None:
        self._path = directory / uuid.uuid4().hex
        self._create = create
        self._writer: TableWriter | None = None
        self._first = (-1, -1)
        self._rows = 0

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        if batch.num_rows:
            if self._writer is None:
                self._writer = self._create(self._path, RECORD_SCHEMA)
                self._first = batch.column("partition")[0].as_py(), batch.column("offset")[0].as_py()
            self._writer.write_table(pa.Table.from_batches([batch]))
            self._rows += batch.num_rows
        return Outcome(batch)

    def finish(self) -> list[Part]:
        if self._writer is None:
            return []
        self._writer.close()
        return [Part(TABLE, str(self._path), self._rows, *self._first)]
