"""The rows of a batch that are sent by key, as the driver has them: the files of all tasks, mapped.

In memory are places and sizes alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Order, Part
from penstock.destinations.sending.staged.keyed_row_file import DEFINITIONS, KEYED_SCHEMA
from penstock.outcome import PLACE_COLUMNS, PLACE_SCHEMA
from penstock.record import int64_array
from penstock.sessions.request_size import EventSizes

Numbers = npt.NDArray[np.int64]


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
    _known_stretches: dict[str, _Stretches] = field(default_factory=dict)

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
            definitions = [(each.numbers[rows], each.sizes) for each in self._definitions if each.texts]
            self._event_sizes[key] = EventSizes(self._sizes[rows], definitions)
        return self._event_sizes[key]

    def bytes_of(self, key: str, start: int, end: int) -> int:
        """Of these rows, with their separators."""
        ends = self.sizes(key).ends
        return int(ends[end - 1] - (ends[start - 1] if start else 0))

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
        stretches = self._stretches(key)
        number, found = bisect_right(stretches.starts, start) - 1, []
        while start < end:
            first, stop = stretches.starts[number], min(end, stretches.starts[number + 1])
            ends, data = _body_buffers(self._batches[stretches.batches[number]])
            shift = stretches.places[number] - first
            found.append(data[int(ends[start + shift]) : int(ends[stop + shift])])
            start, number = stop, number + 1
        return found

    def _stretches(self, key: str) -> _Stretches:
        if key not in self._known_stretches:
            rows = self.keys[key]
            batches = np.searchsorted(self._firsts, rows, "right") - 1
            starts = np.append(0, np.flatnonzero((np.diff(rows) != 1) | (np.diff(batches) != 0)) + 1)
            places = rows[starts] - self._firsts[batches[starts]]
            self._known_stretches[key] = _Stretches(
                [*starts.tolist(), len(rows)], batches[starts].tolist(), places.tolist()
            )
        return self._known_stretches[key]

    def definitions(self, key: str, start: int, end: int) -> list[list[bytes]]:
        """By kind what these rows refer to, in the order in which they do."""
        rows = self.keys[key][start:end]
        found: list[list[bytes]] = []
        for each in self._definitions:
            if not each.texts:
                found.append([])
                continue
            numbers, first = np.unique(each.numbers[rows], return_index=True)
            found.append([each.texts[number] for number in numbers[np.argsort(first)].tolist() if number >= 0])
        return found


class _Stretches(NamedTuple):
    """Of a key its rows that stand one behind the other in a batch: where they begin among its rows, and where the
    last ones end; and of each the batch, and its first row in that."""

    starts: Sequence[int]
    batches: Sequence[int]
    places: Sequence[int]


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
