"""Finds which of many entries have a newer one of the same key, in bounded memory.

Entries are added in the order of the log and identified by their number in it. Whenever ``room`` entries have gathered,
they are sorted by key: the newest entry of each key stays, and those that it does not supersede (``supersession``); the
others are flagged as superseded. If more than half stay, there are many keys: then what stays is spilled to files by
the first bits of its hash, so that each file can be processed on its own in the end.

Cost: 72 bytes of memory for each of ``room`` entries, whatever the size of the log. On disk one byte for each entry
that may be dropped and, if the keys do not fit into memory, 32 bytes for each entry that had no newer one when it was
spilled.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.maintenance.compaction_keys import KeyHash
from penstock.log.maintenance.supersession import Flags, Numbers, superseded_flags, superseding_entries
from penstock.siphash import Words

ROOM = 2**20

_SPILLED = np.dtype([("high", "<u8"), ("low", "<u8"), ("says", "<u8"), ("number", "<i8")])


class EntryColumns(NamedTuple):
    """What is known of entries, column by column."""

    high: Words
    low: Words
    """The hash of an entry's key."""
    says: Words
    """Which older entries it supersedes."""
    number: Numbers

    def at(self, rows: Numbers | Flags | slice) -> EntryColumns:
        return EntryColumns(self.high[rows], self.low[rows], self.says[rows], self.number[rows])


class NewestEntries:
    def __init__(self, scratch: Path, entries: int, droppable: int, room: int = ROOM) -> None:
        """At most ``entries`` will be added; only the first ``droppable`` may be dropped. ``scratch`` is an empty
        folder."""
        self._scratch = scratch
        self._hash = KeyHash()
        self._known = EntryColumns(*(np.empty(room, _SPILLED[name]) for name in EntryColumns._fields))
        self._room, self._used, self._added = room, 0, 0
        # Twice as many files as evenly filled ones would need, so that none is too full.
        self._bits = max(0, (2 * entries // room).bit_length())
        self._spilled = False
        self._superseded = _flags(scratch / "superseded", droppable)

    def add(self, entries: pa.RecordBatch) -> None:
        """Add the next entries of the log."""
        first = 0
        while first < entries.num_rows:
            if self._used == self._room:
                self._make_room()
            part = entries.slice(first, self._room - self._used)
            keyed, rows, says = superseding_entries(part, self._hash)
            place = slice(self._used, self._used + len(rows))
            self._hash.hash(keyed, self._known.high[place], self._known.low[place])
            self._known.says[place], self._known.number[place] = says, self._added + rows
            self._used, self._added, first = place.stop, self._added + part.num_rows, first + part.num_rows

    def superseded(self) -> npt.NDArray[np.bool_]:
        """For each entry that may be dropped, whether a newer one of its key was added. Call it once, at the end."""
        self._drop_older()
        if self._spilled:
            self._spill()
            for path in sorted(self._scratch.glob("keys-*")):
                content = np.fromfile(path, _SPILLED)
                self._note(separate_older(EntryColumns(*(content[name] for name in EntryColumns._fields))).older)
                path.unlink()
        return self._superseded

    def _make_room(self) -> None:
        self._drop_older()
        if self._used > self._room // 2:
            self._spill()

    def _drop_older(self) -> None:
        found = separate_older(self._in_use())
        self._note(found.older)
        self._used = len(found.left.number)
        for column, left in zip(self._known, found.left, strict=True):
            column[: self._used] = left

    def _in_use(self) -> EntryColumns:
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


class Separated(NamedTuple):
    left: EntryColumns
    """Sorted by key, then by age."""
    older: Numbers
    """The numbers of the superseded entries."""


def separate_older(known: EntryColumns) -> Separated:
    """Separate entries from those that they supersede. The entries of one key must be in their order."""
    known = known.at(np.argsort(known.high, kind="stable"))
    alike = known.high[1:] == known.high[:-1]
    if np.any(alike & (known.low[1:] != known.low[:-1])):
        # Two keys share half of their hash: sort by all of it.
        known = known.at(np.lexsort((known.number, known.low, known.high)))
        alike = (known.high[1:] == known.high[:-1]) & (known.low[1:] == known.low[:-1])
    odd = bool(known.says.any())
    older = superseded_flags(known.high, known.low, known.says) if odd else np.append(alike, False)[: len(known.number)]
    return Separated(known.at(~older), known.number[older])


def _flags(path: Path, count: int) -> npt.NDArray[np.bool_]:
    """Flags in a file, so that the system can reclaim their memory. All false."""
    if count == 0:
        return np.zeros(0, np.bool_)
    with path.open("xb") as file:
        # Writing to a map of blocks that the disk lacks would kill the process instead of raising.
        os.posix_fallocate(file.fileno(), 0, count)
    return np.memmap(path, np.bool_, "r+", shape=(count,))
