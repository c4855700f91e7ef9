"""Who assigned which offsets: every writer of a partition has its own id, noted with the first offset that it assigned.

An older copy of a partition that is restored assigns offsets a second time, to other records. It has another writer, so
these offsets have another id from then on: two records that share partition, offset and id are the same record, and so
is everything before them. The note is durable before the first record is. Offsets from before the log kept such notes
have the id ``""``.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.errors import LogError
from penstock.log.format.log_files import replace_durably

LINEAGE_FILE = "lineage.json"
_ID_LENGTH = 12


class Incarnation(NamedTuple):
    """A writer of a partition, and the first offset that it gave."""

    first: int
    writer: str


@dataclass(frozen=True)
class Lineage:
    """The writers of a partition, in order of their first offsets."""

    incarnations: tuple[Incarnation, ...] = ()

    def writer_of(self, offset: int) -> str:
        place = bisect_right(self.incarnations, offset, key=lambda each: each.first)
        return self.incarnations[place - 1].writer if place else ""

    def within(self, start: int, end: int) -> Lineage:
        """The writers of the offsets ``[start, end)``, the first of them from ``start`` on."""
        if start >= end:
            return Lineage()
        later = tuple(each for each in self.incarnations if start < each.first < end)
        return Lineage((Incarnation(start, self.writer_of(start)), *later))

    def agreed(self, other: Lineage, start: int, end: int) -> int:
        """The offset in ``[start, end)`` up to which, not including it, both name the same writers."""
        firsts = {each.first for lineage in (self, other) for each in lineage.incarnations if start < each.first < end}
        for first in (start, *sorted(firsts)):
            if self.writer_of(first) != other.writer_of(first):
                return first
        return end


def read_lineage(partition_dir: Path) -> Lineage:
    """The partition's lineage; empty if no writer has been noted yet."""
    path = partition_dir / LINEAGE_FILE
    try:
        content = json.loads(path.read_bytes())
        return Lineage(tuple(Incarnation(int(first), str(writer)) for first, writer in content))
    except FileNotFoundError:
        return Lineage()
    except (ValueError, TypeError) as error:
        raise LogError(
            "PEN-LOG-007",
            f"{path} cannot be read: {error}.",
            "Restore the file from a backup: it records which writer assigned which offsets. Without a backup, move it"
            " away: appends continue, and each route that has delivered halts until you run `penstock offset adopt`.",
        ) from None


def note_writer(partition_dir: Path, first: int, oldest: int) -> None:
    """Note, durably, that a new writer assigns the offsets from ``first`` on. Offsets below ``oldest`` are gone, and
    need one entry at most."""
    known = read_lineage(partition_dir).incarnations
    # Writers noted for this offset or later have assigned none, in this copy of the log.
    kept = [each for each in known if each.first < first]
    while len(kept) > 1 and kept[1].first <= oldest:
        del kept[0]
    _write(partition_dir, [*kept, Incarnation(first, uuid.uuid4().hex[:_ID_LENGTH])])


def _write(partition_dir: Path, incarnations: Sequence[Incarnation]) -> None:
    content = json.dumps([list(each) for each in incarnations], separators=(",", ":"))
    replace_durably(partition_dir / LINEAGE_FILE, content.encode())
