"""Whose copy or continuation a file is: what two files have in common is read in one of them.

Files are akin if their names are (``finding.may_be_copy``) and one holds what was read of the other. Of such two

- the one that has no more than the other is its copy, while the other can be read;
- the one that has more goes on where reading of the other stopped, and the other becomes its copy.
"""

from __future__ import annotations

from pathlib import Path

from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import (
    EDGE_BYTES,
    Content,
    begins_alike,
    checksum,
    edges,
    holds_all_that_was_read,
    pass_over,
)
from penstock.sources.file.discovery import Found, may_be_copy, siblings
from penstock.sources.file.file_progress import Position, retired_id
from penstock.sources.file.file_reader import Reading
from penstock.sources.file.formats.file_format import cutter, open_content
from penstock.sources.file.open_files import Opened
from penstock.sources.file.warn_once import Said


class Kinship:
    """Decides where to begin, or to go on, in a file that may have to do with others."""

    def __init__(self, config: FileConfig, reading: Reading, opened: Opened, said: Said) -> None:
        self.here: dict[str, Path] = {}
        """Where the files are that were found last, by id."""
        self._config = config
        self._reading = reading
        self._positions = reading.positions
        self._opened = opened
        self._said = said

    def begin(self, file: Found, content: Content) -> Position | None:
        """Where to begin with a file of which nothing was read. None: it is a copy of one that is read."""
        head = content.read(0, EDGE_BYTES)
        # Copies come last: how far their content was read, the file says that they are copies of.
        for original in sorted(self._positions.akin(file.path), key=lambda original: original.copy_of != ""):
            if original.id == file.id or not begins_alike(head, original) or self._made_room(original, file):
                continue
            # Of a file of which nothing was read, any other is a continuation: only if it has just gone that is likely.
            if not original.end and (original.id in self.here or original.id not in self._opened):
                continue
            source = self._source(original)
            try:
                if source is not None and self._may_come_from(file, original, source) and _holds(source, content):
                    self._reading.note(original)  # also if nothing was read of it: then the copy is all there is
                    self._keep_as_copy(str(file.path), file.id, content, original.id)
                    return None
                if holds_all_that_was_read(content, original) and (original.end or _holds_more(content, source)):
                    return self._taken_over(self._first(original), source, file.path, file.id, content)
            finally:
                self._close(source, original.id)
        return beginning(file)

    def _first(self, position: Position) -> Position:
        """Of a copy whose original went before anything of it was read, the original: nor was the copy read then."""
        original = self._positions.get(position.copy_of)
        if original is None or original.end or original.id in self.here or original.id in self._opened:
            return position
        return original

    def _made_room(self, original: Position, file: Found) -> bool:
        """Whether a file was renamed so that a new one could have its name: that one is no version of it."""
        now = self.here.get(original.id)
        return now is not None and now != file.path and may_be_copy(now.name, file.path.name)

    def _may_come_from(self, file: Found, original: Position, source: Content) -> bool:
        """Whether a file has a name for a copy of the original, as that is called now, or was until it was removed."""
        now = self.here.get(original.id)
        return source.stat().st_nlink == 0 if now is None else may_be_copy(file.path.name, now.name)

    def go_on(self, path: Path, content: Content, copy: Position) -> Position | None:
        """Where to go on in a file that was a copy when we looked last. None: it still is."""
        original = self._positions.get(copy.copy_of)
        if original is None or original.copy_of == copy.id:
            return copy._replace(copy_of="")
        source = self._source(original)
        try:
            if source is not None and _holds(source, content):
                self._keep_as_copy(str(path), copy.id, content, original.id)
                return None
            # If the original is gone with a rest that was not read, it is read here.
            gone = source is None or original.end == 0
            if (gone or original.end > copy.end) and holds_all_that_was_read(content, original):
                return self._taken_over(original, source, path, copy.id, content)
        finally:
            self._close(source, original.id)
        return copy._replace(copy_of="")

    def _taken_over(
        self, original: Position, source: Content | None, path: Path, id: str, content: Content
    ) -> Position:
        """The position of the original for a file that holds all that was read of it. From now on the original counts
        as a copy of that file, unless it has a rest of its own: it, or a file that gets its inode, is not read on."""
        position = original._replace(file=str(path), id=id, packed=0, copy_of="")
        self._reading.note(position)  # before the other: reading of the two must not go on behind both
        if source is None:
            self._reading.note(original._replace(copy_of=id))
        elif _holds_more(content, source):
            self._keep_as_copy(original.file, original.id, source, id)
        return position

    def take_leave(self, position: Position, file: Found) -> None:
        """Of what a file was before: it was truncated, or its inode was another file's.

        What came into it after we read last is taken from a copy, if there is one; if it was a copy itself, its
        original is read. How far another file was read is remembered.
        """
        taken = "" if position.copy_of else self._take_rest_from_copy(position)
        if position.file != str(file.path):
            self._retire(position, taken)

    def _take_rest_from_copy(self, position: Position) -> str:
        """The id of the copy; empty if there is none."""
        copies = [
            file
            for file in siblings(Path(position.file))
            if file.id != position.id and _may_be_copy(file.path, position)
        ]
        taken = next((file.id for file in copies if self._took_rest(file, position)), "")
        for file in copies:
            known = self._positions.get(file.id)
            if known is not None and known.copy_of == position.id:
                self._reading.note(known._replace(copy_of=taken))
        return taken

    def _retire(self, position: Position, copy: str) -> None:
        """Keep what is known of a file that is gone and whose inode another one has: its content may turn up again."""
        self._positions.drop(position.id)
        if position.end:
            self._reading.note(position._replace(id=retired_id(position), copy_of=copy or position.copy_of))

    def _took_rest(self, file: Found, position: Position) -> bool:
        try:
            content = open_content(file.path, self._config)
        except OSError as error:
            self._said.once(file, f"may hold a rest of {position.file}, which was truncated: {error.strerror}")
            return False
        try:
            known = edges(content, position)
            if known is None or not holds_all_that_was_read(content, position):
                return False
            earlier = self._positions.get(file.id)
            if earlier is not None and earlier.end and earlier.copy_of != position.id:
                if edges(content, earlier) is not None:
                    return False  # it was read, by itself
                self._retire(earlier, "")
            copied = position._replace(file=str(file.path), id=file.id, packed=0)
            self._reading.note(copied)
            self._reading.read(content, cutter(file.path, self._config, content), copied, known, complete=True)
            return True
        finally:
            content.close()

    def _keep_as_copy(self, path: str, id: str, content: Content, original: str) -> None:
        """Remember that the lines of a copy are accounted for, also for when the original is gone."""
        passed = pass_over(content, content.length())
        head, tail = passed.edges.sums
        self._reading.note(
            Position(path, id, passed.lines, passed.bytes, False, head, tail, passed.sum, copy_of=original)
        )

    def _source(self, position: Position) -> Content | None:
        """The file that a position is of, if it is still read and still holds what was read of it."""
        opened = self._opened.get(position.id)
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
        if content is not None and id not in self._opened:
            content.close()


def beginning(file: Found) -> Position:
    return Position(str(file.path), file.id)


def _holds(content: Content, other: Content) -> bool:
    """Whether a content begins with all that is in another."""
    size = other.length()
    return size <= content.length() and checksum(content, size) == checksum(other, size)


def _holds_more(content: Content, other: Content | None) -> bool:
    return other is not None and other.length() > 0 and _holds(content, other)


def _may_be_copy(path: Path, of: Position) -> bool:
    original = Path(of.file)
    return path.parent == original.parent and may_be_copy(path.name, original.name)
