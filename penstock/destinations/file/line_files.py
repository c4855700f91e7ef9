"""Records as lines of JSON: the stage files of ``file`` (NDJSON) and ``stdout``.

One record is always one line. Data is copied as it is; JSON strings contain no line breaks, so those between tokens are
replaced by spaces. A record without data has no line and counts as skipped, unless whole records are asked for.
"""

from __future__ import annotations

import uuid
from datetime import UTC
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Part, Stager
from penstock.outcome import Outcome


class LineStager(Stager):
    """Writes the lines of one stretch into one file, opened at the first record."""

    def __init__(self, directory: Path, table: str, whole_records: bool, compression: str = "none") -> None:
        self._path = directory / f"{uuid.uuid4().hex}.ndjson"
        self._table = table
        self._whole_records = whole_records
        self._compression = compression
        self._file: pa.NativeFile | None = None
        self._first = (-1, -1)
        self._rows = 0

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        kept = batch if self._whole_records else batch.filter(has_data(batch.column("data")))
        if kept.num_rows:
            if self._file is None:
                self._file = create_file(self._path, self._compression)
                self._first = kept.column("partition")[0].as_py(), kept.column("offset")[0].as_py()
            self._file.write(_record_lines(kept) if self._whole_records else data_lines(kept.column("data")))
            self._rows += kept.num_rows
        return Outcome(kept, skipped=batch.num_rows - kept.num_rows)

    def finish(self) -> list[Part]:
        if self._file is None:
            return []
        self._file.close()
        return [Part(self._table, str(self._path), self._rows, *self._first)]


def create_file(path: Path, compression: str) -> pa.NativeFile:
    file = pa.OSFile(str(path), "wb")
    return file if compression == "none" else pa.CompressedOutputStream(file, compression)


def has_data(data: pa.Array) -> pa.BooleanArray:
    return pc.fill_null(pc.greater(pc.binary_length(data), 0), False)


def data_lines(data: pa.Array) -> pa.Buffer:
    if pc.any(pc.match_substring_regex(data, "[\r\n]")).as_py():
        data = pc.replace_substring_regex(data, "[\r\n]", " ")
    lines = pc.binary_join_element_wise(data, pa.scalar(b"\n", data.type), pa.scalar(b"", data.type))
    # A freshly computed array is one contiguous buffer: the file's bytes.
    return lines.buffers()[2]


def _record_lines(batch: pa.RecordBatch) -> bytes:
    # Record by record: this form is for people to look at, and its data must be checked before it is put inside.
    lines = []
    for row in batch.to_pylist():
        row["timestamp"] = row["timestamp"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        row["headers"] = dict(row["headers"] or ())
        row["data"] = _embedded(row["data"])
        lines.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    return b"".join(lines)


def _embedded(data: bytes | None) -> orjson.Fragment | str | None:
    """JSON as it is, on one line; anything else as a string."""
    if data is None:
        return None
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode("utf-8", errors="replace")
    return orjson.Fragment(data.replace(b"\n", b" ").replace(b"\r", b" "))
