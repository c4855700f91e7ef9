"""How far every file has been read, exactly: the log itself records it.

The last entry of each append says in a header how far its file was read, and an append happens completely or not at
all: so a record counts as read exactly if the log has it. A saved summary spares a restart from reading the whole log:
it holds the positions at some offset of the log, and the entries from there on give the rest.

Compaction and retention remove entries from closed segments only. So the summary is saved whenever a segment is about
to be closed: then it covers everything that they may remove.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.log.format.log_files import replace_durably
from penstock.log.local_log import LocalLog
from penstock.sources.file.discovery import generation_base, is_packed_name
from penstock.sources.file.formats.file_entries import RESUME

_log = logging.getLogger("penstock.file")


MOST_RETIRED = 1000
"""How many files to remember that are gone and whose inode another file has."""

_RETIRED = "#"


class Position(NamedTuple):
    """How far a file has been read: ``line`` lines, ``end`` bytes. ``inside``: that was in the middle of a line."""

    file: str
    """The path at the last read."""
    id: str = ""
    """Device and inode: a rename does not change them."""
    line: int = 0
    end: int = 0
    inside: bool = False
    head: int = 0
    tail: int = 0
    """Checksums of the first and the last bytes that were read."""
    sum: int = 0
    """Checksum of all that was read."""
    packed: int = 0
    """The size of a compressed file that was read to its end: while it stays, the file need not be unpacked again."""
    copy_of: str = ""
    """The id of a file that holds everything in this one: it is read there."""

    def to_header(self, also: Sequence[Position] = ()) -> str:
        """``also``: positions of other files that become valid with the same append."""
        document = self._asdict()
        if also:
            document["also"] = [position._asdict() for position in also]
        return json.dumps(document, separators=(",", ":"))


class Positions:
    """Positions by file id, and by name: what a new file may continue is found without a search."""

    def __init__(self, positions: Iterable[Position] = ()) -> None:
        self._by_id: dict[str, Position] = {}
        self._by_path: dict[str, dict[str, int]] = {}
        self._by_base: dict[str, dict[str, int]] = {}
        """Uncompressed files, by their path without rotation's suffix."""
        self._retired: dict[str, None] = {}
        self._clock = count()
        for position in positions:
            self.keep(position)

    def __contains__(self, id: str) -> bool:
        return id in self._by_id

    def __iter__(self) -> Iterator[Position]:
        return iter(self._by_id.values())

    def get(self, id: str) -> Position | None:
        return self._by_id.get(id)

    def keep(self, position: Position) -> None:
        self.drop(position.id)
        self._by_id[position.id] = position
        now = next(self._clock)
        for index, key in self._keys(position):
            index.setdefault(key, {})[position.id] = now
        if _RETIRED in position.id:
            self._retired[position.id] = None
            if len(self._retired) > MOST_RETIRED:
                self.drop(next(iter(self._retired)))

    def drop(self, id: str) -> None:
        position = self._by_id.pop(id, None)
        if position is None:
            return
        self._retired.pop(id, None)
        for index, key in self._keys(position):
            index[key].pop(id)
            if not index[key]:
                del index[key]

    def at(self, path: Path) -> list[Position]:
        """Positions of files that were read under this path, newest first."""
        return self._newest_first(self._by_path.get(str(path), {}))

    def related(self, path: Path) -> list[Position]:
        """Positions of files whose content rotation may have put at this path (``may_be_copy``), newest first.

        The cost depends on what it finds, not on how many files there are.
        """
        base = _base(str(path))
        found = {**self._by_path.get(str(path), {}), **self._by_path.get(base, {})}
        if is_packed_name(path.name):
            found.update(self._by_base.get(base, {}))
        return self._newest_first(found)

    def _newest_first(self, found: dict[str, int]) -> list[Position]:
        return [self._by_id[id] for id in sorted(found, key=found.__getitem__, reverse=True)]

    def _keys(self, position: Position) -> Iterator[tuple[dict[str, dict[str, int]], str]]:
        yield self._by_path, position.file
        if not is_packed_name(position.file):
            yield self._by_base, _base(position.file)


def retired_id(position: Position) -> str:
    """The id of a position whose file's inode another file has."""
    return f"{position.id.partition(_RETIRED)[0]}{_RETIRED}{position.sum}"


def parse_positions(text: str) -> list[Position]:
    """The positions that ``Position.to_header`` wrote, in the order in which they became valid."""
    document = json.loads(text)
    also = document.pop("also", [])
    return [*(Position(**other) for other in also), Position(**document)]


def load_positions(summary: Path, log: LocalLog, partition: int) -> Positions:
    """The positions as of the end of the partition.

    Raises ``PenstockError`` if the summary is damaged and the log alone no longer says it all.
    """
    end = log.bounds(partition).end
    try:
        offset, positions = _load(summary)
        damaged = False
    except FileNotFoundError:
        offset, positions, damaged = 0, Positions(), False
    except (ValueError, KeyError, TypeError):
        offset, positions, damaged = 0, Positions(), True
    if offset > end:  # the summary is of another log
        offset, positions = 0, Positions()
    records = 0
    for batch in log.read(partition, offset, end):
        records += batch.num_rows
        for text in _resume_headers(batch):
            for position in parse_positions(text):
                positions.keep(position)
    if damaged and records < end:
        raise PenstockError(
            "PEN-FILE-002",
            f"{summary} is damaged, and the log no longer has all the records that say how far files were read.",
            "Put it back from a backup. Or remove it: files that the log does not speak of any more are read again.",
        )
    if damaged:
        _log.warning("%s is damaged; how far files were read is taken from the log, which has all of it", summary)
    return positions


def save_positions(summary: Path, next_offset: int, positions: Positions) -> None:
    """Save a summary that is valid for the log below ``next_offset``."""
    files = [position.to_header() for position in positions]
    summary.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(summary, json.dumps({"log_offset": next_offset, "files": files}).encode())


def _load(summary: Path) -> tuple[int, Positions]:
    document = json.loads(summary.read_bytes())
    positions = (position for text in document["files"] for position in parse_positions(text))
    return int(document["log_offset"]), Positions(positions)


def _resume_headers(batch: pa.RecordBatch) -> list[str]:
    headers = batch.column("headers")
    found: list[str] = headers.items.filter(pc.equal(headers.keys, RESUME)).to_pylist()
    return found


def _base(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, generation_base(name))
