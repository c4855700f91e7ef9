"""Rows as COPY reads them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import csv

from penstock.destinations.sql.ahead import converted_ahead

_ROWS_AT_A_TIME = 4_096
_OPTIONS = csv.WriteOptions(include_header=False, batch_size=_ROWS_AT_A_TIME)


def lines(reader: pa.RecordBatchReader) -> Iterator[memoryview]:
    """CSV, piece by piece: text is quoted, and what is not there is nothing between two commas."""
    return converted_ahead(_text, _slices(reader))


def _slices(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        for start in range(0, batch.num_rows, _ROWS_AT_A_TIME):
            yield batch.slice(start, _ROWS_AT_A_TIME)


def _text(rows: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    csv.write_csv(rows, sink, _OPTIONS)
    return memoryview(sink.getvalue())
