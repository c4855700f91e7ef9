"""Rows as files that Redshift's COPY reads: gzip CSV below a folder of their own, and the statement that loads them.

CSV cannot tell a missing text from an empty one, and it is not documented whether COPY looks at the quotes. So a
missing text is written as a word that is made up for each load; any other missing value is nothing between two commas.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, fs

from penstock.destinations.sql.dialect import Dialect
from penstock.flatten.values.to_json import as_text

FILE_BYTES = 64 << 20
"""CSV per file before compression: several files are read in parallel."""
_ROWS_AT_A_TIME = 16_384


@dataclass(frozen=True)
class Bucket:
    """Where files are put: a URI of a file system that Arrow supports, and how Redshift accesses it."""

    location: str
    iam_role: str = "default"
    region: str | None = None

    @contextmanager
    def folder(self) -> Iterator[Folder]:
        """A new folder, which is removed with its files afterwards. Raises ``OSError``."""
        query = f"?region={self.region}" if self.region and self.location.startswith("s3://") else ""
        files, root = fs.FileSystem.from_uri(self.location + query)
        name = uuid.uuid4().hex
        folder = Folder(files, f"{root}/{name}", f"{self.location}/{name}", f"null:{uuid.uuid4().hex[:16]}")
        if isinstance(files, fs.LocalFileSystem):
            files.create_dir(folder.path)
        try:
            yield folder
        finally:
            folder.remove()

    def copy(self, dialect: Dialect, relation: str, run: Run) -> str:
        """The statement that loads a run's files."""
        role = "default" if self.iam_role == "default" else f"'{self.iam_role}'"
        region = f" REGION '{self.region}'" if self.region else ""
        return (
            f"COPY {relation} ({dialect.names(run.columns)}) FROM '{run.uri}' IAM_ROLE {role}{region}"
            f" FORMAT CSV GZIP NULL AS '{run.null}' TIMEFORMAT 'auto' DATEFORMAT 'auto'"
            " COMPUPDATE OFF STATUPDATE OFF MAXERROR 0"
        )


@dataclass(frozen=True)
class Run:
    """Files whose rows have the same columns: all whose name begins with ``uri``."""

    uri: str
    columns: tuple[str, ...]
    null: str


@dataclass(frozen=True)
class Folder:
    files: fs.FileSystem
    path: str
    uri: str
    null: str
    """How a missing text is written."""

    def write(self, readers: Iterable[pa.RecordBatchReader]) -> list[Run]:
        """Write all rows, as one run per set of columns: each run costs a COPY, and a table's rows have no order."""
        runs: dict[tuple[str, ...], RollingFiles] = {}
        for reader in readers:
            for batch in reader:
                for start in range(0, batch.num_rows, _ROWS_AT_A_TIME):
                    columns = tuple(batch.schema.names)
                    if columns not in runs:
                        # With its dot, so that run-1 is not a prefix of run-10.
                        runs[columns] = RollingFiles(self.files, f"{self.path}/run-{len(runs) + 1}.")
                    runs[columns].write(csv_bytes(batch.slice(start, _ROWS_AT_A_TIME), self.null))
        for writer in runs.values():
            writer.close()
        return [Run(f"{self.uri}/run-{number}.", columns, self.null) for number, columns in enumerate(runs, 1)]

    def probe(self) -> None:
        """Write something; raises ``OSError`` if that is not allowed."""
        with self.files.open_output_stream(f"{self.path}/probe") as file:
            file.write(b"penstock")

    def remove(self) -> None:
        # If it fails, the bucket's lifecycle rule deletes the files: no reason to load again.
        with suppress(OSError):
            self.files.delete_dir(self.path)


class RollingFiles:
    """Files of about ``FILE_BYTES`` each: ``run-1.0.csv.gz``, ``run-1.1.csv.gz``."""

    def __init__(self, files: fs.FileSystem, prefix: str) -> None:
        self._files = files
        self._prefix = prefix
        self._count = 0
        self._room = 0
        self._open: pa.NativeFile | None = None

    def write(self, data: pa.Buffer) -> None:
        if self._open is None or self._room <= 0:
            self.close()
            self._open = self._files.open_output_stream(f"{self._prefix}{self._count}.csv.gz", compression="gzip")
            self._count += 1
            self._room = FILE_BYTES
        self._open.write(data)
        self._room -= data.size

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def csv_bytes(rows: pa.RecordBatch, null: str) -> pa.Buffer:
    """Rows as CSV in the form that COPY reads."""
    plain = [_plain(column, null) for column in rows.columns]
    sink = pa.BufferOutputStream()
    csv.write_csv(
        pa.RecordBatch.from_arrays(plain, names=rows.schema.names), sink, csv.WriteOptions(include_header=False)
    )
    return sink.getvalue()


def _plain(column: pa.Array, null: str) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.fill_null(null)
    if pa.types.is_decimal(column.type):
        return as_text(column)  # COPY reads no exponents into numeric, and Arrow would write them
    if pa.types.is_timestamp(column.type):
        # Without a zone, which COPY reads as UTC, for columns with a zone and without one.
        return pc.cast(column, pa.timestamp("us"))
    return column
