"""Following files through renames, copies and truncation: nothing lost, nothing doubled.

A file is known by device and inode, confirmed by its bytes (``content.py``). So

- a renamed file is read on under its new name, inside the pattern or beside it, and to its end if it was removed;
- a file that was truncated starts anew, after the rest of what it held was taken from the copy, if there is one;
- a copy of what was read, under a name that rotation gives, or under the same name, is not read again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import (
    Content,
    Edges,
    checksum,
    edges,
    holds_all_that_was_read,
    pass_over,
)
from penstock.sources.file.finding import Found, find, found_as, look, may_be_copy, may_be_empty, siblings
from penstock.sources.file.formats import cutter, is_packed, is_parquet, open_content
from penstock.sources.file.packed import PackedContent
from penstock.sources.file.parquet import footer_sum, rows_from
from penstock.sources.file.positions import Position
from penstock.sources.file.reading import Reading, readable

MOST_OPEN = 64
"""How many files stay open: those that changed last, which are the ones that get renamed or removed while read."""

_log = logging.getLogger("penstock.file")


@dataclass
class _Open:
    path: Path
    content: Content
    last_size: int = -1
    """Its size a round ago, once it was no longer found where it was."""


class Following:
    """Each ``round`` takes what is new in all files."""

    def __init__(self, config: FileConfig, reading: Reading) -> None:
        self._config = config
        self._reading = reading
        self._positions = reading.positions
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._seen: dict[str, tuple[int, int]] = {}
        self._settled: set[str] = set()

    def round(self, once: bool) -> None:
        path = self._config.path.absolute()
        found = find(path, self._config.pattern)
        if not found and once and not may_be_empty(path):
            raise PenstockError("PEN-FILE-001", f"there is no file {path}.", "Check 'path' of the source.")
        here = {file.id for file in found}
        self._look_for_moved(here)
        for id in [id for id in self._open if id not in here]:
            self._read_moved(id, once)
        # What was begun goes first: the older generation of a rotated file before the new one.
        for file in sorted(found, key=lambda file: file.id not in self._positions):
            if self._seen.get(file.id) == (file.size, file.changed):
                continue
            if is_parquet(file.path, self._config):
                self._read_parquet(file)
            else:
                self._read_found(file, once)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].content.close()

    def _read_found(self, file: Found, once: bool) -> None:
        position = self._positions.get(file.id)
        if position is not None and position.packed == file.size > 0 and position.file == str(file.path):
            return
        was_open = file.id in self._open
        try:
            content = self._content(file)
        except OSError as error:
            _log.warning("%s cannot be read now: %s", file.path, error.strerror)
            return
        if content is None:
            return  # another file took its place just now
        if position is None:
            position = self._begin(file, content)
        elif position.copy_of:
            position = self._go_on_after_copy(file, content, position)
        if position is None:
            return
        known = edges(content, position)
        if position.file != str(file.path):
            renamed = was_open or may_be_copy(file.path.name, Path(position.file).name)
            if known and (renamed or holds_all_that_was_read(content, position)):
                position = position._replace(file=str(file.path))
            else:  # its inode was another file's before, or it was truncated before it was renamed
                self._take_rest_from_copy(position)
                position, known = _beginning(file), Edges()
        elif known is None:
            _log.warning("%s is not what was read of it before; it is read as a new file", readable(position.file))
            self._take_rest_from_copy(position)
            position, known = _beginning(file), Edges()
        if known is not None:
            self._reading.read(
                content,
                cutter(file.path, self._config, content),
                position,
                known,
                complete=once or is_packed(file.path, self._config),
            )
        self._seen[file.id] = (file.size, file.changed)
        if isinstance(content, PackedContent):
            self._settle_packed(file, content)

    def _read_parquet(self, file: Found) -> None:
        self._seen[file.id] = (file.size, file.changed)
        try:
            footer = footer_sum(file.path)
            position: Position | None = self._rows_position(file, footer)
            for rows in rows_from(file.path, position.line if position else 0):
                position = position and self._reading.take_rows(position, rows.data)
                if position is None:
                    return
        except (OSError, pa.ArrowInvalid) as error:
            _log.warning("%s cannot be read now: %s", readable(str(file.path)), error)

    def _rows_position(self, file: Found, footer: int) -> Position:
        """How far a Parquet file was read; also if it was renamed, or put in place again."""
        known = self._positions.get(file.id)
        if known is not None and known.sum == footer:
            return known._replace(file=str(file.path))
        for position in reversed(list(self._positions.values())):
            if position.file == str(file.path) and position.sum == footer:
                return position._replace(id=file.id)
        return Position(str(file.path), file.id, sum=footer)

    def _settle_packed(self, file: Found, content: PackedContent) -> None:
        """A compressed file is not kept open: it is whole, or will be another one when it is."""
        position = self._positions.get(file.id)
        if content.broken is not None:
            _log.warning("%s cannot be unpacked to its end: %s", readable(str(file.path)), content.broken)
        elif position is not None:
            self._positions[file.id] = position._replace(packed=file.size)
        self._forget(file.id)

    def _begin(self, file: Found, content: Content) -> Position | None:
        """Where to begin with a file that is not known. None: it is a copy of one that we read."""
        for original in reversed(list(self._positions.values())):
            if not original.end or original.id == file.id or not _may_be_copy(file.path, original):
                continue
            if self._is_copy_of(file, content, original):
                self._keep_as_copy(file, content, original)
                return None
            if holds_all_that_was_read(content, original):
                return original._replace(file=str(file.path), id=file.id)
        return _beginning(file)

    def _go_on_after_copy(self, file: Found, content: Content, position: Position) -> Position | None:
        """Where to go on in a file that was a copy when we looked last. None: it still is."""
        original = self._positions.get(position.copy_of)
        if original is not None and original.copy_of != file.id:
            if self._is_copy_of(file, content, original):
                self._keep_as_copy(file, content, original)
                return None
            if original.end > position.end and holds_all_that_was_read(content, original):
                return original._replace(file=str(file.path), id=file.id)
        return position._replace(copy_of="")

    def _is_copy_of(self, file: Found, content: Content, original: Position) -> bool:
        """Whether everything in a file is in the original too, at the same place, and will be read there."""
        if (intact := self._intact(original)) is None:
            return False
        try:
            size = content.length()
            return size <= intact.length() and checksum(content, size) == checksum(intact, size)
        finally:
            intact.close()

    def _keep_as_copy(self, file: Found, content: Content, original: Position) -> None:
        """Remember that the lines of a copy are accounted for, also for when the original is gone."""
        passed = pass_over(content, content.length())
        head, tail = passed.edges.sums
        self._positions[file.id] = Position(
            str(file.path), file.id, passed.lines, passed.bytes, False, head, tail, passed.sum, copy_of=original.id
        )
        self._seen[file.id] = (file.size, file.changed)
        self._reading.save()

    def _intact(self, position: Position) -> Content | None:
        """The file that a position is of, if it is where it was and still holds what was read."""
        file = look(Path(position.file))
        if file is None or file.id != position.id:
            return None
        content = open_content(file.path, self._config)
        if edges(content, position) is not None:
            return content
        content.close()
        return None

    def _take_rest_from_copy(self, position: Position) -> None:
        """Of a file that was truncated: what came into it after we read last, if a copy has it."""
        for file in siblings(Path(position.file)):
            earlier = self._positions.get(file.id)
            if file.id == position.id or not _may_be_copy(file.path, position):
                continue
            if earlier is not None and earlier.copy_of != position.id:
                continue
            content = open_content(file.path, self._config)
            try:
                if not holds_all_that_was_read(content, position):
                    continue
                known = edges(content, position)
                if known is not None:
                    copied = position._replace(file=str(file.path), id=file.id)
                    self._positions[file.id] = copied
                    self._reading.read(content, cutter(file.path, self._config, content), copied, known, complete=True)
                    self._reading.save()
                    return
            finally:
                content.close()

    def _look_for_moved(self, here: set[str]) -> None:
        """Files that were begun and are no longer among those to read: one may lie beside its old place, with a rest.

        Those that were open when it happened are not looked for: they are still open.
        """
        lost = [p for p in self._positions.values() if p.id not in here and p.id not in self._settled]
        folders: dict[Path, dict[str, Found]] = {}
        for position in lost:
            if position.id in self._open:
                continue
            self._settled.add(position.id)
            folder = Path(position.file).parent
            if folder not in folders:
                folders[folder] = {f.id: f for f in siblings(Path(position.file))} if folder.is_dir() else {}
            file = folders[folder].get(position.id)
            if (
                file is None
                or is_packed(file.path, self._config)
                or file.size <= position.end
                or not _may_be_copy(file.path, position)
            ):
                continue
            try:
                content = self._content(file)
            except OSError:
                continue
            if content is not None and edges(content, position) is None:
                self._forget(file.id)
        self._settled.intersection_update(self._positions)
        self._settled.difference_update(here)

    def _read_moved(self, id: str, once: bool) -> None:
        """On in a file that was renamed out of the pattern, or removed. When it is quiet, its last line is whole."""
        file = self._open[id]
        status = file.content.stat()
        quiet = once or status.st_size == file.last_size
        file.last_size = status.st_size
        position = self._positions.get(id) or Position(str(file.path), id)
        known = edges(file.content, position)
        if known is not None:
            self._reading.read(
                file.content, cutter(file.path, self._config, file.content), position, known, complete=quiet
            )
        if quiet and status.st_nlink == 0:
            self._forget(id)

    def _content(self, file: Found) -> Content | None:
        """The open file. None if its path leads to another one by now."""
        if file.id in self._open:
            self._open.move_to_end(file.id)
            self._open[file.id].path = file.path
            return self._open[file.id].content
        content = open_content(file.path, self._config)
        if found_as(file.path, content.stat()).id != file.id:
            content.close()
            return None
        self._open[file.id] = _Open(file.path, content)
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)[1].content.close()
        return content

    def _forget(self, id: str) -> None:
        self._open.pop(id).content.close()


def _beginning(file: Found) -> Position:
    return Position(str(file.path), file.id)


def _may_be_copy(path: Path, of: Position) -> bool:
    original = Path(of.file)
    return path.parent == original.parent and may_be_copy(path.name, original.name)
