"""Rotation: finds the file that another one is a copy or a continuation of, so that shared content is read once.

Two files are related if their names are (``discovery.may_be_copy``) and one holds what was read of the other. Then

- a file that has no more than the other is its copy, while the other can be read;
- a file that has more is read on from where the other stopped, and the other becomes its copy.
"""

from __future__ import annotations

from pathlib import Path

from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import (
    EDGE_BYTES,
    Content,
    checksum,
    edges,
    holds_all_that_was_read,
    may_share_content,
    pass_over,
)
from penstock.sources.file.discovery import FoundFile, may_be_copy, siblings
from penstock.sources.file.file_progress import Position, retired_id
from penstock.sources.file.file_reader import FileReader
from penstock.sources.file.formats.file_format import cutter, open_content
from penstock.sources.file.open_files import OpenFiles
from penstock.sources.file.warn_once import WarnOnce


class RotationTracker:
    """Decides where to start or resume reading a file that may be related to others."""

    def __init__(self, config: FileConfig, reader: FileReader, open_files: OpenFiles, warnings: WarnOnce) -> None:
        self.here: dict[str, Path] = {}
        """The paths of the files that were found last, by id."""
        self._config = config
        self._reader = reader
        self._positions = reader.positions
        self._open_files = open_files
        self._warnings = warnings

    def start_position(self, file: FoundFile, content: Content) -> Position | None:
        """Where to start a file that was not read yet. None: it is a copy of one that is read."""
        head = content.read(0, EDGE_BYTES)
        # Copies come last: their original knows how far their content was read.
        for original in sorted(self._positions.related(file.path), key=lambda original: original.copy_of != ""):
            if (
                original.id == file.id
                or not may_share_content(head, original)
                or self._was_rotated_away(original, file)
            ):
                continue
            # Any file would continue one of which nothing was read: that is likely only if it has just gone.
            if not original.end and (original.id in self.here or original.id not in self._open_files):
                continue
            source = self._open_source(original)
            try:
                if source is not None and self._may_come_from(file, original, source) and _holds(source, content):
                    self._reader.note(original)  # also if nothing was read of it: the copy may be all that is left
                    self._mark_as_copy(str(file.path), file.id, content, original.id)
                    return None
                if holds_all_that_was_read(content, original) and (original.end or _holds_more(content, source)):
                    return self._take_over(self._unread_original(original), source, file.path, file.id, content)
            finally:
                self._close(source, original.id)
        return beginning(file)

    def _unread_original(self, position: Position) -> Position:
        """The original of a copy if it went before anything was read of it: then the copy was not read either."""
        original = self._positions.get(position.copy_of)
        if original is None or original.end or original.id in self.here or original.id in self._open_files:
            return position
        return original

    def _was_rotated_away(self, original: Position, file: FoundFile) -> bool:
        """Whether a file was renamed to free its name for a new one: the new one is no version of it."""
        now = self.here.get(original.id)
        return now is not None and now != file.path and may_be_copy(now.name, file.path.name)

    def _may_come_from(self, file: FoundFile, original: Position, source: Content) -> bool:
        """Whether the file's name fits a copy of the original, by its name now or before it was removed."""
        now = self.here.get(original.id)
        return source.stat().st_nlink == 0 if now is None else may_be_copy(file.path.name, now.name)

    def resume_position(self, path: Path, content: Content, copy: Position) -> Position | None:
        """Where to resume a file that was a copy at the last look. None: it still is one."""
        original = self._positions.get(copy.copy_of)
        if original is None or original.copy_of == copy.id:
            return copy._replace(copy_of="")
        source = self._open_source(original)
        try:
            if source is not None and _holds(source, content):
                self._mark_as_copy(str(path), copy.id, content, original.id)
                return None
            # If the original is gone with an unread rest, the rest is read here.
            gone = source is None or original.end == 0
            if (gone or original.end > copy.end) and holds_all_that_was_read(content, original):
                return self._take_over(original, source, path, copy.id, content)
        finally:
            self._close(source, original.id)
        return copy._replace(copy_of="")

    def _take_over(self, original: Position, source: Content | None, path: Path, id: str, content: Content) -> Position:
        """Move the original's position to a file that holds all that was read of it. The original now counts as a copy
        of that file, unless it has a rest of its own: neither it nor a file that gets its inode is read on."""
        position = original._replace(file=str(path), id=id, packed=0, copy_of="")
        self._reader.note(position)  # before the other: else reading could resume after both
        if source is None:
            self._reader.note(original._replace(copy_of=id))
        elif _holds_more(content, source):
            self._mark_as_copy(original.file, original.id, source, id)
        return position

    def finish_previous(self, position: Position, file: FoundFile) -> None:
        """Finish what a file held before: it was truncated, or its inode was another file's.

        Reads what was written to it after our last read from a copy, if there is one; if it was a copy itself, its
        original is read. Remembers how far another file was read.
        """
        taken = "" if position.copy_of else self._read_rest_from_copy(position)
        if position.file != str(file.path):
            self._retire(position, taken)

    def _read_rest_from_copy(self, position: Position) -> str:
        """Read the unread rest from a copy; returns the copy's id, empty if there is none."""
        copies = [
            file
            for file in siblings(Path(position.file))
            if file.id != position.id and _may_be_copy(file.path, position)
        ]
        taken = next((file.id for file in copies if self._read_rest(file, position)), "")
        for file in copies:
            known = self._positions.get(file.id)
            if known is not None and known.copy_of == position.id:
                self._reader.note(known._replace(copy_of=taken))
        return taken

    def _retire(self, position: Position, copy: str) -> None:
        """Keep the position of a file that is gone and whose inode another one has: its content may turn up again."""
        self._positions.drop(position.id)
        if position.end:
            self._reader.note(position._replace(id=retired_id(position), copy_of=copy or position.copy_of))

    def _read_rest(self, file: FoundFile, position: Position) -> bool:
        try:
            content = open_content(file.path, self._config)
        except OSError as error:
            self._warnings.warn(file, f"may hold a rest of {position.file}, which was truncated: {error.strerror}")
            return False
        try:
            known = edges(content, position)
            if known is None or not holds_all_that_was_read(content, position):
                return False
            earlier = self._positions.get(file.id)
            if earlier is not None and earlier.end and earlier.copy_of != position.id:
                if edges(content, earlier) is not None:
                    return False  # it was read on its own
                self._retire(earlier, "")
            copied = position._replace(file=str(file.path), id=file.id, packed=0)
            self._reader.note(copied)
            self._reader.read(content, cutter(file.path, self._config, content), copied, known, complete=True)
            return True
        finally:
            content.close()

    def _mark_as_copy(self, path: str, id: str, content: Content, original: str) -> None:
        """Note that all lines of a copy are accounted for, also for when the original is gone."""
        passed = pass_over(content, content.length())
        head, tail = passed.edges.sums
        self._reader.note(
            Position(path, id, passed.lines, passed.bytes, False, head, tail, passed.sum, copy_of=original)
        )

    def _open_source(self, position: Position) -> Content | None:
        """Open the file of a position, if it is still there and still holds what was read of it."""
        opened = self._open_files.get(position.id)
        path = self.here.get(position.id)
        if opened is not None:
            content = opened.content
        elif path is not None:
            try:
                content = open_content(path, self._config)
            except OSError:
                return None
        else:
            return None
        if edges(content, position) is not None:
            return content
        self._close(content, position.id)
        return None

    def _close(self, content: Content | None, id: str) -> None:
        if content is not None and id not in self._open_files:
            content.close()


def beginning(file: FoundFile) -> Position:
    return Position(str(file.path), file.id)


def _holds(content: Content, other: Content) -> bool:
    """Whether a content begins with all of another."""
    size = other.length()
    return size <= content.length() and checksum(content, size) == checksum(other, size)


def _holds_more(content: Content, other: Content | None) -> bool:
    return other is not None and other.length() > 0 and _holds(content, other)


def _may_be_copy(path: Path, of: Position) -> bool:
    original = Path(of.file)
    return path.parent == original.parent and may_be_copy(path.name, original.name)
