"""The staged files of one mirrored table in one task, each an Arrow file of changes with one header."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.destinations.sql.mirror.stage.change_header import MirrorHeader, merge_headers
from penstock.destinations.sql.stage.stager import OFFSET, PARTITION
from penstock.destinations.sql.stage.table_files import FILE_ROWS, HeldRows, create_arrow_file


class MirrorFiles(HeldRows):
    """Takes pieces in the order of the log and holds them back until they fill a file, or until ``flush``."""

    def __init__(self, directory: Path, table: str) -> None:
        super().__init__(directory, table, create_arrow_file)
        self._headers: list[MirrorHeader] = []

    def append(self, rows: pa.Table, header: MirrorHeader) -> None:
        if not all(held.shares_a_file_with(header) for held in self._headers):
            self.flush()
        self._held.append(rows)
        if header not in self._headers:
            self._headers.append(header)
        if sum(piece.num_rows for piece in self._held) >= FILE_ROWS:
            self.flush()

    def _part(self, path: Path, rows: pa.Table) -> Part:
        place = rows.column(PARTITION)[0].as_py(), rows.column(OFFSET)[0].as_py()
        header, self._headers = merge_headers(self._headers), []
        return Part(self._table, str(path), rows.num_rows, *place, header.encode())
