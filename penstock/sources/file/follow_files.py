"""Follows files through renames, copies and truncation: nothing is lost or doubled.

A file is identified by device and inode, confirmed by its bytes (``content.py``). So

- a renamed file is read on under its new name, inside the pattern or beside it, and to its end if it was removed;
- a truncated file starts over, after the unread rest was read from its copy, if there is one;
- a copy of what was read, under a rotated name or the same name, is not read again (``rotation.py``).
"""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sources.file.compressed import PackedContent
from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import Content, edges, holds_all_that_was_read
from penstock.sources.file.discovery import FoundFile, find_files, may_be_copy, may_be_empty, siblings
from penstock.sources.file.file_progress import Position
from penstock.sources.file.file_reader import FileReader, readable
from penstock.sources.file.formats.file_format import cutter, is_packed, is_parquet
from penstock.sources.file.formats.parquet_rows import footer_sum, rows_from
from penstock.sources.file.open_files import OpenFile, OpenFiles
from penstock.sources.file.rotation import RotationTracker
from penstock.sources.file.warn_once import WarnOnce

_log = logging.getLogger("penstock.file")


class FileFollower:
    """``read_new`` reads what is new in all files."""

    def __init__(self, config: FileConfig, reader: FileReader) -> None:
        self._config = config
        self._reader = reader
        self._positions = reader.positions
        self._open_files = OpenFiles(config)
        self._warnings = WarnOnce()
        self._rotation = RotationTracker(config, reader, self._open_files, self._warnings)
        self._seen: dict[str, tuple[int, int]] = {}
        self._settled: set[str] = set()

    def read_new(self, once: bool) -> None:
        path = self._config.path.absolute()
        found = find_files(path, self._config.pattern)
        if not found and once and not may_be_empty(path):
            raise PenstockError("PEN-FILE-001", f"there is no file {path}.", "Check 'path' of the source.")
        here = self._rotation.here = {file.id: file.path for file in found}
        self._look_for_moved(here)
        for id, file in self._open_files.moved_files(here):
            self._read_moved(id, file, once)
        # Files already begun come first: the older generation of a rotated file before the new one.
        for found_file in sorted(found, key=lambda file: file.id not in self._positions):
            if self._is_unchanged(found_file, here):
                continue
            if is_parquet(found_file.path, self._config):
                self._read_parquet(found_file)
            else:
                self._read_found(found_file, once)

    def close(self) -> None:
        self._open_files.close()

    def _is_unchanged(self, file: FoundFile, here: dict[str, Path]) -> bool:
        """Whether a file has not changed since our last read: then there is nothing new in it."""
        if self._seen.get(file.id) != (file.size, file.changed):
            return False
        known = self._positions.get(file.id)
        # A copy whose original is gone may have to be read in its place.
        return known is None or not known.copy_of or known.copy_of in here or known.copy_of in self._open_files

    def _read_found(self, file: FoundFile, once: bool) -> None:
        position = self._positions.get(file.id)
        if position is not None and position.packed == file.size > 0 and position.file == str(file.path):
            return
        was_open = file.id in self._open_files
        try:
            content = self._open_files.open(file)
        except OSError as error:
            self._warnings.warn(file, f"cannot be read now: {error.strerror}")
            return
        if content is None:
            return  # another file has just taken its place
        self._warnings.forget(file.id)
        self._seen[file.id] = (file.size, file.changed)
        position = self._find_position(file, content, position)
        if position is not None and not self._matches_position(file, content, position, was_open):
            self._rotation.finish_previous(position, file)
            position = self._rotation.start_position(file, content)
        if position is not None and (known := edges(content, position)) is not None:
            position = position._replace(file=str(file.path))
            self._positions.keep(position)
            packed = is_packed(file.path, self._config)
            self._reader.read(
                content, cutter(file.path, self._config, content), position, known, complete=once or packed
            )
        if isinstance(content, PackedContent):
            self._close_packed(file, content)

    def _find_position(self, file: FoundFile, content: Content, position: Position | None) -> Position | None:
        """Where to resume a file that was found. None: its content is read elsewhere."""
        if position is not None and position.copy_of:
            same = position.file == str(file.path) or may_be_copy(file.path.name, Path(position.file).name)
            if same and edges(content, position) is not None:
                return self._rotation.resume_position(file.path, content, position)
            self._rotation.finish_previous(position, file)  # the copy had its inode before
            position = None
        if position is None or not position.end:
            return self._rotation.start_position(file, content)
        return position

    def _matches_position(self, file: FoundFile, content: Content, position: Position, was_open: bool) -> bool:
        """Whether a position belongs to this content."""
        known = edges(content, position) is not None
        if position.file == str(file.path):
            if not known:
                _log.warning("%s is not what was read of it before; it is read as a new file", readable(position.file))
            return known
        # Otherwise another file had its inode before, or it was truncated before it was renamed.
        renamed = was_open or may_be_copy(file.path.name, Path(position.file).name)
        return known and (renamed or holds_all_that_was_read(content, position))

    def _read_parquet(self, file: FoundFile) -> None:
        self._seen[file.id] = (file.size, file.changed)
        try:
            footer = footer_sum(file.path)
            position: Position | None = self._rows_position(file, footer)
            for rows in rows_from(file.path, position.line if position else 0):
                position = position and self._reader.append_rows(position, rows.data)
                if position is None:
                    return
        except PermissionError as error:
            del self._seen[file.id]  # it may become readable without any change to it
            self._warnings.warn(file, f"cannot be read now: {error.strerror}")
        except (OSError, pa.ArrowInvalid) as error:
            _log.warning("%s cannot be read now: %s", readable(str(file.path)), error)
        else:
            self._warnings.forget(file.id)

    def _rows_position(self, file: FoundFile, footer: int) -> Position:
        """How far a Parquet file was read; also if it was renamed or replaced by a copy."""
        known = self._positions.get(file.id)
        if known is not None and known.sum == footer:
            return known._replace(file=str(file.path))
        for position in self._positions.at(file.path):
            if position.sum == footer:
                return position._replace(id=file.id)
        return Position(str(file.path), file.id, sum=footer)

    def _close_packed(self, file: FoundFile, content: PackedContent) -> None:
        """Close a compressed file: it is complete, or will be replaced by a complete one."""
        position = self._positions.get(file.id)
        if content.broken is not None:
            _log.warning("%s cannot be unpacked to its end: %s", readable(str(file.path)), content.broken)
        elif position is not None and not position.copy_of:
            self._positions.keep(position._replace(packed=file.size))
        self._open_files.close_file(file.id)

    def _look_for_moved(self, here: dict[str, Path]) -> None:
        """Look for begun files that the pattern no longer finds: one may lie beside its old place, with an unread rest.

        Files that are still open need no search.
        """
        lost = [p for p in self._positions if p.id not in here and p.id not in self._settled]
        folders: dict[Path, dict[str, FoundFile]] = {}
        for position in lost:
            if position.id in self._open_files:
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
                content = self._open_files.open(file)
            except OSError as error:
                self._warnings.warn(file, f"may hold a rest of {position.file} and cannot be read: {error.strerror}")
                continue
            if content is not None and edges(content, position) is None:
                self._open_files.close_file(file.id)
        self._settled = {id for id in self._settled if id in self._positions and id not in here}

    def _read_moved(self, id: str, file: OpenFile, once: bool) -> None:
        """Read on in a file that was renamed out of the pattern or removed. Once it stops growing, its last line counts
        as complete."""
        status = file.content.stat()
        still = status.st_size == file.last_size
        file.last_size = status.st_size
        quiet = once or still
        position: Position | None = self._positions.get(id) or Position(str(file.path), id)
        if position is not None and position.copy_of:
            position = None if still else self._rotation.resume_position(file.path, file.content, position)
        known = position and edges(file.content, position)
        if position is not None and known is not None:
            self._positions.keep(position)
            self._reader.read(
                file.content, cutter(file.path, self._config, file.content), position, known, complete=quiet
            )
        if quiet and status.st_nlink == 0:
            self._open_files.close_file(id)
