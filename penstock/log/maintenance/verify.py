"""Verifies all of a log: every frame's checksums, the order of offsets, every index.

Takes no lock and changes nothing, so it may run beside the pipeline. Damage is what no reader can get past and no
reopening repairs. What a torn write left after the last whole frame is not damage: the next writer cuts it off and
reports it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LogError
from penstock.log.format.head import Head, read_head
from penstock.log.format.index import Place, first_place, is_damaged, place_at, read_index
from penstock.log.format.log_files import index_path, segment_bases, segment_path, size_of
from penstock.log.format.segment import Segment, after
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.survey import NO_LIMIT, Broken, survey
from penstock.log.maintenance.work_progress import Meter, Progress, silent

QUARANTINE = "quarantine"
_TRIES = 5


@dataclass(frozen=True)
class Damage:
    """Bytes from ``position`` on that no longer hold records; no bytes if the offsets are in no file at all."""

    partition: int
    segment: Path
    position: int
    bytes: int
    first: int
    end: int
    """The offsets from ``first`` up to, not including, ``end`` cannot be read. They are equal if none is lost."""
    why: str


@dataclass(frozen=True)
class Quarantined:
    """Damage that was repaired: these offsets are gone from the log; the damaged bytes are kept."""

    segment: str
    position: int
    bytes: int
    first: int
    end: int
    why: str
    at: str


@dataclass(frozen=True)
class PartitionCheck:
    partition: int
    source: str
    segments: int
    frames: int
    records: int
    bytes: int
    damage: tuple[Damage, ...]
    wrong_indexes: tuple[Path, ...]
    """Indexes with foreign bytes, or an entry that fits no frame. Readers notice that too; it only costs them time."""
    head_problem: str | None
    quarantined: tuple[Quarantined, ...]

    @property
    def is_whole(self) -> bool:
        return not (self.damage or self.wrong_indexes or self.head_problem)


def verify(
    log: LocalLog, partitions: Collection[int] | None = None, progress: Progress = silent
) -> Iterator[PartitionCheck]:
    """Check partitions, by default all, one after the other."""
    for partition in log.partitions() if partitions is None else partitions:
        yield check_partition(log, partition, progress)


def check_partition(log: LocalLog, partition: int, progress: Progress = silent) -> PartitionCheck:
    source = log.owner(partition).source
    directory = log.partition_dir(partition)
    for _ in range(_TRIES):
        before = _files(directory)
        check = _Check(directory, partition, progress)
        # Retention and compaction may remove files meanwhile: problems count only if the files are still the same.
        if not (check.damage or check.head_problem) or _files(directory) == before:
            break
    return PartitionCheck(
        partition, source, check.segments, check.frames, check.records, check.bytes, tuple(check.damage),
        tuple(check.wrong_indexes), check.head_problem, tuple(quarantined(directory)),
    )  # fmt: skip


def quarantined(partition_dir: Path) -> Iterator[Quarantined]:
    """Earlier repairs of a partition, in the order of offsets."""
    for path in sorted((partition_dir / QUARANTINE).glob("*.json")):
        yield Quarantined(**json.loads(path.read_bytes()))


class _Check:
    """One pass over a partition, from its first segment to the head."""

    def __init__(self, directory: Path, partition: int, progress: Progress) -> None:
        self._directory = directory
        self._partition = partition
        self.segments = self.frames = self.records = self.bytes = 0
        self.damage: list[Damage] = []
        self.wrong_indexes: list[Path] = []
        self.head_problem: str | None = None
        self._head = self._read_head()
        bases = segment_bases(directory)
        self._meter = Meter(partition, sum(size_of(segment_path(directory, base)) for base in bases), progress)
        reached = bases[0] if bases else 0
        for place, base in enumerate(bases):
            if base < reached:
                # Compaction was interrupted before it could remove this one: its records are in an earlier one.
                continue
            self._check_gap(reached, base)
            is_active = base == bases[-1] and (self._head is None or self._head.segment <= base)
            reached = self._check_active(base) if is_active else self._check_closed(base, bases[place + 1 :])
        self._check_head(bases, reached)

    def _read_head(self) -> Head | None:
        try:
            return read_head(self._directory)
        except LogError as error:
            self.head_problem = error.what
            return None

    def _check_head(self, bases: list[int], reached: int) -> None:
        """After a power cut the head may name an earlier segment than the last: opening the partition repairs that."""
        head = self._head
        if head is None:
            if bases and self.head_problem is None:
                self.head_problem = "there is no head"
            return
        path = segment_path(self._directory, head.segment)
        if head.segment not in bases:
            self.head_problem = f"the head names {path.name}, which is missing"
            if not bases or bases[-1] < head.segment:
                self._check_gap(reached if bases else head.segment, max(head.segment, head.next_offset))
        elif (segment := self._open_segment(head.segment)) is not None and segment.generation:
            self.head_problem = f"the head knows {path.name} as it was before it was repaired"

    def _check_gap(self, reached: int, base: int) -> None:
        if reached < base:
            path = segment_path(self._directory, reached)
            self.damage.append(Damage(self._partition, path, 0, 0, reached, base, "no file holds these offsets"))

    def _check_closed(self, base: int, later: list[int]) -> int:
        """Check a closed segment; returns up to which offset it reaches, damage included."""
        segment = self._open_segment(base)
        if segment is None:
            return base
        limit = min((b for b in later if b > base), default=NO_LIMIT)
        end, broken = self._survey(segment, None, NO_LIMIT if segment.generation else limit)
        named = end.offset if self._head is None else max(self._head.segment, end.offset)
        following = min((b for b in later if b > end.offset), default=named)
        for found in broken:
            self._note(segment, found, following if found.end is None else found.end)
        return following if broken and broken[-1].end is None else end.offset

    def _check_active(self, base: int) -> int:
        """Check the active segment: only what the head calls durable must be whole."""
        segment = self._open_segment(base)
        if segment is None:
            return base
        head = self._head if self._head is not None and self._head.segment == base else Head(base, 0, base, 0)
        end, broken = self._survey(segment, head.position or segment.size, NO_LIMIT)
        for found in broken:
            if found.end is None and found.position < head.durable:
                self._note(segment, found, max(head.next_offset, found.first))
            elif found.end is not None and (found.position < head.position or self._nobody_writes()):
                self._note(segment, found, found.end)
        if end.position < head.durable and not broken and segment.generation == 0:
            why = f"the file ends here, but was written up to byte {head.durable}"
            self.damage.append(
                Damage(self._partition, segment.path, end.position, 0, end.offset, head.next_offset, why)
            )
        return max(end.offset, head.next_offset)

    def _nobody_writes(self) -> bool:
        """After the head a writer may be writing; but it publishes each frame before it writes the next."""
        return self._read_head() == self._head

    def _survey(self, segment: Segment, published: int | None, limit: int) -> tuple[Place, list[Broken]]:
        """Count whole frames up to ``published``, or all; returns the place after them, and what is broken."""
        self.segments += 1
        size = segment.size if published is None else min(segment.size, published)
        self.bytes += size
        index = _IndexCheck(segment, published)
        end, broken = first_place(segment.base), []
        for found in survey(segment, limit):
            if isinstance(found, Broken):
                broken.append(found)
                self._meter.add(found.bytes)
                continue
            index.compare(found.place)
            end = after(found.place, found.header)
            self._meter.add(found.header.frame_bytes)
            if found.place.position < size:
                self.frames += 1
                self.records += found.header.records
        index.compare(end)
        if not broken and not index.is_right:
            self.wrong_indexes.append(index_path(segment.path))
        return end, broken

    def _note(self, segment: Segment, found: Broken, end: int) -> None:
        self.damage.append(
            Damage(self._partition, segment.path, found.position, found.bytes, found.first, end, found.why)
        )

    def _open_segment(self, base: int) -> Segment | None:
        try:
            return Segment(segment_path(self._directory, base), base)
        except FileNotFoundError:
            return None


class _IndexCheck:
    """Compares the entries of a segment's index with its frames."""

    def __init__(self, segment: Segment, published: int | None) -> None:
        """``published``: the writer may be adding entries for frames after this byte."""
        entries = read_index(index_path(segment.path), segment.base, segment.generation)
        self._entries = entries if published is None else entries[entries["position"] <= published]
        self._next = 0
        self._fits = not is_damaged(index_path(segment.path), segment.base)

    @property
    def is_right(self) -> bool:
        """Whether every entry is whole and matched its frame."""
        return self._fits and self._next == len(self._entries)

    def compare(self, place: Place) -> None:
        while self._next < len(self._entries) and self._entries["position"][self._next] <= place.position:
            self._fits = self._fits and place_at(self._entries, self._next) == place
            self._next += 1


def _files(directory: Path) -> dict[int, int]:
    """The inode of each segment's file."""
    found: dict[int, int] = {}
    for base in segment_bases(directory):
        with suppress(FileNotFoundError):
            found[base] = segment_path(directory, base).stat().st_ino
    return found
