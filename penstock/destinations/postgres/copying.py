"""Rows as COPY reads them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import csv

_ROWS_AT_A_TIME = 4_096
_OPTIONS = csv.WriteOptions(include_header=False, batch_size=_ROWS_AT_A_TIME)


def lines(reader: pa.RecordBatchReader) -> Iterator[memoryview]:
    """CSV, piece by piece: text is quoted, and what is not there is nothing between two commas."""
    for batch in reader:
        for start in range(0, batch.num_rows, _ROWS_AT_A_TIME):
            sink = pa.BufferOutputStream()
            csv.write_csv(batch.slice(start, _ROWS_AT_A_TIME), sink, _OPTIONS)
            yield memoryview(sink.getvalue())
