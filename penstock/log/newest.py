"""Which of many entries have a newer one of the same key, in bounded memory.

Entries are told in the order of the log and named by their number in it. What is known of them is sorted by key
whenever ``room`` of them have gathered: of each key the newest stays, the others are noted as superseded. If more than
half stay, there are many keys, and what stays goes to files by the first bits of its hash, so that each file can be
settled on its own in the end.

Cost: 56 bytes of memory for each of ``room`` entries, whatever the size of the log. On disk one byte for each entry
that may be dropped and, if the keys do not fit into memory, 24 bytes for each entry that was the newest of its key when
it was put there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.keys import KeyHash, Words

ROOM = 2**20

_SPILLED = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<i8")])
Numbers = npt.NDArray[np.int64]


class Newest:
    def __init__(self, scratch: Path, entries: int, droppable: int, room: int = ROOM) -> None:
        """``entries`` will be told at most; only the first ``droppable`` of them may go. ``scratch`` is an empty
        folder."""
        self._scratch = scratch
        self._hash = KeyHash()
        self._high, self._low = np.empty(room, np.uint64), np.empty(room, np.uint64)
        self._number = np.empty(room, np.int64)
        self._used = self._told = 0
        # Twice as many files as would do if all were equally full: then none is too full.
        self._bits = max(0, (2 * entries // room).bit_length())
        self._spilled = False
        self._superseded = _flags(scratch / "superseded", droppable)

    def tell(self, entries: pa.RecordBatch) -> None:
        """The next entries of the log."""
        first = 0
        while first < entries.num_rows:
            if self._used == len(self._number):
                self._make_room()
            part = entries.slice(first, len(self._number) - self._used)
            end = self._used + part.num_rows
            self._hash.hash(part, self._high[self._used : end], self._low[self._used : end])
            self._number[self._used : end] = np.arange(self._told, self._told + part.num_rows)
            self._used, self._told, first = end, self._told + part.num_rows, first + part.num_rows

    def superseded(self) -> npt.NDArray[np.bool_]:
        """For each entry that may be dropped, whether a newer one of its key was told. To be called once, at the
        end."""
        self._settle()
        if self._spilled:
            self._spill()
            for path in sorted(self._scratch.glob("keys-*")):
                content = np.fromfile(path, _SPILLED)
                self._note(newest_per_key(content["high"], content["low"], content["number"]).older)
                path.unlink()
        return self._superseded

    def _make_room(self) -> None:
        self._settle()
        if self._used > len(self._number) // 2:
            self._spill()

    def _settle(self) -> None:
        used = self._used
        found = newest_per_key(self._high[:used], self._low[:used], self._number[:used])
        self._note(found.older)
        self._used = used = len(found.number)
        self._high[:used], self._low[:used], self._number[:used] = found.high, found.low, found.number

    def _note(self, older: Numbers) -> None:
        self._superseded[older[older < len(self._superseded)]] = True

    def _spill(self) -> None:
        used = self._used
        content = np.empty(used, _SPILLED)
        content["high"], content["low"], content["number"] = self._high[:used], self._low[:used], self._number[:used]
        edges = [bucket << (64 - self._bits) for bucket in range(1, 1 << self._bits)]
        cuts = np.searchsorted(self._high[:used], np.array(edges, np.uint64))
        for bucket, part in enumerate(np.split(content, cuts)):
            if len(part):
                with (self._scratch / f"keys-{bucket:08d}").open("ab") as file:
                    file.write(part.tobytes())
        self._used, self._spilled = 0, True


class NewestPerKey(NamedTuple):
    high: Words
    low: Words
    number: Numbers
    """Of each key the newest entry, sorted by key."""
    older: Numbers
    """The others."""


def newest_per_key(high: Words, low: Words, number: Numbers) -> NewestPerKey:
    """Entries of one key, that is of one ``high`` and ``low``, must come in their order."""
    order = np.argsort(high, kind="stable")
    high, low, number = high[order], low[order], number[order]
    alike = high[1:] == high[:-1]
    if np.any(alike & (low[1:] != low[:-1])):
        # Two keys share a half of their hash: only the whole of it keeps the entries of each together.
        order = np.lexsort((number, low, high))
        high, low, number = high[order], low[order], number[order]
        alike = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    newest = np.append(~alike, True)[: len(number)]
    return NewestPerKey(high[newest], low[newest], number[newest], number[:-1][alike])


def _flags(path: Path, count: int) -> npt.NDArray[np.bool_]:
    """Flags in a file, so that they take no memory that the system cannot have back. All false."""
    if count == 0:
        return np.zeros(0, np.bool_)
    with path.open("xb") as file:
        # A map of blocks that the disk does not have would end the process instead of raising.
        os.posix_fallocate(file.fileno(), 0, count)
    return np.memmap(path, np.bool_, "r+", shape=(count,))
