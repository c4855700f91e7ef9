"""Parquet stage files: the flattened data in typed columns, or the records as they are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.destinations.contract import Part, Stager
from penstock.destinations.sql.files import TableWriter
from penstock.destinations.sql.naming import TableNames
from penstock.destinations.sql.staging import TypedStager
from penstock.record import RECORD_SCHEMA
from penstock.steps.contract import Outcome

TABLE = "file"
_MAX_NAME = 255


def parquet_stager(directory: Path, whole_records: bool, compression: str, casts: Mapping[str, str]) -> Stager:
    if whole_records:
        return RecordStager(directory, compression)

    def create(path: Path, schema: pa.Schema) -> TableWriter:
        writer: TableWriter = pq.ParquetWriter(path, schema, compression=compression)
        return writer

    return TypedStager(directory, TableNames(TABLE, _MAX_NAME), casts, _MAX_NAME, create, with_places=False)


class RecordStager(Stager):
    """Writes whole records into one file, opened at the first of them."""

    def __init__(self, directory: Path, compression: str) -> None:
        self._path = directory / uuid.uuid4().hex
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None
        self._first = (-1, -1)
        self._rows = 0

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        if batch.num_rows:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, RECORD_SCHEMA, compression=self._compression)
                self._first = batch.column("partition")[0].as_py(), batch.column("offset")[0].as_py()
            self._writer.write_batch(batch)
            self._rows += batch.num_rows
        return Outcome(batch)

    def finish(self) -> list[Part]:
        if self._writer is None:
            return []
        self._writer.close()
        return [Part(TABLE, str(self._path), self._rows, *self._first)]
