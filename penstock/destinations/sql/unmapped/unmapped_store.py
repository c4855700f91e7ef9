"""What an engine must do for ``penstock schema remap``: read what rows keep in ``_unmapped``, and move it to
columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from penstock.config.component import Offer, offered_by
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.schema.schema_operations import Table
from penstock.errors import PenstockError
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

ROW = "@row"
"""The column of a batch that identifies the row of the table. No data column has this name."""
REMAPPED = "_penstock_remapped"
"""The temporary table of rows and their new values."""


class UnmappedStore(ABC):
    """One table's ``_unmapped``, inside a transaction that ends with this store. Errors are those of ``Session``."""

    row_id: ClassVar[str]
    """The engine's name for the place of a row. A place is valid until the table's schema changes."""

    @abstractmethod
    def rows(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows with something in ``_unmapped``: ``ROW``, ``_unmapped`` as JSON text and, for each of the columns
        (by our names), whether it is NULL. The other methods may be called between two batches."""

    @abstractmethod
    def run_ddl(self, statements: Sequence[str]) -> None:
        """Run schema changes."""

    @abstractmethod
    def write_back(self, table: Table, columns: Sequence[str], rows: Iterator[pa.RecordBatch]) -> None:
        """Write the rows' new values, by ``update_statement``. Batches have ``ROW``, the columns (null: the column
        stays as it is) and the new ``_unmapped``."""


def update_statement(dialect: Dialect, table: Table, columns: Sequence[str], row_id: str) -> str:
    """The statement that writes the rows of ``REMAPPED`` into their table."""
    real = [dialect.identifier(table.columns[name].name) for name in columns]
    spare = dialect.identifier(table.columns[UNMAPPED].name)
    changes = ", ".join([*(f"{name} = COALESCE(t.{name}, s.{name})" for name in real), f"{spare} = s.{spare}"])
    return (
        f"UPDATE {dialect.relation(table.name)} AS t SET {changes}"
        f" FROM {dialect.identifier(REMAPPED)} AS s WHERE t.{row_id} = s.{dialect.identifier(ROW)}"
    )


def not_offered() -> PenstockError:
    return PenstockError(
        "PEN-DST-080",
        "Penstock cannot read or move what _unmapped holds at this kind of destination.",
        f"This is offered for {offered_by(Offer.REMAP)}. Elsewhere, change the table with the engine's own JSON"
        " functions.",
    )
