"""Rows on their way into one table: what a loader gives to a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.merge_rows import AFTER, TURN, UPTO, Merge
from penstock.destinations.sql.schema.schema_operations import Table, TypedColumn
from penstock.flatten.inner_types import InnerType


class Rows(Protocol):
    """The rows of a load: readers of one schema each. After a failure they can be asked for again, and start over."""

    def columns(self) -> Sequence[str]:
        """Every column that any reader has, by our names."""

    def readers(self) -> Iterator[pa.RecordBatchReader]: ...


@dataclass(frozen=True)
class Load:
    """Rows for a table that has all their columns. They are merged into it, or appended without ``merge``."""

    table: Table
    rows: Rows
    merge: Merge | None = None

    def staged_columns(self, dialect: Dialect) -> list[TypedColumn]:
        """The columns of the staged rows, by the names of the table and of ``merge_rows``."""
        columns = [self.table.columns[name] for name in self.rows.columns()]
        if self.merge is not None and self.merge.in_turns and self.merge.version is not None:
            version = self.table.columns[self.merge.version].type
            columns.append(TypedColumn(TURN, dialect.types[InnerType.INT64]))
            columns += [TypedColumn(AFTER, version), TypedColumn(UPTO, version)]
        return columns
