"""The staged files of one table of a batch, as rows that are numbered through and can be read in part, again and again.

Files are mapped into memory, not read: going over them once more costs what is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.destinations.sql.header import decode
from penstock.flatten.column import Column


@dataclass(frozen=True)
class StagedFile:
    path: str
    header: tuple[Column, ...]
    rows: int
    first_row: int
    """Its first row's number among all rows of the table."""

    @property
    def schema(self) -> pa.Schema:
        with pa.memory_map(self.path) as file, pa.ipc.open_file(file) as reader:
            return reader.schema

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """Its rows with numbers in ``[start, end)``."""
        with pa.memory_map(self.path) as file, pa.ipc.open_file(file) as reader:
            row = self.first_row
            for place in range(reader.num_record_batches):
                batch = reader.get_batch(place)
                low = max(0, start - row)
                high = batch.num_rows if end is None else min(batch.num_rows, end - row)
                row += batch.num_rows
                if low < high:
                    yield batch.slice(low, high - low)


def staged_files(parts: Sequence[Part]) -> list[StagedFile]:
    """The files of one table in log order."""
    files: list[StagedFile] = []
    row = 0
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        files.append(StagedFile(part.path, decode(part.header), part.rows, row))
        row += part.rows
    return files
