"""Which of many entries have a newer one of the same key, in bounded memory.

Entries are told in the order of the log and named by their number in it. What is known of them is sorted by key
whenever ``room`` of them have gathered: of each key the newest stays, and with it those that it does not stand for
(``supersession``); the others are noted as superseded. If more than half stay, there are many keys, and what stays goes
to files by the first bits of its hash, so that each file can be settled on its own in the end.

Cost: 72 bytes of memory for each of ``room`` entries, whatever the size of the log. On disk one byte for each entry
that may be dropped and, if the keys do not fit into memory, 32 bytes for each entry that had no newer one when it was
put there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.maintenance.compaction_keys import KeyHash, Words
from penstock.log.maintenance.supersession import Flags, Numbers, superfluous, told

ROOM = 2**20

_SPILLED = np.dtype([("high", "<u8"), ("low", "<u8"), ("says", "<u8"), ("number", "<i8")])


class Known(NamedTuple):
    """Entries, a column for each thing that is known of them."""

    high: Words
    low: Words
    """The hash of an entry's key."""
    says: Words
    """What it says of older ones."""
    number: Numbers

    def at(self, rows: Numbers | Flags | slice) -> Known:
        return Known(self.high[rows], self.low[rows], self.says[rows], self.number[rows])


class Newest:
    def __init__(self, scratch: Path, entries: int, droppable: int, room: int = ROOM) -> None:
        """``entries`` will be told at most; only the first ``droppable`` of them may go. ``scratch`` is an empty
        folder."""
        self._scratch = scratch
        self._hash = KeyHash()
        self._known = Known(*(np.empty(room, _SPILLED[name]) for name in Known._fields))
        self._room, self._used, self._told = room, 0, 0
        # Twice as many files as would do if all were equally full: then none is too full.
        self._bits = max(0, (2 * entries // room).bit_length())
        self._spilled = False
        self._superseded = _flags(scratch / "superseded", droppable)

    def tell(self, entries: pa.RecordBatch) -> None:
        """The next entries of the log."""
        first = 0
        while first < entries.num_rows:
            if self._used == self._room:
                self._make_room()
            part = entries.slice(first, self._room - self._used)
            keyed, rows, says = told(part, self._hash)
            place = slice(self._used, self._used + len(rows))
            self._hash.hash(keyed, self._known.high[place], self._known.low[place])
            self._known.says[place], self._known.number[place] = says, self._told + rows
            self._used, self._told, first = place.stop, self._told + part.num_rows, first + part.num_rows

    def superseded(self) -> npt.NDArray[np.bool_]:
        """For each entry that may be dropped, whether a newer one of its key was told. To be called once, at the
        end."""
        self._settle()
        if self._spilled:
            self._spill()
            for path in sorted(self._scratch.glob("keys-*")):
                content = np.fromfile(path, _SPILLED)
                self._note(settled(Known(*(content[name] for name in Known._fields))).older)
                path.unlink()
        return self._superseded

    def _make_room(self) -> None:
        self._settle()
        if self._used > self._room // 2:
            self._spill()

    def _settle(self) -> None:
        found = settled(self._in_use())
        self._note(found.older)
        self._used = len(found.left.number)
        for column, left in zip(self._known, found.left, strict=True):
            column[: self._used] = left

    def _in_use(self) -> Known:
        return self._known.at(slice(self._used))

    def _note(self, older: Numbers) -> None:
        self._superseded[older[older < len(self._superseded)]] = True

    def _spill(self) -> None:
        content = np.empty(self._used, _SPILLED)
        for name, column in self._in_use()._asdict().items():
            content[name] = column
        edges = [bucket << (64 - self._bits) for bucket in range(1, 1 << self._bits)]
        cuts = np.searchsorted(content["high"], np.array(edges, np.uint64))
        for bucket, part in enumerate(np.split(content, cuts)):
            if len(part):
                with (self._scratch / f"keys-{bucket:08d}").open("ab") as file:
                    file.write(part.tobytes())
        self._used, self._spilled = 0, True


class Settled(NamedTuple):
    left: Known
    """Sorted by key, and of each key by age."""
    older: Numbers
    """The numbers of the others."""


def settled(known: Known) -> Settled:
    """Entries of one key, that is of one ``high`` and ``low``, must come in their order."""
    known = known.at(np.argsort(known.high, kind="stable"))
    alike = known.high[1:] == known.high[:-1]
    if np.any(alike & (known.low[1:] != known.low[:-1])):
        # Two keys share a half of their hash: only the whole of it keeps the entries of each together.
        known = known.at(np.lexsort((known.number, known.low, known.high)))
        alike = (known.high[1:] == known.high[:-1]) & (known.low[1:] == known.low[:-1])
    odd = bool(known.says.any())
    older = superfluous(known.high, known.low, known.says) if odd else np.append(alike, False)[: len(known.number)]
    return Settled(known.at(~older), known.number[older])


def _flags(path: Path, count: int) -> npt.NDArray[np.bool_]:
    """Flags in a file, so that they take no memory that the system cannot have back. All false."""
    if count == 0:
        return np.zeros(0, np.bool_)
    with path.open("xb") as file:
        # A map of blocks that the disk does not have would end the process instead of raising.
        os.posix_fallocate(file.fileno(), 0, count)
    return np.memmap(path, np.bool_, "r+", shape=(count,))
