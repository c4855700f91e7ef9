"""Parquet files: each row becomes a JSON object, column by column, a row group's part at a time.

A position counts rows. A Parquet file is written once and completely, so its footer identifies it: one with another
footer is another file.

Times become ISO 8601 text, binary values text (base64 if they are not UTF-8), numbers numbers with all their digits. Of
the floats that JSON has no number for, NaN becomes null and the infinities text.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.json.arrow_text import quote, quoted
from penstock.sources.file.formats.column_names import distinct_names

INFINITY = "Infinity"

_FOOTER_BYTES = 2**16
_ROWS = 2**14


class Rows(NamedTuple):
    """Some rows as JSON objects, from row ``start`` (counted from 0) on."""

    start: int
    data: pa.BinaryArray


def footer_sum(path: Path) -> int:
    """A checksum of the file's end, where its footer is, and its size."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _FOOTER_BYTES))
        return int(google_crc32c.extend(google_crc32c.value(file.read()), size.to_bytes(8, "little")))


def rows_from(path: Path, start: int) -> Iterator[Rows]:
    """The rows from ``start`` on. Row groups before it are not read. Raises ``OSError`` or ``ArrowInvalid``."""
    with pq.ParquetFile(path) as file:
        first = 0
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if first + count > start:
                at = first
                for batch in file.iter_batches(_ROWS, row_groups=[group]):
                    skipped = max(0, min(start - at, batch.num_rows))
                    if skipped < batch.num_rows:
                        yield Rows(at + skipped, objects(batch.slice(skipped)))
                    at += batch.num_rows
            first += count


def objects(batch: pa.RecordBatch) -> pa.BinaryArray:
    """The rows as JSON objects with all columns, nulls included."""
    if batch.num_columns == 0:
        return pa.array([b"{}"] * batch.num_rows, pa.binary())
    pieces: list[pa.Array | pa.Scalar] = []
    for index, (name, column) in enumerate(zip(distinct_names(batch.schema.names), batch.columns, strict=True)):
        pieces.append(pa.scalar((b"," if index else b"{") + quoted(name) + b":", pa.binary()))
        pieces.append(pc.fill_null(_texts(column), pa.scalar(b"null", pa.binary())))
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"}", pa.binary()), pa.scalar(b"", pa.binary()))


def _texts(column: pa.Array) -> pa.Array:
    """Each value as JSON text, in binary."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _texts(column.dictionary_decode())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string()).cast(pa.binary())
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        texts = pc.if_else(pc.is_finite(column), column, None).cast(pa.string()).cast(pa.binary())
        return pc.if_else(pc.fill_null(pc.is_inf(column), False), _infinities(column), texts)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _with_nulls_of(column, quote(pc.fill_null(column.cast(pa.string()), "")))
    # Times, decimals, binary and nested values: rare enough in bulk to be made one by one.
    values = column.to_pylist(maps_as_pydicts="lossy")
    texts = [None if v is None else orjson.dumps(_plain(v), _plain, orjson.OPT_NON_STR_KEYS) for v in values]
    return pa.array(texts, pa.binary())


def _infinities(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(column, 0), pa.scalar(quoted(INFINITY)), pa.scalar(quoted(f"-{INFINITY}")))


def _with_nulls_of(column: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.binary())) if column.null_count else texts


def _plain(value: object) -> object:
    """A value as one that JSON has."""
    match value:
        case float() if math.isinf(value):
            return INFINITY if value > 0 else f"-{INFINITY}"
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case Decimal():
            return orjson.Fragment(f"{value:f}") if value.is_finite() else None
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode()
        case _:
            return value
