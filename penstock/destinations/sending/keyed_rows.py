"""Rows between the tasks and the driver: an Arrow file per task, in which those of a key stand together.

A task serialises each row once. What it has gathered is sorted by key and written with the bytes of rows one behind the
other, so that a request is made of a few stretches of a mapped file, and no row is touched again. In memory are places
and sizes alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Order, Part
from penstock.outcome import PLACE_COLUMNS, PLACE_SCHEMA
from penstock.record import int64_array
from penstock.sessions.request_size import EventSizes

Numbers = npt.NDArray[np.int64]

DEFINITIONS = ("thread", "log")
"""What rows refer to, and a request lists once."""
KEYED_SCHEMA: pa.Schema = pa.schema(
    [
        *PLACE_SCHEMA,
        pa.field("key", pa.string(), nullable=False),
        pa.field("about", pa.binary()),
        *(pa.field(name, pa.binary()) for name in DEFINITIONS),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
"""``about``: what the requests of a key say once; it is there in one of its rows in each batch at least. ``body``: the
row's bytes and what separates it from the next."""

MOST_GATHERED = 2 << 20
"""Bytes of rows that a task sorts together."""


class KeyedRow(NamedTuple):
    place: tuple[int, int, int]
    """Partition, offset and item."""
    key: str
    about: bytes
    body: bytes
    definitions: tuple[bytes | None, ...] = (None, None)


class KeyedRowFile:
    """Made with its first rows."""

    def __init__(self, directory: Path, table: str, separator: bytes = b",") -> None:
        """``separator``: the byte behind each row."""
        self._separator = separator
        self._path = directory / f"{uuid.uuid4().hex}.rows"
        self._table = table
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._gathered: list[KeyedRow] = []
        self._bytes = 0
        self._rows = 0
        self._first: tuple[int, int] | None = None

    def add(self, row: KeyedRow) -> None:
        if self._first is None:
            self._first = row.place[:2]
        self._gathered.append(row)
        self._bytes += len(row.body)
        if self._bytes >= MOST_GATHERED:
            self._write()

    def finish(self) -> list[Part]:
        if self._first is None:
            return []
        self._write()
        assert self._writer is not None, "there are rows"
        self._writer.close()
        return [Part(self._table, str(self._path), self._rows, *self._first)]

    def _write(self) -> None:
        if not self._gathered:
            return
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, KEYED_SCHEMA)
        # The sort is stable: the rows of a key stay in their order.
        rows = sorted(self._gathered, key=lambda row: row.key)
        starts = [place == 0 or rows[place - 1].key != row.key for place, row in enumerate(rows)]
        columns: list[Sequence[object]] = [
            *zip(*(row.place for row in rows), strict=True),
            [row.key for row in rows],
            [row.about if starts_key else None for row, starts_key in zip(rows, starts, strict=True)],
            *([row.definitions[kind] for row in rows] for kind in range(len(DEFINITIONS))),
            [row.body + self._separator for row in rows],
        ]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, KEYED_SCHEMA.types, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=KEYED_SCHEMA))
        self._rows += len(rows)
        self._gathered, self._bytes = [], 0


@dataclass(frozen=True)
class _Definitions:
    """What rows refer to, of one kind: the number of each row's, and what the numbers stand for."""

    numbers: Numbers
    texts: Sequence[bytes]

    @cached_property
    def sizes(self) -> Numbers:
        return np.array([len(text) + 1 for text in self.texts], np.int64)


