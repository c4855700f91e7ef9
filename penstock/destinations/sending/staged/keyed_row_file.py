"""What a task stages of rows that are sent by key: an Arrow file, in which those of a key stand together.

Rows come in blocks, whose bytes are laid out already, or one by one. What has been gathered is sorted by key and
written with the bytes of rows one behind the other, so that a request is made of a few stretches of a mapped file, and
no row is touched again.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.outcome import PLACE_SCHEMA
from penstock.record import int64_array

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
    """With what separates it from the next."""
    definitions: tuple[bytes | None, ...] = (None, None)


class Numbered(NamedTuple):
    """Of each row the number of its text; -1 for none."""

    numbers: Numbers
    texts: Sequence[bytes]


class KeyedBlock(NamedTuple):
    """Many rows, in any order."""

    places: tuple[Numbers, Numbers, Numbers]
    """Partitions, offsets and items."""
    key: Numbers
    """Of each row the number of its key."""
    keys: Sequence[str]
    about: Sequence[bytes]
    """Of each key."""
    definitions: tuple[Numbered, ...]
    bodies: pa.BinaryArray
    """With what separates each from the next."""


class KeyedRowFile:
    """Made with its first rows."""

    def __init__(self, directory: Path, table: str) -> None:
        self._path = directory / f"{uuid.uuid4().hex}.rows"
        self._table = table
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._gathered: list[KeyedRow] = []
        self._blocks: list[KeyedBlock] = []
        self._bytes = 0
        self._rows = 0
        self._first: tuple[int, int] | None = None

    def add(self, row: KeyedRow) -> None:
        self._gathered.append(row)
        self._note(row.place[0], row.place[1], len(row.body))

    def add_block(self, block: KeyedBlock) -> None:
        """Add rows, of which there is one at least."""
        self._blocks.append(block)
        partitions, offsets, _ = block.places
        self._note(int(partitions[0]), int(offsets[0]), block.bodies.nbytes)

    def finish(self) -> list[Part]:
        self._write()
        if self._writer is None or self._first is None:
            return []
        self._writer.close()
        return [Part(self._table, str(self._path), self._rows, *self._first)]

    def _note(self, partition: int, offset: int, size: int) -> None:
        place = partition, offset
        self._first = place if self._first is None else min(self._first, place)
        self._bytes += size
        if self._bytes >= MOST_GATHERED:
            self._write()

    def _write(self) -> None:
        blocks = [*self._blocks, *([_block(self._gathered)] if self._gathered else [])]
        if not blocks:
            return
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, KEYED_SCHEMA)
        batch = _sorted_by_key(blocks)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        self._gathered, self._blocks, self._bytes = [], [], 0


def _block(rows: Sequence[KeyedRow]) -> KeyedBlock:
    # Row by row, as they came.
    about = {row.key: row.about for row in rows}
    number = {key: number for number, key in enumerate(about)}
    partitions, offsets, items = np.array([row.place for row in rows], np.int64).T
    return KeyedBlock(
        (partitions, offsets, items),
        np.array([number[row.key] for row in rows], np.int64),
        list(about),
        list(about.values()),
        tuple(_numbered([row.definitions[kind] for row in rows]) for kind in range(len(DEFINITIONS))),
        pa.array([row.body for row in rows], pa.binary()),
    )


def _numbered(texts: Sequence[bytes | None]) -> Numbered:
    number = {text: number for number, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    return Numbered(np.array([-1 if text is None else number[text] for text in texts], np.int64), list(number))


def _sorted_by_key(blocks: Sequence[KeyedBlock]) -> pa.RecordBatch:
    """The rows of all blocks, by key, those of a key in the order of the log."""
    about = {key: text for block in blocks for key, text in zip(block.keys, block.about, strict=True)}
    number = {key: number for number, key in enumerate(about)}
    key = np.concatenate([np.array([number[key] for key in block.keys], np.int64)[block.key] for block in blocks])
    partitions, offsets, items = (np.concatenate([block.places[part] for block in blocks]) for part in range(3))
    order = _order(key, partitions, offsets, items)
    key = key[order]
    is_first = np.append(True, key[1:] != key[:-1])
    bodies = blocks[0].bodies if len(blocks) == 1 else pa.concat_arrays([block.bodies for block in blocks])
    arrays = [
        int64_array(partitions[order]).cast(pa.int32()),
        int64_array(offsets[order]),
        int64_array(items[order]),
        _taken(list(about), pa.string(), key),
        _taken(list(about.values()), pa.binary(), np.where(is_first, key, -1)),
        *(_definitions([block.definitions[kind] for block in blocks], order) for kind in range(len(DEFINITIONS))),
        bodies.take(int64_array(order)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=KEYED_SCHEMA)


def _order(key: Numbers, partitions: Numbers, offsets: Numbers, items: Numbers) -> Numbers:
    if len(set(partitions.tolist())) == 1 and (np.diff(offsets) >= 0).all() and not items.any():
        # What came in the order of the log, as most does, is sorted by a key of few bits: that is much faster.
        few = key.astype(np.int16) if key.max(initial=0) < 1 << 15 else key
        return np.argsort(few, kind="stable")
    return np.lexsort((items, offsets, partitions, key))


def _definitions(parts: Sequence[Numbered], order: Numbers) -> pa.Array:
    texts = [text for part in parts for text in part.texts]
    firsts = np.cumsum([0, *(len(part.texts) for part in parts[:-1])])
    numbers = [np.where(part.numbers < 0, -1, part.numbers + first) for part, first in zip(parts, firsts, strict=True)]
    return _taken(texts, pa.binary(), np.concatenate(numbers)[order])


def _taken(texts: Sequence[str] | Sequence[bytes], kind: pa.DataType, numbers: Numbers) -> pa.Array:
    """The texts with these numbers; null for -1."""
    if not len(texts):
        return pa.nulls(len(numbers), kind)
    absent = numbers < 0
    chosen = int64_array(np.where(absent, len(texts), numbers)) if absent.any() else int64_array(numbers)
    return pa.array([*texts, None], kind).take(chosen)
