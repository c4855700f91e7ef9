"""Closed segments of a partition are changed by one process at a time: by retention, compaction or repair.

Readers and the writer do not care and take no part in the lock. Whoever has it first clears away what an interrupted
compaction left behind; nothing of that can be read any more, so it costs disk and nothing else.
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
"""The folder in a partition's own in which segments are written before they are put in place."""


@contextlib.contextmanager
def housekeeping(partition_dir: Path) -> Iterator[bool]:
    """Have the partition's closed segments to oneself, if nobody else has: then it yields true."""
    lock = try_lock(partition_dir / "housekeeping.lock")
    if lock is None:
        yield False
        return
    try:
        sweep(partition_dir)
        yield True
    finally:
        os.close(lock)


def busy(log_dir: Path, partition: int) -> LogError:
    return LogError(
        "PEN-LOG-013",
        f"partition {partition} of the log in {log_dir} is being worked on by another process.",
        "Wait until its retention, compaction or repair is done.",
    )


def sweep(partition_dir: Path) -> None:
    """Remove what an interrupted compaction left."""
    shutil.rmtree(partition_dir / SCRATCH, ignore_errors=True)
    try:
        view = SegmentChain(partition_dir).view()
    except LogError:
        # It is for repair to say what of such a partition is good.
        return
    if view is None:
        return
    stale = [path for base in shadowed(partition_dir, view) for path in _files(partition_dir, base)]
    stale += [
        path
        for path in partition_dir.glob(f"*{INDEX_SUFFIX}")
        if int(path.stem) < view.head.segment and int(path.stem) not in view.bases
    ]
    for path in stale:
        path.unlink(missing_ok=True)
    if stale:
        sync_directory(partition_dir)


def shadowed(partition_dir: Path, view: View) -> list[int]:
    """The closed segments whose records are all in one before them: compaction had no time to remove them."""
    found: list[int] = []
    reached = 0
    # A damaged segment does not say how far it reaches: nothing behind it is called superfluous.
    with contextlib.suppress(LogError, FileNotFoundError):
        for base, following in pairwise(view.bases):
            if base < reached:
                found.append(base)
                continue
            segment = Segment(segment_path(partition_dir, base), base)
            reached = segment.end.offset
            if reached > following and not segment.generation:
                # Only what compaction wrote stands for others; this one has a wrong name.
                return found
            if reached > following:
                # Files are removed on the word of frames, never on that of an index.
                reached = max((header.last_offset + 1 for _, header in segment.walk(first_place(base))), default=base)
    return found


def _files(partition_dir: Path, base: int) -> tuple[Path, Path]:
    path = segment_path(partition_dir, base)
    return path, index_path(path)
