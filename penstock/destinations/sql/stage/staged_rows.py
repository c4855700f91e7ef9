"""The staged files of one table of a batch, as consecutively numbered rows that can be read in part and repeatedly.

Files are mapped into memory, not read: a further pass costs only what it looks at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.destinations.sql.stage.file_header import decode
from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType

MEANT_FOR = "_penstock_table"
"""The column that names the table that a row was meant for, if it is in another one."""


@dataclass(frozen=True)
class StagedFile:
    path: str
    header: tuple[Column, ...]
    rows: int
    first_row: int
    """The number of its first row among all rows of the table."""
    meant_for: str | None = None
    """The table that its rows were staged for, if they go to another one and must name it there."""

    @cached_property
    def schema(self) -> pa.Schema:
        with pa.memory_map(self.path) as file, pa.ipc.open_file(file) as reader:
            return reader.schema if self.meant_for is None else self._with_table(reader.schema.empty_table()).schema

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
                    rows = batch.slice(low, high - low)
                    yield rows if self.meant_for is None else self._named(rows)

    def _named(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        named = self._with_table(pa.Table.from_batches([rows]))
        return named.combine_chunks().to_batches()[0]

    def _with_table(self, rows: pa.Table) -> pa.Table:
        """The rows with the table that they were meant for; a field that has this column's name is renamed."""
        names = [_free_name(MEANT_FOR, rows.schema.names) if name == MEANT_FOR else name for name in rows.schema.names]
        told = pa.repeat(pa.scalar(self.meant_for, pa.string()), rows.num_rows)
        return rows.rename_columns(names).append_column(MEANT_FOR, told)


def staged_files(parts: Sequence[Part], say_table: bool = False) -> list[StagedFile]:
    """The files of one table in log order; with ``say_table`` each row names in ``MEANT_FOR`` the table it was meant
    for."""
    files: list[StagedFile] = []
    row = 0
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        header = decode(part.header)
        if say_table:
            taken = [column.name for column in header]
            header = (
                Column(MEANT_FOR, (), InnerType.STRING),
                *(replace(c, name=_free_name(MEANT_FOR, taken)) if c.name == MEANT_FOR else c for c in header),
            )
        files.append(StagedFile(part.path, header, part.rows, row, part.table if say_table else None))
        row += part.rows
    return files


def _free_name(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name
