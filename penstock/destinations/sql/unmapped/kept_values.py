"""What an engine must do for ``penstock schema remap``: read what rows keep in ``_unmapped``, and take it over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.schema.table_changes import Table
from penstock.errors import PenstockError
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

ROW = "@row"
"""The column of a batch that says which row of the table it is about. No column of data is called so."""
REMAPPED = "_penstock_remapped"
"""The temporary table of rows with their new values."""


class KeptValues(ABC):
    """One table, inside a transaction that ends with this. Errors are those of ``Session``."""

    row_id: ClassVar[str]
    """The engine's own word for the place of a row. It holds until the table's schema changes."""

    @abstractmethod
    def rows(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows that have something in ``_unmapped``: ``ROW``, ``_unmapped`` as JSON text and, for each of the
        columns (by our names), whether it is NULL. Between two batches the other methods may be called."""

    @abstractmethod
    def change(self, statements: Sequence[str]) -> None:
        """Run schema changes."""

    @abstractmethod
    def take_over(self, table: Table, columns: Sequence[str], rows: Iterator[pa.RecordBatch]) -> None:
        """Give rows their new values, with the statement of ``update``. Batches have ``ROW``, the columns (null: the
        column stays as it is) and the new ``_unmapped``."""


def update(dialect: Dialect, table: Table, columns: Sequence[str], row_id: str) -> str:
    """The statement that takes the rows of ``REMAPPED`` over into their table."""
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
        "what is kept in _unmapped cannot be read or moved by Penstock at this kind of destination.",
        "This is offered for duckdb and postgres. Elsewhere, change the table with the engine's own JSON functions.",
    )
