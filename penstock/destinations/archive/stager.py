"""Stages events as gzip files, one per token and day, inside a task.

Lines are held back until there are many, then compressed and appended to their file: a gzip file may have several
members. So a task holds little, however many tokens there are, and no file stays open.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Part, Stager
from penstock.destinations.file.line_files import data_lines, has_data
from penstock.outcome import Outcome
from penstock.record import Header
from penstock.steps.chain import tokens

HELD_BYTES = 16 << 20
"""How much a task holds back over all files before it compresses."""
LEVEL = 1
"""The level of zlib. Higher ones make events a tenth smaller and take two to six times as long."""
_DAY = 86_400_000_000
_GZIP = 31


@dataclass(frozen=True)
class Contents:
    """What ``write`` needs to know about a part: the day of its events, and the time of the first (microseconds)."""

    day: int
    first: int

    def to_text(self) -> str:
        return json.dumps([self.day, self.first])

    @classmethod
    def of(cls, part: Part) -> Contents:
        return cls(*json.loads(part.header))


class ArchiveStager(Stager):
    """Stages the data of every record that has any; the others count as skipped."""

    def __init__(self, directory: Path, held_bytes: int = HELD_BYTES, labels: Labels | None = None) -> None:
        self._directory = directory
        self._labels = labels or Labels()
        self._held_bytes = held_bytes
        self._files: dict[tuple[str, int], _File] = {}
        self._held = 0

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        kept = batch.filter(has_data(batch.column("data")))
        for label, day, rows in _by_label_and_day(kept, self._labels.of(kept)):
            file = self._files.get((label, day))
            if file is None:
                file = self._files[label, day] = _File(self._directory, label, day, rows)
            self._held += file.append(rows)
        if self._held > self._held_bytes:
            self._flush()
        return Outcome(kept, skipped=batch.num_rows - kept.num_rows)

    def finish(self) -> list[Part]:
        self._flush()
        return [file.part() for file in self._files.values()]

    def _flush(self) -> None:
        for file in self._files.values():
            file.flush()
        self._held = 0


class _File:
    """The staged lines of one label and day."""

    def __init__(self, directory: Path, label: str, day: int, rows: pa.RecordBatch) -> None:
        self._path = directory / f"{uuid.uuid4().hex}.gz"
        self._label = label
        self._day = day
        self._place = rows.column("partition")[0].as_py(), rows.column("offset")[0].as_py()
        self._rows = 0
        self._first: int | None = None
        self._held: list[pa.Buffer] = []

    def append(self, rows: pa.RecordBatch) -> int:
        """Hold the rows; returns how many bytes that takes."""
        first = int(_microseconds(rows).min())
        self._first = first if self._first is None else min(self._first, first)
        self._rows += rows.num_rows
        lines = data_lines(rows.column("data"))
        self._held.append(lines)
        return int(lines.size)

    def flush(self) -> None:
        if not self._held:
            return
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
        with self._path.open("ab") as file:
            for lines in self._held:
                file.write(packer.compress(lines))
            file.write(packer.flush())
        self._held.clear()

    def part(self) -> Part:
        assert self._first is not None
        contents = Contents(self._day, self._first)
        return Part(self._label, str(self._path), self._rows, *self._place, contents.to_text())


def _by_label_and_day(batch: pa.RecordBatch, texts: pa.Array) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """The rows in groups of one label and day, each group in the order of the log."""
    if batch.num_rows == 0:
        return
    labels = texts.dictionary_encode()
    names = labels.dictionary.to_pylist()
    days, day_codes = np.unique(_microseconds(batch) // _DAY, return_inverse=True)
    if len(names) == len(days) == 1:
        yield names[0], int(days[0]), batch
        return
    codes = labels.indices.to_numpy(zero_copy_only=False).astype(np.int64) * len(days) + day_codes
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    grouped = batch.take(pa.array(order))
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        code = int(codes[order[start]])
        yield names[code // len(days)], int(days[code % len(days)]), grouped.slice(start, end - start)


@dataclass(frozen=True)
class Labels:
    """What the lines of a file have in common, which is in its name. ``dst``: the route that is archived."""

    dst: str | None = None
    by_route: bool = False
    """Whether all records of the route are kept together, not by token."""

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        if self.dst is None:
            return _by_token(batch)
        own = pa.repeat(pa.scalar(f"dst={self.dst}"), batch.num_rows) if self.by_route else _by_token(batch)
        replayed = pc.is_valid(pc.map_lookup(batch.column("headers"), Header.REPLAY_OF, "first"))
        return pc.if_else(replayed, pa.scalar(f"failed.dst={self.dst}"), own)


def _by_token(batch: pa.RecordBatch) -> pa.Array:
    """``tok=<token id>``, or ``ns=<namespace>`` for a record without a token."""
    return pc.coalesce(
        pc.binary_join_element_wise("tok=", tokens(batch), ""),
        pc.binary_join_element_wise("ns=", batch.column("namespace"), ""),
    )


def _microseconds(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = pc.cast(batch.column("timestamp"), pa.int64()).to_numpy()
    return found
