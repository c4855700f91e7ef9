"""Rows on their way into one table: what a loader gives to a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.destinations.contract import Batch
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.merge_rows import AFTER, TURN, UPTO, Merge
from penstock.destinations.sql.marks import Mark, mark_text
from penstock.destinations.sql.schema.schema_operations import Table, TypedColumn
from penstock.errors import RefusedError
from penstock.flatten.inner_types import InnerType


@dataclass(frozen=True)
class LoadResult:
    """What became of the rows of a load: ``rows`` of them were accepted, the others are in ``failures``."""

    rows: int
    failures: pa.RecordBatch
    merged: int
    """How many rows were folded into another row of the same key."""


class EqualKeys(RefusedError):
    """Keys that differ to us are equal to the engine (padded text, case-insensitive letters): only rows that are folded
    by its own rule can be merged."""

    def __init__(self, classes: npt.NDArray[np.int64]) -> None:
        """``classes`` has a number for each row that was given: the same for equal keys."""
        super().__init__(
            "PEN-DST-114",
            "the engine takes several keys of these rows for the same one.",
            "Nothing to do: they are folded into one row, and loaded again.",
        )
        self.classes = classes


class Rows(Protocol):
    """The rows of a load: readers of one schema each. After a failure they can be asked for again, and start over."""

    def columns(self) -> Sequence[str]:
        """Every column that any reader has, by our names."""

    def readers(self) -> Iterator[pa.RecordBatchReader]: ...

    def result(self) -> LoadResult:
        """What became of the rows, once the readers were read. Raises ``WriteRefused`` if some fit nowhere and none may
        be left out."""


@dataclass(frozen=True)
class Load:
    """Rows for a table that has all their columns. They are merged into it, or appended without ``merge``."""

    table: Table
    rows: Rows
    merge: Merge | None = None
    batch: Batch | None = None
    """The batch whose mark is written with the rows. Without one the load is only tried."""
    meant_for: Sequence[str] = ()
    """The tables that the rows were staged for, if not for this one."""

    def mark(self) -> Mark | None:
        """The mark to write with the rows, once they were read; ``None`` in a trial."""
        if self.batch is None:
            return None
        found = self.rows.result()
        text = mark_text(found.failures, found.merged, self.meant_for, self.batch)
        return Mark(self.batch, self.table.name, found.rows, text)

    def staged_columns(self, dialect: Dialect) -> list[TypedColumn]:
        """The columns of the staged rows, by the names of the table and of ``merge_rows``."""
        columns = [self.table.columns[name] for name in self.rows.columns()]
        if self.merge is not None and self.merge.in_turns and self.merge.version is not None:
            version = self.table.columns[self.merge.version].type
            columns.append(TypedColumn(TURN, dialect.types[InnerType.INT64]))
            columns += [TypedColumn(AFTER, version), TypedColumn(UPTO, version)]
        return columns
