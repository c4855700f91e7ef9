"""Following files through renames, copies and truncation: nothing lost, nothing doubled.

A file is known by device and inode, confirmed by its bytes (``content.py``). So

- a renamed file is read on under its new name, inside the pattern or beside it, and to its end if it was removed;
- a file that was truncated starts anew, after the rest of what it held was taken from the copy, if there is one;
- a copy of what was read, under a name that rotation gives, or under the same name, is not read again
  (``rotation.py``).
"""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sources.file.compressed import PackedContent
from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import Content, edges, holds_all_that_was_read
from penstock.sources.file.discovery import Found, find, may_be_copy, may_be_empty, siblings
from penstock.sources.file.file_progress import Position
from penstock.sources.file.file_reader import Reading, readable
from penstock.sources.file.formats.file_format import cutter, is_packed, is_parquet
from penstock.sources.file.formats.parquet_rows import footer_sum, rows_from
from penstock.sources.file.open_files import Opened, OpenFile
from penstock.sources.file.rotation import Kinship
from penstock.sources.file.warn_once import Said

_log = logging.getLogger("penstock.file")


class Following:
    """Each ``round`` takes what is new in all files."""

    def __init__(self, config: FileConfig, reading: Reading) -> None:
        self._config = config
        self._reading = reading
        self._positions = reading.positions
        self._opened = Opened(config)
        self._said = Said()
        self._kinship = Kinship(config, reading, self._opened, self._said)
        self._seen: dict[str, tuple[int, int]] = {}
        self._settled: set[str] = set()

    def round(self, once: bool) -> None:
        path = self._config.path.absolute()
        found = find(path, self._config.pattern)
        if not found and once and not may_be_empty(path):
            raise PenstockError("PEN-FILE-001", f"there is no file {path}.", "Check 'path' of the source.")
        here = self._kinship.here = {file.id: file.path for file in found}
        self._look_for_moved(here)
        for id, file in self._opened.beside(here):
            self._read_moved(id, file, once)
        # What was begun goes first: the older generation of a rotated file before the new one.
        for found_file in sorted(found, key=lambda file: file.id not in self._positions):
            if self._is_as_it_was(found_file, here):
                continue
            if is_parquet(found_file.path, self._config):
                self._read_parquet(found_file)
            else:
                self._read_found(found_file, once)

    def close(self) -> None:
        self._opened.close()

    def _is_as_it_was(self, file: Found, here: dict[str, Path]) -> bool:
        """Whether a file is as we left it: then there is nothing in it to be read."""
        if self._seen.get(file.id) != (file.size, file.changed):
            return False
        known = self._positions.get(file.id)
        # A copy whose original is gone: it may have to be read in its stead.
        return known is None or not known.copy_of or known.copy_of in here or known.copy_of in self._opened

    def _read_found(self, file: Found, once: bool) -> None:
        position = self._positions.get(file.id)
        if position is not None and position.packed == file.size > 0 and position.file == str(file.path):
            return
        was_open = file.id in self._opened
        try:
            content = self._opened.content(file)
        except OSError as error:
            self._said.once(file, f"cannot be read now: {error.strerror}")
            return
        if content is None:
            return  # another file took its place just now
        self._said.forget(file.id)
        self._seen[file.id] = (file.size, file.changed)
        position = self._place_in(file, content, position)
        if position is not None and not self._is_of(file, content, position, was_open):
            self._kinship.take_leave(position, file)
            position = self._kinship.begin(file, content)
        if position is not None and (known := edges(content, position)) is not None:
            position = position._replace(file=str(file.path))
            self._positions.keep(position)
            packed = is_packed(file.path, self._config)
            self._reading.read(
                content, cutter(file.path, self._config, content), position, known, complete=once or packed
            )
        if isinstance(content, PackedContent):
            self._settle_packed(file, content)

    def _place_in(self, file: Found, content: Content, position: Position | None) -> Position | None:
        """Where to go on in a file that was found. None: nowhere, it is read elsewhere."""
        if position is not None and position.copy_of:
            same = position.file == str(file.path) or may_be_copy(file.path.name, Path(position.file).name)
            if same and edges(content, position) is not None:
                return self._kinship.go_on(file.path, content, position)
            self._kinship.take_leave(position, file)  # its inode was the copy's before
            position = None
        if position is None or not position.end:
            return self._kinship.begin(file, content)
        return position

    def _is_of(self, file: Found, content: Content, position: Position, was_open: bool) -> bool:
        """Whether the content is the one that a position is of."""
        known = edges(content, position) is not None
        if position.file == str(file.path):
            if not known:
                _log.warning("%s is not what was read of it before; it is read as a new file", readable(position.file))
            return known
        # If not, its inode was another file's before, or it was truncated before it was renamed.
        renamed = was_open or may_be_copy(file.path.name, Path(position.file).name)
        return known and (renamed or holds_all_that_was_read(content, position))

    def _read_parquet(self, file: Found) -> None:
        self._seen[file.id] = (file.size, file.changed)
        try:
            footer = footer_sum(file.path)
            position: Position | None = self._rows_position(file, footer)
            for rows in rows_from(file.path, position.line if position else 0):
                position = position and self._reading.take_rows(position, rows.data)
                if position is None:
                    return
        except PermissionError as error:
            del self._seen[file.id]  # it may become readable without any change to it
            self._said.once(file, f"cannot be read now: {error.strerror}")
        except (OSError, pa.ArrowInvalid) as error:
            _log.warning("%s cannot be read now: %s", readable(str(file.path)), error)
        else:
            self._said.forget(file.id)

    def _rows_position(self, file: Found, footer: int) -> Position:
        """How far a Parquet file was read; also if it was renamed, or put in place again."""
        known = self._positions.get(file.id)
        if known is not None and known.sum == footer:
            return known._replace(file=str(file.path))
        for position in self._positions.at(file.path):
            if position.sum == footer:
                return position._replace(id=file.id)
        return Position(str(file.path), file.id, sum=footer)

    def _settle_packed(self, file: Found, content: PackedContent) -> None:
        """A compressed file is not kept open: it is whole, or will be another one when it is."""
        position = self._positions.get(file.id)
        if content.broken is not None:
            _log.warning("%s cannot be unpacked to its end: %s", readable(str(file.path)), content.broken)
        elif position is not None and not position.copy_of:
            self._positions.keep(position._replace(packed=file.size))
        self._opened.forget(file.id)

    def _look_for_moved(self, here: dict[str, Path]) -> None:
        """Files that were begun and are no longer among those to read: one may lie beside its old place, with a rest.

        Those that were open when it happened are not looked for: they are still open.
        """
        lost = [p for p in self._positions if p.id not in here and p.id not in self._settled]
        folders: dict[Path, dict[str, Found]] = {}
        for position in lost:
            if position.id in self._opened:
                continue
            self._settled.add(position.id)
            path = Path(position.file)
            if path.parent not in folders:
                folders[path.parent] = {f.id: f for f in siblings(path)}
            file = folders[path.parent].get(position.id)
            if (
                file is None
                or is_packed(file.path, self._config)
                or file.size <= position.end
                or not may_be_copy(file.path.name, path.name)
            ):
                continue
            try:
                content = self._opened.content(file)
            except OSError as error:
                self._said.once(file, f"may hold a rest of {position.file} and cannot be read: {error.strerror}")
                continue
            if content is not None and edges(content, position) is None:
                self._opened.forget(file.id)
        self._settled = {id for id in self._settled if id in self._positions and id not in here}

    def _read_moved(self, id: str, file: OpenFile, once: bool) -> None:
        """On in a file that was renamed out of the pattern, or removed. When it is quiet, its last line is whole."""
        status = file.content.stat()
        still = status.st_size == file.last_size
        file.last_size = status.st_size
        quiet = once or still
        position: Position | None = self._positions.get(id) or Position(str(file.path), id)
        if position is not None and position.copy_of:
            position = None if still else self._kinship.go_on(file.path, file.content, position)
        known = position and edges(file.content, position)
        if position is not None and known is not None:
            self._positions.keep(position)
            self._reading.read(
                file.content, cutter(file.path, self._config, file.content), position, known, complete=quiet
            )
        if quiet and status.st_nlink == 0:
            self._opened.forget(id)
