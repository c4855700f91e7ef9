"""Reads the content of a file into the log: block by block, each one append that says how far the file was read."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import google_crc32c
import numpy as np
import pyarrow as pa

from penstock.log.writer import PartitionWriter
from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import Content, Edges
from penstock.sources.file.file_progress import Position, Positions
from penstock.sources.file.formats.file_entries import Problem, entry_batch
from penstock.sources.file.formats.record_cutter import Cutter, Piece

MOST_ROW_BYTES = 16 * 2**20
MOST_NOTED = 1000
"""The most positions of other files that an append carries, so that its header stays small."""


class FileReader:
    """Knows how far all files have been read, and appends their content to the log."""

    def __init__(
        self, config: FileConfig, name: str, writer: PartitionWriter, positions: Positions, stopping: Event,
        save: Callable[[], None],
    ) -> None:  # fmt: skip
        self.positions = positions
        self._save = save
        self._noted: dict[str, Position] = {}
        self._config = config
        self._namespace = config.namespace or name
        self._writer = writer
        self._stopping = stopping

    def read(self, content: Content, cutter: Cutter, position: Position, edges: Edges, complete: bool) -> None:
        """Append what the content has beyond ``position``, up to its current end, or until we are told to stop.

        ``complete``: what follows the last line break is a record too.
        """
        size = content.limit()
        wanted = self._config.batch_bytes
        while (size is None or position.end < size) and not self._stopping.is_set():
            data = content.read(position.end, wanted)
            if not data:
                break
            block = np.frombuffer(data, np.uint8)
            at_end = len(data) < wanted or (size is not None and position.end + len(data) >= size)
            piece = cutter.cut(block, position, complete and at_end and content.is_complete())
            if piece.taken == 0:
                if at_end or wanted > self._config.line_bytes:
                    break
                wanted = self._config.line_bytes + self._config.batch_bytes
                continue
            taken = block[: piece.taken]
            edges.extend(taken)
            head, tail = edges.sums
            total = google_crc32c.extend(position.sum, taken)
            following = Position(
                position.file, position.id, piece.line, position.end + piece.taken, piece.inside, head, tail, total
            )
            if len(piece.data) and not self._append(self._entries(piece, following)):
                return
            self.positions.keep(following)
            position, wanted = following, self._config.batch_bytes

    def note(self, position: Position) -> None:
        """Keep a position that did not come from an append. The next append, of any file, makes it durable: until then
        the log is unchanged, and a restart finds the position again."""
        self.positions.keep(position)
        self._noted[position.id] = position
        if len(self._noted) >= MOST_NOTED:
            self._save()
            self._noted.clear()

    def append_rows(self, position: Position, data: pa.BinaryArray) -> Position | None:
        """Append the rows that follow ``position``, which counts rows. None: we were told to stop."""
        if len(data) > 1 and data.nbytes > MOST_ROW_BYTES:
            half = len(data) // 2
            middle = self.append_rows(position, data.slice(0, half))
            return middle and self.append_rows(middle, data.slice(half))
        numbers = np.arange(position.line + 1, position.line + 1 + len(data), dtype=np.int64)
        following = position._replace(line=position.line + len(data), end=position.end + len(data))
        batch = entry_batch(data, self._namespace, position.file, numbers, numbers, [], self._resume(following))
        if self._stopping.is_set() or not self._append(batch):
            return None
        self.positions.keep(following)
        return following

    def _resume(self, position: Position) -> str:
        return position.to_header([noted for noted in self._noted.values() if noted.id != position.id])

    def _entries(self, piece: Piece, after: Position) -> pa.RecordBatch:
        name = readable(after.file)
        problems = [Problem(row, f"{name}:{piece.numbers[row]}: {reason}") for row, reason in piece.problems]
        ends = after.end - piece.taken + piece.followings
        return entry_batch(piece.data, self._namespace, after.file, piece.numbers, ends, problems, self._resume(after))

    def _append(self, batch: pa.RecordBatch) -> bool:
        """Append to the log. Waits while the disk is full; False: we were told to stop, and nothing was appended."""
        appended = self._writer.write_when_there_is_room(self._writer.prepare(batch), self._stopping)
        if appended:
            self._noted.clear()
        return appended


def readable(name: str) -> str:
    """A file's name as printable text, also if it is not UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()
