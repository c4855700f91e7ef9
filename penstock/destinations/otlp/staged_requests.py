"""OTLP requests between the tasks and the driver: protobuf, each behind the place of its row, in a file per signal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.destinations.contract import Order, Part
from penstock.otlp.request_pieces import Piece, cut_request
from penstock.outcome import PLACE_COLUMNS, PLACE_SCHEMA

SCHEMA: pa.Schema = pa.schema([*PLACE_SCHEMA, pa.field("nth", pa.int32()), pa.field("body", pa.binary())])


class Place(NamedTuple):
    """What names a staged row: its item, and which of the item's rows it is."""

    partition: int
    offset: int
    item: int
    nth: int


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """A piece of a row's request."""

    place: Place
    first: int
    """How many entries of the row stand before it."""
    row_entries: int
    """How many entries the whole row has."""
    piece: Piece

    def __len__(self) -> int:
        return len(self.piece.entries)

    @property
    def end(self) -> int:
        return self.first + len(self)

    def between(self, first: int, last: int) -> StagedPiece:
        """Its entries from one to another, counted in it."""
        return StagedPiece(self.place, self.first + first, self.row_entries, self.piece.between(first, last))


class RequestFile:
    """A file that is written, batch by batch: a part in the making."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: Place | None = None
        self._rows = 0
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, SCHEMA)

    def write(self, places: Sequence[Place], bodies: Sequence[bytes]) -> None:
        """At least one row."""
        self._first = self._first or places[0]
        self._rows += len(places)
        columns = [*zip(*places, strict=True), bodies]
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
        self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))

    def finish(self, table: str) -> Part:
        self._stream.close()
        self._file.close()
        partition, offset = self._first[:2] if self._first else (-1, -1)
        return Part(table, str(self._path), self._rows, partition, offset)


def staged_pieces(parts: Sequence[Part], order: Order | None = None) -> Iterator[StagedPiece]:
    """All pieces of the rows of the parts, in the order of the log; partition by partition if that is not known."""
    for place, body in _rows(parts, order):
        pieces = list(cut_request(body))
        first, total = 0, sum(len(piece.entries) for piece in pieces)
        for piece in pieces:
            yield StagedPiece(place, first, total, piece)
            first += len(piece.entries)


def _rows(parts: Sequence[Part], order: Order | None) -> Iterator[tuple[Place, bytes]]:
    """Files are mapped and not read: in memory are the places of all rows, and one body at a time."""
    batches = [batch for part in parts for batch in pa.ipc.open_stream(pa.memory_map(part.path))]
    if not batches:
        return
    partition, offset, item, nth = (
        np.concatenate([batch.column(name).to_numpy().astype(np.int64) for batch in batches])
        for name in (*PLACE_COLUMNS, "nth")
    )
    ranks = np.zeros(len(offset), np.int64) if order is None else order.ranks(partition, offset)
    ends = np.cumsum([batch.num_rows for batch in batches])
    for row in np.lexsort((nth, item, offset, partition, ranks)).tolist():
        of = int(np.searchsorted(ends, row, "right"))
        body = batches[of].column("body")[row - int(ends[of]) + batches[of].num_rows].as_py()
        yield Place(int(partition[row]), int(offset[row]), int(item[row]), int(nth[row])), body
