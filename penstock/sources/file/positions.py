"""How far every file has been read, kept exactly: the log itself is the record of it.

The last entry of each append says in a header how far its file was read, and an append is whole or not at all, so what
is in the log has been read and nothing else has. A saved summary spares a restart the reading of the whole log: it says
how far the files had been read at some offset of the log, and the entries from there on say the rest.

Compaction and retention take entries out of closed segments only. So the summary is saved whenever a segment is about
to be closed: then it covers all that they may take.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.files import replace_durably
from penstock.log.local import LocalLog
from penstock.sources.file.entries import RESUME


class Position(NamedTuple):
    """How far a file has been read: ``line`` lines, ``end`` bytes. ``inside``: that was in the middle of a line."""

    file: str
    """Its path when it was read last."""
    id: str = ""
    """Device and inode: the file keeps them when it is renamed."""
    line: int = 0
    end: int = 0
    inside: bool = False
    head: int = 0
    tail: int = 0
    """Checksums of the first and of the last few bytes that were read."""
    sum: int = 0
    """Checksum of all that was read."""
    packed: int = 0
    """Size of a compressed file that was read to its end: while it has it, it need not be unpacked to be known."""
    copy_of: str = ""
    """The id of a file that holds all this one does: it is read there."""

    def to_header(self) -> str:
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_header(cls, text: str) -> Position:
        return cls(**json.loads(text))


Positions = dict[str, Position]
"""By the id of the file. The one that was read last comes last."""


def recall(summary: Path, log: LocalLog, partition: int) -> Positions:
    """The positions as of the end of the partition."""
    end = log.bounds(partition).end
    offset, positions = _load(summary)
    if offset > end:  # the log is not the one that the summary was made for
        offset, positions = 0, {}
    for batch in log.read(partition, offset, end):
        for text in _resume_headers(batch):
            position = Position.from_header(text)
            positions.pop(position.id, None)
            positions[position.id] = position
    return positions


def save(summary: Path, next_offset: int, positions: Positions) -> None:
    """Keep a summary that is true for the log below ``next_offset``."""
    files = [position.to_header() for position in positions.values()]
    summary.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(summary, json.dumps({"log_offset": next_offset, "files": files}).encode())


def _load(summary: Path) -> tuple[int, Positions]:
    try:
        document = json.loads(summary.read_bytes())
    except FileNotFoundError:
        return 0, {}
    positions = map(Position.from_header, document["files"])
    return document["log_offset"], {position.id: position for position in positions}


def _resume_headers(batch: pa.RecordBatch) -> list[str]:
    headers = batch.column("headers")
    found: list[str] = headers.items.filter(pc.equal(headers.keys, RESUME)).to_pylist()
    return found
