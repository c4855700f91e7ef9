"""The shards of a holding step: every key belongs to one, and each has its own state and its own task.

Spark places a shard by the hash of its number. The numbers are chosen so that every task gets exactly one shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count

import numpy as np
import pyarrow as pa

from penstock.holding.item import Items
from penstock.holding.item_columns import ItemColumns
from penstock.holding.packed_rows import pack_columns
from penstock.steps.contract import Shard

SHARDS = 4
"""For every route. State is kept by shard: another number would not find it again."""

BYPASS = np.uint32(1 << 31)
"""The bit of an item that goes on whatever the state says."""
TICK = np.uint32(1 << 30)
"""The bit of an item that is no record but a tick."""
RELEASE = np.uint32(1 << 29)
"""The bit of an item that is no record but a release: its stamp is the point up to which nothing waits any longer."""
COMMAND = np.uint32(1 << 28)
"""The bit of an item that is no record but a command of the step's own."""
CONTROL = TICK | RELEASE | COMMAND

OFFSETS_PER_SLICE_BITS = 14
"""A slice is longer than a frame, so that few frames are read by two tasks."""
ITEMS_PER_ROW = 1 << 16
"""What is released travels in rows of a bounded size."""

PACKED_SCHEMA: pa.Schema = pa.schema(
    [pa.field("shard", pa.int32(), nullable=False), pa.field("items", pa.binary(), nullable=False)]
)
"""What travels from scan to decide: all items of a task for a shard, in one row. A shard gets a row from every task,
also an empty one: without input it would not say what it holds."""


@cache
def shard_numbers() -> tuple[int, ...]:
    """The numbers of the shards, in the order of the tasks that they go to."""
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(_hash(number) % SHARDS, number)
        if len(found) == SHARDS:
            return tuple(found[task] for task in range(SHARDS))
    raise AssertionError


def release_tasks(cores: int) -> int:
    """How many tasks release on so many cores: one that has to wait for another is only set up for nothing. Each is
    given as many of the shards' numbers as any other."""
    return next((tasks for tasks in (SHARDS, SHARDS // 2) if tasks <= cores), 1)


def shard_at(number: int, secret: bytes) -> Shard:
    """The shard of a number."""
    return Shard(shard_numbers().index(number), SHARDS, secret)


def pack(found: Sequence[ItemColumns], kind: np.dtype[np.void]) -> pa.RecordBatch:
    """The items by shard. What is no record goes to all of them."""
    chosen: list[list[ItemColumns]] = [[] for _ in range(SHARDS)]
    for items in found:
        is_control = (items["bits"] & CONTROL) != 0
        if is_control.any():
            control, items = items.take(is_control), items.take(~is_control)
            for of_shard in chosen:
                of_shard.append(control)
        shard_of = (items["high"] % np.uint64(SHARDS)).astype(np.uint8)
        order = np.argsort(shard_of, kind="stable")
        ends = np.cumsum(np.bincount(shard_of, minlength=SHARDS))
        for of_shard, rows in zip(chosen, np.split(order, ends[:-1]), strict=True):
            of_shard.append(items.take(rows))
    blobs = [pack_columns(ItemColumns.joined(kind, of_shard)) for of_shard in chosen]
    columns = [pa.array(shard_numbers(), pa.int32()), pa.array(blobs, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


def slices(released: Items) -> Iterator[tuple[int, Items]]:
    """What a shard releases, by the part of the log that it is in: each part goes to one task, so that the log is read
    once for all shards. Yields the number of the task's rows, as of a shard, and the items."""
    places = (released["partition"] + (released["offset"] >> OFFSETS_PER_SLICE_BITS)) % SHARDS
    for place, number in enumerate(shard_numbers()):
        items = released.compress(places == place)
        for at in range(0, len(items), ITEMS_PER_ROW):
            yield number, items[at : at + ITEMS_PER_ROW]


def _hash(number: int) -> int:
    """As Spark hashes an integer to place its row (Murmur3 with 32 bits and the seed 42)."""
    mixed = _rotate(number * 0xCC9E2D51, 15) * 0x1B873593
    code = _rotate(42 ^ mixed & _WORD, 13) * 5 + 0xE6546B64 & _WORD
    code ^= 4
    code = (code ^ code >> 16) * 0x85EBCA6B & _WORD
    code = (code ^ code >> 13) * 0xC2B2AE35 & _WORD
    code ^= code >> 16
    return code - (1 << 32) if code >= 1 << 31 else code


_WORD = 0xFFFFFFFF


def _rotate(word: int, bits: int) -> int:
    word &= _WORD
    return (word << bits | word >> 32 - bits) & _WORD
