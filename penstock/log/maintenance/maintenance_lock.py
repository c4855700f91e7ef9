"""The lock by which only one process at a time changes closed segments of a partition: retention, compaction or repair.

Readers and the writer do not use the lock. Whoever takes it first removes what an interrupted compaction left behind;
nothing of that can be read any more, it only costs disk space.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from penstock.durable import sync_directory
from penstock.errors import LogError
from penstock.log.format.index import first_place
from penstock.log.format.log_files import INDEX_SUFFIX, index_path, segment_path, try_lock
from penstock.log.format.segment import Segment
from penstock.log.segment_chain import SegmentChain, View

SCRATCH = "compacting"
"""The folder inside the partition's in which segments are written before they are put in place."""


@contextlib.contextmanager
def lock_for_maintenance(partition_dir: Path) -> Iterator[bool]:
    """Lock the partition's closed segments; yields false if another process has them."""
    lock = try_lock(partition_dir / "housekeeping.lock")
    if lock is None:
        yield False
        return
    try:
        remove_leftovers(partition_dir)
        yield True
    finally:
        os.close(lock)


def busy_error(log_dir: Path, partition: int) -> LogError:
    return LogError(
        "PEN-LOG-013",
        f"partition {partition} of the log in {log_dir} is being worked on by another process.",
        "Wait until its retention, compaction or repair is done.",
    )


def remove_leftovers(partition_dir: Path) -> None:
    """Remove what an interrupted compaction left."""
    shutil.rmtree(partition_dir / SCRATCH, ignore_errors=True)
    try:
        view = SegmentChain(partition_dir).view()
    except LogError:
        # Only repair can tell what of such a partition is good.
        return
    if view is None:
        return
    stale = [path for base in shadowed_segments(partition_dir, view) for path in _files(partition_dir, base)]
    stale += [
        path
        for path in partition_dir.glob(f"*{INDEX_SUFFIX}")
        if int(path.stem) < view.head.segment and int(path.stem) not in view.bases
    ]
    for path in stale:
        path.unlink(missing_ok=True)
    if stale:
        sync_directory(partition_dir)


def shadowed_segments(partition_dir: Path, view: View) -> list[int]:
    """The closed segments whose records are all in an earlier one: compaction had no time to remove them."""
    found: list[int] = []
    reached = 0
    # A damaged segment does not say how far it reaches: nothing after it counts as shadowed.
    with contextlib.suppress(LogError, FileNotFoundError):
        for base, following in pairwise(view.bases):
            if base < reached:
                found.append(base)
                continue
            segment = Segment(segment_path(partition_dir, base), base)
            reached = segment.end.offset
            if reached > following and not segment.generation:
                # Only segments that compaction wrote shadow others; this one has a wrong name.
                return found
            if reached > following:
                # Trust frames before removing a file, never an index.
                reached = max((header.last_offset + 1 for _, header in segment.walk(first_place(base))), default=base)
    return found


def _files(partition_dir: Path, base: int) -> tuple[Path, Path]:
    path = segment_path(partition_dir, base)
    return path, index_path(path)
