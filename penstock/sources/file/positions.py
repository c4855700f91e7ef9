"""How far every file has been read, kept exactly: the log itself is the record of it.

The last entry of each append says in a header how far its file was read, and an append is whole or not at all, so what
is in the log has been read and nothing else has. A saved summary only spares a restart the reading of the whole log: it
says how far the files had been read at some offset of the log, and the entries from there on say the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.files import replace_durably
from penstock.log.local import LocalLog
from penstock.sources.file.entries import RESUME, quoted


class Position(NamedTuple):
    """How far a file has been read: ``line`` lines, ``end`` bytes. ``inside``: that was in the middle of a line."""

    file: str
    line: int = 0
    end: int = 0
    inside: bool = False

    def to_header(self) -> str:
        inside = ',"inside":true' if self.inside else ""
        return f'{{"file":{quoted(self.file)},"line":{self.line},"end":{self.end}{inside}}}'

    @classmethod
    def from_header(cls, text: str) -> Position:
        return cls(**json.loads(text))


Positions = dict[str, Position]


def recall(summary: Path, log: LocalLog, partition: int) -> Positions:
    """The positions as of the end of the partition."""
    end = log.bounds(partition).end
    offset, positions = _load(summary)
    if offset > end:  # the log is not the one that the summary was made for
        offset, positions = 0, {}
    for batch in log.read(partition, offset, end):
        for text in _resume_headers(batch):
            position = Position.from_header(text)
            positions[position.file] = position
    return positions


def save(summary: Path, next_offset: int, positions: Positions) -> None:
    """Keep a summary that is true for the log below ``next_offset``."""
    files = {name: position.to_header() for name, position in positions.items()}
    summary.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(summary, json.dumps({"log_offset": next_offset, "files": files}).encode())


def _load(summary: Path) -> tuple[int, Positions]:
    try:
        document = json.loads(summary.read_bytes())
    except FileNotFoundError:
        return 0, {}
    return document["log_offset"], {name: Position.from_header(text) for name, text in document["files"].items()}


def _resume_headers(batch: pa.RecordBatch) -> list[str]:
    headers = batch.column("headers")
    is_resume = pc.equal(headers.keys, RESUME)
    found: list[str] = headers.items.filter(is_resume).to_pylist()
    return found