@dataclass(frozen=True)
class KeyedRows:
    """The rows of a batch, by key, in the order of the log."""

    keys: Mapping[str, Numbers]
    """Of each key its rows: their numbers over all files."""
    about: Mapping[str, bytes]
    _places: tuple[Numbers, Numbers, Numbers]
    _sizes: Numbers
    _definitions: Sequence[_Definitions]
    _batches: Sequence[pa.RecordBatch]
    _firsts: Numbers
    """The number of the first row of each batch."""
    _event_sizes: dict[str, EventSizes] = field(default_factory=dict)

    @classmethod
    def load(cls, parts: Sequence[Part], order: Order | None) -> KeyedRows:
        """Map the files of all parts."""
        in_turn = sorted(parts, key=lambda part: (part.partition, part.first_offset))
        batches = [batch for part in in_turn for batch in _mapped(part.path)]
        counts = [batch.num_rows for batch in batches]
        columns = {
            name: pa.chunked_array([batch.column(name) for batch in batches]) for name in KEYED_SCHEMA.names[:-1]
        }
        partitions, offsets, items = (columns[name].to_numpy().astype(np.int64) for name in PLACE_COLUMNS)
        encoded = pc.dictionary_encode(columns["key"]).combine_chunks()
        codes = encoded.indices.to_numpy().astype(np.int64)
        names = encoded.dictionary.to_pylist()
        ranks = offsets if order is None else order.ranks(partitions, offsets)
        by_partition = partitions if order is None else np.zeros(len(codes), np.int64)
        rows = np.lexsort((items, ranks, by_partition, codes))
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        keys = dict(zip(names, np.split(rows, ends[:-1]), strict=True))
        there = np.flatnonzero(columns["about"].is_valid().to_numpy())
        about = {
            names[codes[row]]: text
            for row, text in zip(there.tolist(), columns["about"].drop_null().to_pylist(), strict=True)
        }
        definitions = [_read_definitions(columns[name]) for name in DEFINITIONS]
        sizes = np.concatenate([_sizes(batch) for batch in batches])
        firsts = np.cumsum([0, *counts[:-1]])
        return cls(keys, about, (partitions, offsets, items), sizes, definitions, batches, firsts)

    def sizes(self, key: str) -> EventSizes:
        """Of the rows of a key."""
        if key not in self._event_sizes:
            rows = self.keys[key]
            definitions = [(each.numbers[rows], each.sizes) for each in self._definitions]
            self._event_sizes[key] = EventSizes(self._sizes[rows], definitions)
        return self._event_sizes[key]

    def place(self, key: str, row: int) -> tuple[int, int, int]:
        number = self.keys[key][row]
        partition, offset, item = (int(column[number]) for column in self._places)
        return partition, offset, item

    def places(self, key: str, start: int, end: int) -> pa.RecordBatch:
        rows = self.keys[key][start:end]
        partitions = pa.array(self._places[0][rows].astype(np.int32))
        others = [int64_array(column[rows]) for column in self._places[1:]]
        return pa.RecordBatch.from_arrays([partitions, *others], schema=PLACE_SCHEMA)

    def bodies(self, key: str, start: int, end: int) -> list[memoryview]:
        """The bytes of these rows, each with its separator behind it, in a few stretches of mapped files."""
        rows = self.keys[key][start:end]
        of = np.searchsorted(self._firsts, rows, "right") - 1
        breaks = np.flatnonzero((np.diff(rows) != 1) | (np.diff(of) != 0)) + 1
        firsts, lasts = np.append(0, breaks), np.append(breaks, len(rows)) - 1
        found = []
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            number = int(of[first])
            ends, data = _body_buffers(self._batches[number])
            at = int(rows[first] - self._firsts[number])
            found.append(data[int(ends[at]) : int(ends[at + 1 + last - first])])
        return found

    def definitions(self, key: str, start: int, end: int) -> list[list[bytes]]:
        """By kind what these rows refer to, in the order in which they do."""
        rows = self.keys[key][start:end]
        found = []
        for each in self._definitions:
            numbers, first = np.unique(each.numbers[rows], return_index=True)
            found.append([each.texts[number] for number in numbers[np.argsort(first)].tolist() if number >= 0])
        return found


def _mapped(path: str) -> list[pa.RecordBatch]:
    reader = pa.ipc.open_file(pa.memory_map(path))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _body_buffers(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int32], memoryview]:
    _, ends, data = batch.column("body").buffers()
    return np.frombuffer(ends, np.int32), memoryview(data)


def _sizes(batch: pa.RecordBatch) -> Numbers:
    return np.diff(_body_buffers(batch)[0][: batch.num_rows + 1]).astype(np.int64)


def _read_definitions(column: pa.ChunkedArray) -> _Definitions:
    encoded = pc.dictionary_encode(column).combine_chunks()
    numbers = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    return _Definitions(numbers, encoded.dictionary.to_pylist())
