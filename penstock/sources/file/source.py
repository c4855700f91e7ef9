"""Reads NDJSON files into the log: every line once, whatever happens in between.

A batch of lines is one append, and each entry carries its place (``positions.py``), so after a kill at any moment
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

from penstock.errors import LogFull, PenstockError
from penstock.log.config import LogConfig
from penstock.log.group import Entry, entry_batch
from penstock.log.local import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.record import Header, Mode, Op
from penstock.sources.contract import Source
from penstock.sources.file.config import FileConfig
from penstock.sources.file.lines import Line, Position, cut
from penstock.sources.file.positions import Positions, recall, save
from penstock.sources.jsontext import BOM, WHITESPACE, NotJson, kind_of, parse

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
                block = file.read(wanted)
                at_end = position.end + len(block) >= size
                following = self._take(block, position, complete and at_end)
                if following != position:
                    position, wanted = following, self._config.batch_bytes
                elif at_end:
                    return
                else:
                    wanted *= 4  # no end of a line in it; past `line_bytes` it is cut anyway

    def _take(self, block: bytes, start: Position, complete: bool) -> Position:
        """Put the lines of a block into the log; says where reading goes on."""
        entries: list[Entry] = []
        position = start
        now = time.time_ns() // 1000
        # A loop per line: each is checked by itself, and the fast parser's call is most of the cost.
        for line in cut(block, start, complete, self._config.line_bytes):
            entry = self._entry(line, now)
            position = line.position
            if entry is None:
                continue
            entries.append(entry)
        if entries and not self._append(entries):
            return start
        self.positions[position.file] = position
        return position

    def _entry(self, line: Line, now: int) -> Entry | None:
        """None for a blank line, which is nothing to keep."""
        place: tuple[str, str] = (str(Header.POSITION), line.position.to_header())
        data = line.data[:-1] if line.data.endswith(b"\r") and not line.part else line.data
        if line.position.line == 1 and data.startswith(BOM):
            data = data[len(BOM) :]
        problem = f"part of a line longer than {self._config.line_bytes} bytes" if line.part else None
        if problem is None:
            if not data.strip(WHITESPACE):
                return None
            problem = _problem(data)
        headers: tuple[tuple[str, str], ...] = (place,)
        if problem is not None:
            headers = (place, (str(Header.MALFORMED), f"{line.position.place}: {problem}"))
        return Entry(now, self._namespace, None, headers, data, str(Op.INSERT), str(Mode.COPY))

    def _append(self, entries: list[Entry]) -> bool:
        """Into the log. A full disk is waited for; False: we were told to stop meanwhile, nothing was taken."""
        batch = entry_batch(entries)
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
