"""A segment that is rewritten: first beside the log, then put in place by one rename.

Whenever a crash comes, the segment's name leads to the complete old file or the complete new one. The index follows;
until then the old index is ignored, because it is of another generation.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from penstock.durable import sync_directory
from penstock.faults import reach
from penstock.log.format.frame import Body, FrameHeader, gone_header, pack_header, place
from penstock.log.format.head import sync_head
from penstock.log.format.index import IndexWriter, Place, first_place
from penstock.log.format.log_files import index_path
from penstock.log.format.segment import after


class Rewrite:
    """The new content of the segment at ``path``, from its first frame to its last. Not for several threads."""

    def __init__(self, scratch: Path, path: Path, base: int, generation: int) -> None:
        """``generation`` is one above that of the replaced file. ``scratch`` is on the same disk."""
        self._path = path
        self._base = base
        self._generation = generation
        self._new = scratch / path.name
        self._file = self._new.open("wb", buffering=2**20)
        self._places: list[Place] = []
        self._stamp = 0
        self.end = first_place(base)

    def add(self, body: Body, first: int, last: int, stamp: int) -> None:
        """Write a frame of these entries, with offsets from ``first`` to ``last``; the last entry has this stamp."""
        header, _ = place(body, first, last, stamp)
        self.copy(header, *body.pieces)

    def copy(self, header: FrameHeader, *payload: pa.Buffer) -> None:
        """Copy a frame from another file; its checksum was verified."""
        self._write(header._replace(generation=self._generation), *payload)

    def reach_up_to(self, end: int, stamp: int = 0) -> None:
        """Mark the offsets from here up to ``end`` as gone, if there are any; the last of them had this stamp."""
        if self.end.offset < end:
            self._write(gone_header(self.end.offset, end - 1, self._generation, max(stamp, self._stamp)))

    def publish(self) -> None:
        """Replace the old file, durably; then its index."""
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
