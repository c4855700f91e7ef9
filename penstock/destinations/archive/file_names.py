"""The names of an archive's files, and the batch that a file belongs to.

``2026-03-01/incoming.tok=site-2026-03-01T08-15-00.123.log.gz``: the day, what the lines have in common, and the time of
the first of them, all UTC. The name does not say which batch a file belongs to; the comment in its gzip header does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import numpy as np

from penstock.destinations.archive.archive_reader import ENDING
from penstock.destinations.contract import Batch

MAX_ID = 120
"""Most characters of a token's id in a name, so that names stay within the limit of file systems (255 bytes)."""

_KINDS = {"dst": "streaming-archive.dst", "failed.dst": "failed.dst"}
_GZIP_MAGIC = b"\x1f\x8b\x08"
_COMMENT_ONLY = 0x10
_EMPTY_BODY = b"\x03\x00" + bytes(8)
"""An empty deflate stream with its checksum and length."""


def day_folder(day: int) -> str:
    """``day`` counts from 1970-01-01."""
    return str(np.datetime64(day, "D"))


def stem(label: str) -> str:
    """The beginning of a file's name. ``label`` is ``tok=<token id>``, or ``ns=<namespace>`` for lines without a token;
    or ``dst=<route>`` and, for replayed records, ``failed.dst=<route>``."""
    variable, _, value = label.partition("=")
    safe = quote(value, safe="")
    if len(safe) > MAX_ID:
        safe = f"{safe[:MAX_ID]}~{sha256(value.encode()).hexdigest()[:8]}"
    return f"{_KINDS.get(variable, f'incoming.{variable}')}={safe}"


def file_name(beginning: str, milliseconds: int) -> str:
    return f"{beginning}-{_time(milliseconds)}{ENDING}"


def is_named_between(name: str, beginning: str, first: int, last: int) -> bool:
    """Whether a name with this beginning has a time from ``first`` to ``last`` (milliseconds)."""
    return name.startswith(f"{beginning}-") and _time(first) <= name[len(beginning) + 1 : -len(ENDING)] <= _time(last)


def _time(milliseconds: int) -> str:
    return str(np.datetime64(milliseconds, "ms")).replace(":", "-")


@dataclass(frozen=True)
class Owner:
    """Which batch a file belongs to, and which of the batch's lines it holds."""

    scope: str
    route: str
    batch: int
    label: str
    origin: str = ""
    """A digest of the batch's records: its number may be used again for others."""

    @classmethod
    def of(cls, batch: Batch, label: str) -> Owner:
        origin = sha256(batch.origin.encode()).hexdigest()[:16] if batch.origin else ""
        return cls(batch.scope, batch.route, batch.number, label, origin)

    @property
    def comment(self) -> bytes:
        content = {"scope": self.scope, "route": self.route, "batch": self.batch, "of": self.label}
        return json.dumps({**content, "origin": self.origin} if self.origin else content).encode()

    @property
    def digest(self) -> str:
        return sha256(self.comment).hexdigest()[:16]

    @property
    def mark(self) -> bytes:
        """An empty gzip member whose header carries the comment. Other members may follow it in the same file."""
        header = _GZIP_MAGIC + bytes([_COMMENT_ONLY]) + bytes(5) + b"\xff"
        return header + self.comment + b"\0" + _EMPTY_BODY

    def owns(self, path: Path) -> bool:
        """Whether the file begins with this mark."""
        mark = self.mark
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
