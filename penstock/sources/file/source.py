"""Reads NDJSON files into the log: every line once, whatever happens in between.

A block of lines is one append that says how far the file was read (``positions.py``), so after a kill at any moment
reading goes on with the first line that is not in the log. A line that is no JSON object goes in as it is, marked
malformed with file and line. Files are identified by their path and expected to grow only; one that is shorter than
what was read of it is taken for a new file.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa

from penstock.errors import LogFull, PenstockError
from penstock.json.tokens import Bytes
from penstock.log.config import LogConfig
from penstock.log.local import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.sources.contract import Source
from penstock.sources.file.config import FileConfig
from penstock.sources.file.entries import Problem, entry_batch, gathered, most_entries
from penstock.sources.file.lines import MAX_LINES, PART, Lines, cut
from penstock.sources.file.positions import Position, Positions, recall, save
from penstock.sources.jsontext import NotJson, kind_of, parse

SUMMARY_SECONDS = 10.0
FULL_DISK_PAUSE_SECONDS = 1.0

_log = logging.getLogger("penstock.file")


class FileSource(Source[FileConfig]):
    """Reads to the end (``once``) or follows: new lines at the end of files, new files."""

    bounded = True

    def run(self, stopping: Event, once: bool = False) -> None:
        context = self.context
        log = LocalLog(context.log_dir, LogConfig.model_validate_json(context.log_options or "{}"))
        summary = context.state_dir / "positions.json"
        with log.writer(context.name) as writer:
            reading = _Reading(self.config, context.name, writer, recall(summary, log, writer.partition), stopping)
            saved_at = time.monotonic()
            while not stopping.is_set():
                for path in self._paths(once):
                    reading.read(path, complete=once)
                    if time.monotonic() - saved_at > SUMMARY_SECONDS:
                        save(summary, writer.next_offset, reading.positions)
                        saved_at = time.monotonic()
                if once or stopping.wait(self.config.poll):
                    break
            save(summary, writer.next_offset, reading.positions)

    def _paths(self, once: bool) -> list[Path]:
        path = self.config.path.absolute()
        if path.is_file():
            return [path]
        found = sorted(match for match in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if match.is_file())
        if not found and once:
            raise PenstockError("PEN-FILE-001", f"there is no file {path}.", "Check 'path' of the source.")
        return found


class _Reading:
    """Where all files have been read to, and the way from a file into the log."""

    def __init__(
        self, config: FileConfig, name: str, writer: PartitionWriter, positions: Positions, stopping: Event
    ) -> None:
        self.positions = positions
        self._config = config
        self._namespace = config.namespace or name
        self._writer = writer
        self._stopping = stopping

    def read(self, path: Path, complete: bool) -> None:
        """Take what the file has beyond its position, batch by batch, until its end or until we are to stop."""
        position = self.positions.get(str(path), Position(str(path)))
        try:
            file = path.open("rb")
        except OSError as error:
            _log.warning("%s cannot be read now: %s", path, error.strerror)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            if size < position.end:
                _log.warning("%s is shorter than what was read of it; it is read as a new file", path)
                position = Position(str(path))
            wanted = self._config.batch_bytes
            while position.end < size and not self._stopping.is_set():
                file.seek(position.end)
                block = np.frombuffer(file.read(wanted), np.uint8)
                at_end = position.end + len(block) >= size
                following = self._take(block, position, complete and at_end)
                if following != position:
                    position, wanted = following, self._config.batch_bytes
                elif at_end:
                    return
                else:
                    wanted = self._config.line_bytes + self._config.batch_bytes  # no end of a line in it

    def _take(self, block: Bytes, start: Position, complete: bool) -> Position:
        """Put the lines of a block into the log; says where reading goes on."""
        lines = cut(
            block,
            start.end,
            start.line,
            start.inside,
            complete,
            self._config.line_bytes,
            min(MAX_LINES, most_entries(start.file)),
        )
        position = Position(start.file, lines.lines, start.end + lines.taken, lines.inside)
        if len(lines) and not self._append(self._entries(block, lines, position)):
            return start
        self.positions[position.file] = position
        return position

    def _entries(self, block: Bytes, lines: Lines, after: Position) -> pa.RecordBatch:
        base = after.end - lines.taken
        data = gathered(block, lines.starts, lines.ends)
        problems: list[Problem] = []
        for row in np.flatnonzero(lines.kinds):  # the bad lines only; the slower parser has the last word, and words
            reason = self._too_long if lines.kinds[row] == PART else _problem(data[row].as_py())
            if reason is not None:
                problems.append(Problem(int(row), f"{_readable(after.file)}:{lines.numbers[row]}: {reason}"))
        return entry_batch(
            data, self._namespace, after.file, lines.numbers, base + lines.followings, problems, after.to_header()
        )

    @property
    def _too_long(self) -> str:
        return f"part of a line longer than {self._config.line_bytes} bytes"

    def _append(self, batch: pa.RecordBatch) -> bool:
        """Into the log. A full disk is waited for; False: we were told to stop meanwhile, nothing was taken."""
        while True:
            try:
                self._writer.append(batch)
            except LogFull as error:
                _log.error("waiting: %s", error)
                if self._stopping.wait(FULL_DISK_PAUSE_SECONDS):
                    return False
            else:
                return True


def _problem(data: bytes) -> str | None:
    try:
        value = parse(data)
    except NotJson as error:
        return str(error)
    return None if isinstance(value, dict) else f"{kind_of(value)} where an object was expected"


def _readable(name: str) -> str:
    """A file's name for people, also one that is not UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()
