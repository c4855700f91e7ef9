"""Going on without what is damaged: it is moved aside, and the log says from then on that those offsets are gone.

The damaged bytes go to ``quarantine/`` in the partition's folder, with a note of where they were, before anything is
changed. Then the segment is written anew without them and put in place by one rename. Offsets stay as they are; lost
ones are never given again. At any moment of a crash the damage is still there or it is repaired; repairing again
finishes the work.

The segment that was being written is closed by its repair, and the next one begun: only a segment that nobody appended
to since it was made has the first generation.
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
from penstock.log.format.index import first_place
from penstock.log.format.log_files import replace_durably, segment_bases, segment_path, try_lock
from penstock.log.format.partition_head import Head, HeadFile, read_head
from penstock.log.format.segment import Segment, after
from penstock.log.local import LocalLog
from penstock.log.maintenance.maintenance_lock import SCRATCH, busy, housekeeping
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
    """What was taken out, with the offsets that are gone now."""
    quarantine: Path
    """Where the damaged bytes are, if there were any."""
    indexes: int
    """How many indexes were written anew."""
    head_problem: str | None
    """What was wrong with the head; the end of the partition was found again."""
    torn: int
    """How many bytes of a torn write were cut off behind the last whole frame."""

    @property
    def nothing_to_do(self) -> bool:
        return not (self.lost or self.indexes or self.head_problem)


def repair(log: LocalLog, partitions: Collection[int] | None = None) -> list[Repaired]:
    """Repair partitions, by default all. One that is whole is left as it is.

    Raises ``LogError`` if a partition has a writer, or its closed segments are being worked on.
    """
    return [_repair(log, partition) for partition in (log.partitions() if partitions is None else partitions)]


def _repair(log: LocalLog, partition: int) -> Repaired:
    owner, directory, torn = log.owner(partition), log.partition_dir(partition), 0
    with _without_writer(log, partition), housekeeping(directory) as ours:
        if not ours:
            raise busy(log.directory, partition)
        found = check_partition(log, partition)
        if not found.is_whole:
            _mend(directory, found)
    if not found.is_whole:
        # Whoever opens the partition for writing finds its end again from the frames.
        with log.writer(owner.source, owner.worker) as writer:
            torn = writer.recovered.bytes_cut if writer.recovered is not None else 0
    indexes = len(found.wrong_indexes)
    return Repaired(partition, owner.source, found.damage, directory / QUARANTINE, indexes, found.head_problem, torn)


def require_no_writer(log: LocalLog, partitions: Collection[int]) -> None:
    """Raises ``LogError`` if one of the partitions has a writer now: better said before a long check than after it."""
    for partition in partitions:
        with _without_writer(log, partition):
            pass


@contextmanager
def _without_writer(log: LocalLog, partition: int) -> Iterator[None]:
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


def _mend(directory: Path, found: PartitionCheck) -> None:
    per_segment: dict[Path, list[Damage]] = defaultdict(list)
    for damage in found.damage:
        per_segment[damage.segment].append(damage)
    last = max(segment_bases(directory), default=-1)
    scratch = directory / SCRATCH
    scratch.mkdir()
    try:
        for path, damages in per_segment.items():
            _write_anew(path, damages, scratch, is_last=int(path.stem) == last)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for index in found.wrong_indexes:
        index.unlink(missing_ok=True)
        segment = index.with_suffix(".seg")
        complete_index(segment, int(segment.stem))
    _move_head_on(directory)


def _write_anew(path: Path, damages: list[Damage], scratch: Path, is_last: bool) -> None:
    """Write a segment without what is damaged in it; one that is missing, as one from which all is gone."""
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
    """Copy what is whole and quarantine what is damaged, each found by its position."""
    place = first_place(segment.base)
    while place.position < segment.size:
        damage = damages.get(place.position)
        if damage is None:
            try:
                header = check_frame(segment, place)
            except BadFrame as bad:
                # The end of a torn write, in which no record ever was.
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


def _move_head_on(directory: Path) -> None:
    """Point the head at the last segment, if it points elsewhere; at a new one, if that was written anew."""
    head = _head(directory)
    last = max(segment_bases(directory), default=-1)
    segment = None if last < 0 else Segment(segment_path(directory, last), last)
    if segment is None or segment.generation or (head is not None and last < head.segment):
        last = segment.end.offset if segment is not None else head.segment if head is not None else 0
        _begin_segment(directory, last)
    if head is not None and head.segment == last:
        return
    moved = HeadFile(directory)
    # Nothing of it is published yet: whoever opens the partition next keeps what is whole.
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
