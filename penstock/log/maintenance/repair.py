"""Repairs a log: moves damaged bytes aside, and marks their offsets in the log as gone.

The damaged bytes go to ``quarantine/`` in the partition's folder, with a note of where they were, before anything is
changed. Then the segment is rewritten without them and put in place by one rename. Offsets do not change; lost ones are
never reused. Whenever a crash comes, the damage is still there or it is repaired; repairing again finishes the work.

Repair closes the active segment and starts the next one: a writer appends only to segments of the first generation.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.durable import make_directory, sync_directory
from penstock.errors import LogError
from penstock.faults import reach
from penstock.log.format.frame import BadFrame
from penstock.log.format.head import Head, HeadFile, read_head
from penstock.log.format.index import first_place
from penstock.log.format.log_files import replace_durably, segment_bases, segment_path, try_lock
from penstock.log.format.segment import Segment, after
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.maintenance_lock import SCRATCH, busy_error, lock_for_maintenance
from penstock.log.maintenance.rewrite import Rewrite
from penstock.log.maintenance.survey import check_frame
from penstock.log.maintenance.verify import QUARANTINE, Damage, PartitionCheck, Quarantined, check_partition
from penstock.log.recovery import complete_index


@dataclass(frozen=True)
class Repaired:
    """What was done to a partition."""

    partition: int
    source: str
    lost: tuple[Damage, ...]
    """The damage that was removed, with the offsets that are gone now."""
    quarantine: Path
    """Where the damaged bytes are, if there were any."""
    indexes: int
    """How many indexes were rebuilt."""
    head_problem: str | None
    """What was wrong with the head; the end of the partition was found from its frames."""
    torn: int
    """How many bytes of a torn write were cut off after the last whole frame."""


def repair(log: LocalLog, partitions: Collection[int] | None = None) -> list[Repaired]:
    """Repair partitions, by default all. An undamaged one is left as it is.

    Raises ``LogError`` if a partition has a writer, or its closed segments are being worked on.
    """
    return [_repair(log, partition) for partition in (log.partitions() if partitions is None else partitions)]


def _repair(log: LocalLog, partition: int) -> Repaired:
    owner, directory, torn = log.owner(partition), log.partition_dir(partition), 0
    with _lock_out_writer(log, partition), lock_for_maintenance(directory) as ours:
        if not ours:
            raise busy_error(log.directory, partition)
        found = check_partition(log, partition)
        if not found.is_whole:
            _repair_damage(directory, found)
    if not found.is_whole:
        # Opening the partition for writing finds its end from the frames.
        with log.writer(owner.source, owner.worker) as writer:
            torn = writer.recovered.bytes_cut if writer.recovered is not None else 0
    indexes = len(found.wrong_indexes)
    return Repaired(partition, owner.source, found.damage, directory / QUARANTINE, indexes, found.head_problem, torn)


def require_no_writer(log: LocalLog, partitions: Collection[int]) -> None:
    """Raises ``LogError`` if one of the partitions has a writer now: better said before a long check than after it."""
    for partition in partitions:
        with _lock_out_writer(log, partition):
            pass


@contextmanager
def _lock_out_writer(log: LocalLog, partition: int) -> Iterator[None]:
    lock = try_lock(log.partition_dir(partition) / "lock")
    if lock is None:
        raise LogError(
            "PEN-LOG-001",
            f"partition {partition} of the log in {log.directory} has a writer ({log.owner(partition).source}).",
            "Stop the pipeline, then repair.",
        )
    try:
        yield
    finally:
        os.close(lock)


def _repair_damage(directory: Path, found: PartitionCheck) -> None:
    per_segment: dict[Path, list[Damage]] = defaultdict(list)
    for damage in found.damage:
        per_segment[damage.segment].append(damage)
    last = max(segment_bases(directory), default=-1)
    scratch = directory / SCRATCH
    scratch.mkdir()
    try:
        for path, damages in per_segment.items():
            _rewrite_segment(path, damages, scratch, is_last=int(path.stem) == last)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for index in found.wrong_indexes:
        index.unlink(missing_ok=True)
        segment = index.with_suffix(".seg")
        complete_index(segment, int(segment.stem))
    _advance_head(directory)


def _rewrite_segment(path: Path, damages: list[Damage], scratch: Path, is_last: bool) -> None:
    """Rewrite a segment without its damage; a missing one, as one whose offsets are all gone."""
    base = int(path.stem)
    segment = Segment(path, base) if path.exists() else None
    into = Rewrite(scratch, path, base, 1 if segment is None else segment.generation + 1)
    if segment is not None:
        _copy_whole_frames(segment, {damage.position: damage for damage in damages}, into)
    into.reach_up_to(max(damage.end for damage in damages))
    reach("log.repair.quarantined")
    if is_last:
        _begin_segment(path.parent, into.end.offset)
    reach("log.repair.before_publish")
    into.publish()


def _copy_whole_frames(segment: Segment, damages: Mapping[int, Damage], into: Rewrite) -> None:
    """Copy whole frames, and quarantine the damage, which is found by its position."""
    place = first_place(segment.base)
    while place.position < segment.size:
        damage = damages.get(place.position)
        if damage is None:
            try:
                header = check_frame(segment, place)
            except BadFrame as bad:
                # The end of a torn write, which never held a record.
                rest = segment.size - place.position
                damage = Damage(-1, segment.path, place.position, rest, place.offset, place.offset, str(bad))
            else:
                into.copy(header, segment.payload(place, header))
                place = after(place, header)
                continue
        _quarantine(segment, damage)
        into.reach_up_to(damage.end)
        place = place._replace(position=damage.position + damage.bytes, offset=max(place.offset, damage.end))


def _quarantine(segment: Segment, damage: Damage) -> None:
    directory = segment.path.parent / QUARANTINE
    make_directory(directory)
    name = f"{segment.path.stem}-{damage.position:012d}"
    replace_durably(directory / f"{name}.bytes", memoryview(segment.bytes(damage.position, damage.bytes)))
    now = datetime.now(UTC).isoformat()
    note = Quarantined(segment.path.name, damage.position, damage.bytes, damage.first, damage.end, damage.why, now)
    replace_durably(directory / f"{name}.json", json.dumps(asdict(note), indent=1).encode())


def _begin_segment(directory: Path, base: int) -> None:
    with segment_path(directory, base).open("xb"):
        sync_directory(directory)


def _advance_head(directory: Path) -> None:
    """Point the head at the last segment; at a new one, if the last was rewritten."""
    head = _head(directory)
    last = max(segment_bases(directory), default=-1)
    segment = None if last < 0 else Segment(segment_path(directory, last), last)
    if segment is None or segment.generation or (head is not None and last < head.segment):
        last = segment.end.offset if segment is not None else head.segment if head is not None else 0
        _begin_segment(directory, last)
    if head is not None and head.segment == last:
        return
    moved = HeadFile(directory)
    # Nothing of it is published yet: the next writer keeps the whole frames.
    moved.publish(Head(last, 0, last if head is None else max(last, head.next_offset), 0))
    moved.sync()
    moved.close()
    sync_directory(directory)
    reach("log.repair.head_moved")


def _head(directory: Path) -> Head | None:
    try:
        return read_head(directory)
    except LogError:
        return None
