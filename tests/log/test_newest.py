"""Which entries have a newer one of their key: compared with a dictionary, also when memory is short."""

from __future__ import annotations

import struct
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.maintenance.compaction_keys import KeyHash
from penstock.log.maintenance.newest_entries import EntryColumns, NewestEntries, separate_older
from penstock.record import Record, entries

Key = tuple[str, str | None]
keys = st.tuples(st.sampled_from(["", "a", "shop.orders", "ä" * 5]), st.none() | st.text(max_size=9))


def batch(pairs: Sequence[Key]) -> pa.RecordBatch:
    return entries(Record(b"", namespace, key=key) for namespace, key in pairs)


def superseded(pairs: Sequence[Key], droppable: int, room: int, scratch: Path) -> list[bool]:
    newest = NewestEntries(scratch, len(pairs), droppable, room)
    for first in range(0, len(pairs), 7):
        newest.add(batch(pairs[first : first + 7]))
    return list(map(bool, newest.superseded()))


def by_dictionary(pairs: Sequence[Key], droppable: int) -> list[bool]:
    last = {pair: number for number, pair in enumerate(pairs)}
    return [last[pair] > number for number, pair in enumerate(pairs[:droppable])]


@given(st.lists(keys, max_size=120), st.integers(0, 120), st.sampled_from([2, 5, 16, 1000]))
@settings(max_examples=150, deadline=None)
def test_the_newest_of_each_key_is_found_whatever_fits_into_memory(pairs: list[Key], droppable: int, room: int) -> None:
    droppable = min(droppable, len(pairs))
    with tempfile.TemporaryDirectory() as scratch:
        assert superseded(pairs, droppable, room, Path(scratch)) == by_dictionary(pairs, droppable)


@pytest.mark.parametrize("distinct", [1, 40, 5000, 40_000])
def test_many_keys_take_disk_not_memory(tmp_path: Path, distinct: int) -> None:
    pairs: list[Key] = [("shop", f"k{n * 7919 % distinct}") for n in range(40_000)]
    batches = [batch(pairs[first : first + 500]) for first in range(0, len(pairs), 500)]

    def peak(folder: Path) -> int:
        folder.mkdir()
        newest = NewestEntries(folder, len(pairs), len(pairs), room=2000)
        newest.add(batches[0])
        tracemalloc.start()
        for each in batches[1:]:
            newest.add(each)
        found = newest.superseded()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert int(np.count_nonzero(found)) == 40_000 - distinct
        return most

    # The interpreter's own table of names may grow in the middle of it, by megabytes; it does so once.
    assert min(peak(tmp_path / "first"), peak(tmp_path / "second")) < 600_000
    assert list(tmp_path.glob("keys-*")) == []


def test_keys_that_share_half_a_hash_are_told_apart() -> None:
    high = np.array([5, 5, 5, 5, 9], np.uint64)
    low = np.array([1, 2, 1, 2, 1], np.uint64)
    found = separate_older(EntryColumns(high, low, np.zeros(5, np.uint64), np.arange(5)))
    assert sorted(found.left.number) == [2, 3, 4]
    assert sorted(found.older) == [0, 1]


_SECRET = bytes(range(16))


@given(st.lists(st.tuples(st.text(max_size=30), st.none() | st.text(max_size=30)), max_size=8))
@settings(max_examples=100, deadline=None)
def test_the_compiled_hash_is_siphash(pairs: list[Key]) -> None:
    high, low = np.empty(len(pairs), np.uint64), np.empty(len(pairs), np.uint64)
    KeyHash(_SECRET).hash(batch(pairs), high, low)
    assert [(int(h), int(lo)) for h, lo in zip(high, low, strict=True)] == [siphash(words_of(*pair)) for pair in pairs]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", None), ("ab", "")),
        (("ab", None), ("a", "b")),
        (("ab", ""), ("a", "b")),
        (("a" * 8, "b"), ("a" * 7, "ab")),
        (("", "a"), ("a", None)),
        (("a", "\0"), ("a", "")),
    ],
)
def test_pairs_that_are_not_the_same_do_not_hash_alike(one: Key, other: Key) -> None:
    high, low = np.empty(2, np.uint64), np.empty(2, np.uint64)
    KeyHash().hash(batch([one, other]), high, low)
    assert (high[0], low[0]) != (high[1], low[1])
    assert words_of(*one) != words_of(*other)


def test_every_run_hashes_in_its_own_way() -> None:
    pairs = [("a", "b")]
    hashes = set()
    for _ in range(3):
        high, low = np.empty(1, np.uint64), np.empty(1, np.uint64)
        KeyHash().hash(batch(pairs), high, low)
        hashes.add((int(high[0]), int(low[0])))
    assert len(hashes) == 3


def test_a_part_of_a_batch_hashes_as_it_does_in_the_whole() -> None:
    pairs: list[Key] = [("a", None), ("b", "x"), ("a", "yy"), ("ccc", None)]
    hashing, whole = KeyHash(), batch(pairs)
    high, low = np.empty(4, np.uint64), np.empty(4, np.uint64)
    hashing.hash(whole, high, low)
    part_high, part_low = np.empty(2, np.uint64), np.empty(2, np.uint64)
    hashing.hash(whole.slice(1, 2), part_high, part_low)
    assert (list(part_high), list(part_low)) == (list(high[1:3]), list(low[1:3]))


def words_of(namespace: str, key: str | None) -> list[int]:
    """What goes into the hash for a pair, word by word."""
    name = namespace.encode()
    words = [len(name) * 2 + (key is not None), *_padded(name)]
    return words if key is None else [*words, len(key.encode()), *_padded(key.encode())]


def _padded(text: bytes) -> list[int]:
    text += bytes(-len(text) % 8)
    return [word for (word,) in struct.iter_unpack("<Q", text)]


def siphash(words: list[int]) -> tuple[int, int]:
    """SipHash-2-4 with 128 bits, as its authors describe it, over whole words."""
    k0, k1 = struct.unpack("<QQ", _SECRET)
    state = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    state[1] ^= 0xEE
    for word in words:
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xEE
    _rounds(state, 4)
    first = state[0] ^ state[1] ^ state[2] ^ state[3]
    state[1] ^= 0xDD
    _rounds(state, 4)
    return first, state[0] ^ state[1] ^ state[2] ^ state[3]


def _rounds(v: list[int], count: int) -> None:
    mask = 2**64 - 1

    def turned(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & mask

    for _ in range(count):
        v[0] = (v[0] + v[1]) & mask
        v[1] = turned(v[1], 13) ^ v[0]
        v[0] = turned(v[0], 32)
        v[2] = (v[2] + v[3]) & mask
        v[3] = turned(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & mask
        v[3] = turned(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & mask
        v[1] = turned(v[1], 17) ^ v[2]
        v[2] = turned(v[2], 32)
