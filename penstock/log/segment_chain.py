"""The segments of a partition in order, while a writer adds to them and retention and compaction work on them.

A segment reaches up to the first offset of the next one, and as a writer left it no further. Compaction may replace a
segment by a shorter file, or several neighbours by one file; neighbours that it has not removed yet then start below
the end of the previous one, and are skipped. So a walk meets every offset in one segment only. A file that is missing
for any other reason is an error, never a gap.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LogError
from penstock.log.format.head import Head, missing_head_error, read_head
from penstock.log.format.log_files import damage_error, segment_bases, segment_path, size_of
from penstock.log.format.segment import Segment

_OPEN_SEGMENTS = 8


@dataclass(frozen=True)
class View:
    """The partition at one moment: its segments' first offsets, and its head."""

    bases: list[int]
    head: Head

    def base_for(self, offset: int) -> int:
        """The segment that may hold ``offset``; the oldest one if retention has passed it."""
        return self.bases[max(0, bisect_right(self.bases, offset) - 1)]

    def after(self, base: int) -> int:
        """Where the segment after a closed one begins."""
        return self.bases[bisect_right(self.bases, base)]


class SegmentChain:
    """Safe to use from several threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[int, int | None], Segment] = OrderedDict()

    def view(self) -> View | None:
        """The partition as it is now; None if nothing was ever published in it."""
        head = read_head(self._directory)
        bases = segment_bases(self._directory)
        if head is None:
            if any(size_of(segment_path(self._directory, base)) for base in bases):
                raise missing_head_error(self._directory)
            return None
        while head.segment not in bases:
            # It may have been closed and removed since the head was read; then the head has moved on.
            earlier, head = head, read_head(self._directory)
            if head is None or head.segment == earlier.segment:
                raise damage_error(
                    segment_path(self._directory, earlier.segment), 0, earlier.segment, "the file is missing"
                )
            bases = segment_bases(self._directory)
        bases = bases[: bases.index(head.segment) + 1]
        self._forget_stale(set(bases))
        return View(bases, head)

    def segments(self, start: int = 0) -> Iterator[tuple[Segment, int]]:
        """The segments from the one that may hold ``start`` on, in order, and from which offset on each one counts.

        They are opened one by one: skips what was removed meanwhile, and reads what was replaced as it is now.
        """
        view = self.view()
        at, looked = start, (-1, -1)
        while view is not None:
            base = reached = view.base_for(at)
            segment = self.segment(view, base)
            if segment is not None:
                if not segment.is_closed:
                    yield segment, at
                    return
                reached = segment.end.offset
                if not segment.generation and reached > view.after(base):
                    raise damage_error(segment.path, 0, base, f"it has offset {reached - 1}, which a later segment has")
                yield segment, at
                if reached > at:
                    at = reached
                    continue
            if looked == (at, base):
                raise damage_error(segment_path(self._directory, reached), 0, at, "the file is missing")
            # Something was removed or replaced since the view was taken; a new one shows what.
            looked, view = (at, base), self.view()

    def segment(self, view: View, base: int) -> Segment | None:
        """A segment of the view, up to where the view goes; None if it was removed or replaced since."""
        end = view.head.position if base == view.head.segment else None
        key = (base, end)
        with self._lock:
            found = self._open.get(key)
            if found is not None:
                self._open.move_to_end(key)
                return found
        try:
            found = _open_segment(segment_path(self._directory, base), base, end)
        except FileNotFoundError:
            return None
        if found is None:
            return None
        with self._lock:
            for stale in [k for k in self._open if k[0] == base]:
                del self._open[stale]
            self._open[key] = found
            while len(self._open) > _OPEN_SEGMENTS:
                self._open.popitem(last=False)
        return found

    def _forget_stale(self, bases: set[int]) -> None:
        """Forget segments that were removed or replaced: an open map keeps their blocks on the disk."""
        with self._lock:
            known = list(self._open.items())
        stale = [key for key, segment in known if key[0] not in bases or not _is_still(segment)]
        with self._lock:
            for key in stale:
                self._open.pop(key, None)


def _open_segment(path: Path, base: int, end: int | None) -> Segment | None:
    """The segment up to ``end``; None if it was closed and rewritten, so that this end is meaningless."""
    try:
        found = Segment(path, base, end)
    except LogError:
        if end is not None and Segment(path, base).generation:
            return None
        raise
    return None if end is not None and found.generation else found


def _is_still(segment: Segment) -> bool:
    try:
        return segment.path.stat().st_ino == segment.inode
    except FileNotFoundError:
        return False
