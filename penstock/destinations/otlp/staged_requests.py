"""OTLP requests between the tasks and the driver: protobuf, each behind the place of its row, in a file per signal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.otlp.request_pieces import Piece, cut_request
from penstock.outcome import PLACE_SCHEMA

SCHEMA: pa.Schema = pa.schema([*PLACE_SCHEMA, pa.field("nth", pa.int32()), pa.field("body", pa.binary())])
_AT_ONCE = 256
"""How many rows are held as Python objects at a time."""


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


def staged_pieces(parts: Sequence[Part]) -> Iterator[StagedPiece]:
    """All pieces of the rows of the parts, in the order of the log, partition by partition."""
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        for place, body in _rows(part):
            pieces = list(cut_request(body))
            first, total = 0, sum(len(piece.entries) for piece in pieces)
            for piece in pieces:
                yield StagedPiece(place, first, total, piece)
                first += len(piece.entries)


def _rows(part: Part) -> Iterator[tuple[Place, bytes]]:
    with pa.OSFile(part.path, "rb") as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            for start in range(0, batch.num_rows, _AT_ONCE):
                *places, bodies = (column.to_pylist() for column in batch.slice(start, _AT_ONCE).columns)
                yield from zip(map(Place._make, zip(*places, strict=True)), bodies, strict=True)
