"""CSV files: a header line, then a line per row, in UTF-8, quoted as in RFC 4180.

Text is always in quotes and nothing else is: a null is nothing between two commas, an empty text is ``""``. Lines end
with ``\\n``; a line break inside a text is inside its quotes. Timestamps are RFC 3339 text in UTC, a record's headers a
JSON object.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.destinations.file.line_files import create_file
from penstock.destinations.sql.stage.table_files import CreateFile, TableWriter
from penstock.flatten.values.to_json import timestamp_text
from penstock.json.arrow_text import quote


def csv_files(compression: str) -> CreateFile:
    def create(path: Path, schema: pa.Schema) -> TableWriter:
        return _CsvFile(create_file(path, compression), schema)

    return create


class _CsvFile:
    """An open CSV file that takes tables of one schema."""

    def __init__(self, file: pa.NativeFile, schema: pa.Schema) -> None:
        self._file = file
        self._writer = pyarrow.csv.CSVWriter(file, _plain(schema.empty_table()).schema)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(_plain(table))

    def close(self) -> None:
        self._writer.close()
        self._file.close()


def _plain(table: pa.Table) -> pa.Table:
    """The same columns, with text in place of types that CSV cannot represent."""
    return pa.table([_spelled(column) for column in table.columns], names=table.column_names)


def _spelled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    as_text = _texts(column.type)
    return column if as_text is None else pa.chunked_array([as_text(chunk) for chunk in column.chunks], pa.string())


def _texts(found: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    if pa.types.is_timestamp(found):
        return timestamp_text
    if pa.types.is_map(found):
        return _objects
    return _readable if pa.types.is_binary(found) else None


def _objects(maps: pa.MapArray) -> pa.StringArray:
    """Each map of texts as a JSON object."""
    values = pc.if_else(maps.items.is_valid(), quote(maps.items).cast(pa.string()), "null")
    members = pc.binary_join_element_wise(quote(maps.keys).cast(pa.string()), values, ":")
    inside = pc.binary_join(pa.ListArray.from_arrays(maps.offsets, members), ",")
    return pc.binary_join_element_wise("{", inside, "}", "")


def _readable(data: pa.BinaryArray) -> pa.StringArray:
    """Bytes as text. Invalid UTF-8 is replaced, because the file is UTF-8."""
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if value is None else value.decode("utf-8", "replace") for value in data.to_pylist())
        return pa.array(texts, pa.string())
