"""Reads records by pointer, in batches of bounded size, and names the pointers that lead nowhere any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock.log.format.frame import READ_POOL
from penstock.log.reader import BATCH_BYTES, BATCH_RECORDS, PartitionReader
from penstock.record import int64_values

POINTER_SCHEMA: pa.Schema = pa.schema(
    [pa.field("partition", pa.int32(), nullable=False), pa.field("offset", pa.int64(), nullable=False)]
)

Pointers: TypeAlias = Iterable[tuple[int, int]] | pa.Table | pa.RecordBatch
"""Pairs of partition and offset, or a table that has both columns."""


class Fetch:
    """Iterate over it once: yields the records, each once, sorted by partition and offset. A frame is opened only if it
    holds one of them, and then once; in memory are one frame and one batch."""

    def __init__(self, pointers: Pointers, reader_of: Callable[[int], PartitionReader | None]) -> None:
        self._partitions, self._offsets = _pointer_arrays(pointers)
        self._reader_of = reader_of
        self._missing: list[pa.RecordBatch] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for partition in _distinct(self._partitions).tolist():
            wanted = _distinct(self._offsets[self._partitions == partition])
            reader = self._reader_of(partition)
            there = np.zeros(len(wanted), bool)
            for batch in () if reader is None else _merged(reader.fetch(wanted)):
                there[np.searchsorted(wanted, int64_values(batch.column("offset")))] = True
                yield batch
            self._note_missing(partition, wanted[~there])

    @property
    def missing(self) -> pa.RecordBatch:
        """The pointers, as ``POINTER_SCHEMA``, whose records were removed: complete when the iteration has ended."""
        return pa.concat_batches(self._missing) if self._missing else _pointers(0, np.empty(0, np.int64))

    def _note_missing(self, partition: int, offsets: np.ndarray) -> None:
        if len(offsets):
            self._missing.append(_pointers(partition, offsets))


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """The numbers, each once, in order. Most are in order already, and to see that takes a tenth of a sort."""
    if len(numbers) and numbers.min() == numbers.max():
        return numbers[:1]
    return numbers if np.all(numbers[1:] > numbers[:-1]) else np.unique(numbers)


def _merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small ones joined: a collector writes frames of a few records, and each has its price in every step."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = batch.nbytes
        if gathered and (rows + batch.num_rows > BATCH_RECORDS or size + more > BATCH_BYTES):
            yield pa.concat_batches(gathered, memory_pool=READ_POOL)
            gathered, rows, size = [], 0, 0
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + more
    if gathered:
        yield pa.concat_batches(gathered, memory_pool=READ_POOL)


def _pointers(partition: int, offsets: np.ndarray) -> pa.RecordBatch:
    columns = [pa.array(np.full(len(offsets), partition, np.int32)), pa.array(offsets.astype(np.int64, copy=False))]
    return pa.RecordBatch.from_arrays(columns, schema=POINTER_SCHEMA)


def _pointer_arrays(pointers: Pointers) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(pointers, pa.Table | pa.RecordBatch):
        return pointers.column("partition").to_numpy(), pointers.column("offset").to_numpy()
    pairs = np.array(list(pointers), np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
