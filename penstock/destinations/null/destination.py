"""Counts the rows of a batch and writes nothing, so writing a batch again changes nothing either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.destinations.contract import NULL_TABLE_BOOK, Batch, Destination, Part, Receipt, Stager, TableBook
from penstock.destinations.null.config import NullConfig
from penstock.outcome import Outcome

TABLE = "null"


class NullDestination(Destination[NullConfig]):
    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return CountingStager()

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        return Receipt.of_all(TABLE, parts)


class CountingStager(Stager):
    """Makes one part without a file: only its first place and its number of rows."""

    def __init__(self) -> None:
        self._first = (-1, -1)
        self._rows = 0

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        if batch.num_rows and not self._rows:
            self._first = batch.column("partition")[0].as_py(), batch.column("offset")[0].as_py()
        self._rows += batch.num_rows
        return Outcome(batch)

    def finish(self) -> list[Part]:
        return [Part(TABLE, "", self._rows, *self._first)] if self._rows else []
