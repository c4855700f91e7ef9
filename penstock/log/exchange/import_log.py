"""Imports a file in Transporter's layout into the log, with its offsets.

The whole file is checked first: one that is cut short or damaged is refused before anything is appended. An interrupted
import continues where it was when it is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes
from penstock.errors import LogError
from penstock.log.exchange.decode import Found, Problem, decode, find_entries, namespaces
from penstock.log.exchange.encode import encode
from penstock.log.local_log import LocalLog

IMPORTED = -1
"""The worker that imports: it owns a partition beside those of the source's real workers."""
_CHUNK_ENTRIES = 16_384
_CHUNK_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Imported:
    """What came out of a file."""

    partition: int
    source: str
    entries: int
    bytes: int
    there_before: int
    """How many of the entries an earlier import of the same file had taken in."""


def import_transporter(log: LocalLog, path: Path, source: str = "import") -> Imported:
    """Append the entries of a file, at their offsets, to a partition of this source that is for imports only.

    Raises ``LogError`` if the file is damaged, or if the partition holds something else at these offsets.
    """
    content: Bytes = np.asarray(np.memmap(path, np.uint8, "r")) if path.stat().st_size else np.empty(0, np.uint8)
    entries = sum(_check_namespaces(path, content, found) for found in _chunks(path, content))
    there_before = 0
    with log.writer(source, IMPORTED) as writer:
        for found in _chunks(path, content):
            batch, offsets = decode(content, found.positions)
            known = int(np.searchsorted(offsets, writer.next_offset))
            if known:
                end = found.end if known == len(offsets) else int(found.positions[known])
                _require_same(log, writer.partition, offsets[:known], content[found.positions[0] : end], path)
                there_before += known
            writer.append_at(batch.slice(known), offsets[known:])
        return Imported(writer.partition, source, entries, len(content), there_before)


def _chunks(path: Path, content: Bytes) -> Iterator[Found]:
    """The file's entries, some at a time. Raises ``LogError`` at the first that is not right."""
    end, last, passed = 0, -1, 0
    while end < len(content):
        found = find_entries(content, end, last, _CHUNK_ENTRIES, _CHUNK_BYTES)
        passed += len(found.positions)
        if found.problem is not Problem.NONE:
            raise _refusal(path, found.end, passed, found.last, found.problem.text, len(content))
        yield found
        end, last = found.end, found.last


def _check_namespaces(path: Path, content: Bytes, found: Found) -> int:
    """How many entries these are. Raises ``LogError`` if a namespace is no text."""
    try:
        namespaces(content, found.positions)
    except pa.ArrowInvalid:
        for number, position in enumerate(found.positions):
            try:
                namespaces(content, found.positions[number : number + 1])
            except pa.ArrowInvalid:
                why = "its key is not UTF-8, so it is no namespace"
                raise _refusal(path, int(position), None, None, why, len(content)) from None
    return len(found.positions)


def _require_same(log: LocalLog, partition: int, offsets: npt.NDArray[np.int64], content: Bytes, path: Path) -> None:
    there = b"".join(encode(batch) for batch in log.read(partition, int(offsets[0]), int(offsets[-1]) + 1))
    if there != content.tobytes():
        raise LogError(
            "PEN-LOG-017",
            f"partition {partition} does not hold what {path} has at the offsets {offsets[0]} to {offsets[-1]}, "
            f"and an offset is never given to two records.",
            "Import the file under another name: --source NAME.",
        )


def _refusal(path: Path, position: int, passed: int | None, last: int | None, why: str, size: int) -> LogError:
    before = f" {passed:,} whole entries stand before it, the last at offset {last}." if passed else ""
    return LogError(
        "PEN-LOG-016",
        f"{path} cannot be imported: at byte {position} of {size}, {why}.{before}",
        "Nothing was imported."
        + (f" What stands before it can be: head -c {position} {path} > whole.log" if passed else ""),
    )
