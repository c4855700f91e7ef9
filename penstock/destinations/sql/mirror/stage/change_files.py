"""The staged files of one mirrored table in one task, each an Arrow file of changes with one header."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.destinations.sql.mirror.stage.change_header import MirrorHeader, merge_headers
from penstock.destinations.sql.stage.stager import OFFSET, PARTITION
from penstock.destinations.sql.stage.table_files import FILE_ROWS, create_arrow_file


class MirrorFiles:
    """Takes pieces in the order of the log and holds them back until they fill a file, or until ``flush``."""

    def __init__(self, directory: Path, table: str) -> None:
        self._directory = directory
        self._table = table
        self._parts: list[Part] = []
        self._held: list[pa.Table] = []
        self._headers: list[MirrorHeader] = []

    @property
    def held_bytes(self) -> int:
        return sum(piece.nbytes for piece in self._held)

    def append(self, rows: pa.Table, header: MirrorHeader) -> None:
        if not all(held.shares_a_file_with(header) for held in self._headers):
            self.flush()
        self._held.append(rows)
        if header not in self._headers:
            self._headers.append(header)
        if sum(piece.num_rows for piece in self._held) >= FILE_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the held rows as one file."""
        if not self._held:
            return
        rows = pa.concat_tables(self._held, promote_options="default").combine_chunks()
        path = self._directory / uuid.uuid4().hex
        writer = create_arrow_file(path, rows.schema)
        writer.write_table(rows)
        writer.close()
        place = rows.column(PARTITION)[0].as_py(), rows.column(OFFSET)[0].as_py()
        header = merge_headers(self._headers)
        self._parts.append(Part(self._table, str(path), rows.num_rows, *place, header.encode()))
        self._held, self._headers = [], []

    def finish(self) -> list[Part]:
        self.flush()
        return self._parts
