"""A segment that is written anew: beside the log first, then put in its place in one step.

At whichever moment a crash comes, the segment's name leads to the old file or to the new one, whole. The index follows
after; until it is there, the old index is not believed, because it is of another generation.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from penstock.durable import sync_directory
from penstock.faults import reach
from penstock.log.format.frame import Body, FrameHeader, gone, pack_header, place
from penstock.log.format.index import IndexWriter, Place, first_place
from penstock.log.format.log_files import index_path
from penstock.log.format.partition_head import sync_head
from penstock.log.format.segment import after


class Rewrite:
    """The new content of the segment at ``path``, from its first frame to its last. Not for several threads."""

    def __init__(self, scratch: Path, path: Path, base: int, generation: int) -> None:
        """``generation`` is that of the file that it replaces, and one more. ``scratch`` is on the same disk."""
        self._path = path
        self._base = base
        self._generation = generation
        self._new = scratch / path.name
        self._file = self._new.open("wb", buffering=2**20)
        self._places: list[Place] = []
        self._stamp = 0
        self.end = first_place(base)

    def add(self, body: Body, first: int, last: int, stamp: int) -> None:
        """A frame with these entries, whose offsets go from ``first`` to ``last``, the last one with this stamp."""
        header, _ = place(body, first, last, stamp)
        self.copy(header, *body.pieces)

    def copy(self, header: FrameHeader, *payload: pa.Buffer) -> None:
        """A frame as it was in another file, whose checksum was found right."""
        self._write(header._replace(generation=self._generation), *payload)

    def reach_up_to(self, end: int, stamp: int = 0) -> None:
        """Say that the offsets from here up to ``end`` are gone, if there are any; the last of them had this stamp."""
        if self.end.offset < end:
            self._write(gone(self.end.offset, end - 1, self._generation, max(stamp, self._stamp)))

    def publish(self) -> None:
        """Put it in the place of the old file, durably; then its index beside it."""
        self._file.flush()
        reach("log.rewrite.written")
        os.fsync(self._file.fileno())
        self._file.close()
        sync_head(self._path.parent)
        reach("log.rewrite.synced")
        self._new.replace(self._path)
        reach("log.rewrite.renamed")
        sync_directory(self._path.parent)
        reach("log.rewrite.durable")
        self._publish_index()
        reach("log.rewrite.indexed")

    def discard(self) -> None:
        self._file.close()
        self._new.unlink(missing_ok=True)

    def _write(self, header: FrameHeader, *payload: pa.Buffer) -> None:
        self._file.write(pack_header(header))
        for piece in payload:
            self._file.write(piece)
        self._stamp = header.stamp
        self.end = after(self.end, header)
        if self.end.is_far_from(self._places[-1] if self._places else first_place(self._base)):
            self._places.append(self.end)

    def _publish_index(self) -> None:
        temporary = index_path(self._new)
        writer = IndexWriter(temporary, self._base, self._generation)
        for found in self._places:
            writer.add(found)
        if not self._places or self._places[-1] != self.end:
            writer.add(self.end)
        writer.close()
        temporary.replace(index_path(self._path))
