"""Stages the newest bundles of a task. What is no bundle fails here; what nobody needs is counted and left behind.

All bundles that are no failures count as staged, also those whose bytes are left out: whether a bundle is conflated
away in its task or later must not show in any number.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.conflation.bundle import Place
from penstock.conflation.kinds import Kinds
from penstock.conflation.read_bundles import read_bundles
from penstock.destinations.contract import Part, Stager
from penstock.destinations.state.staged_bundles import STAGED_SCHEMA, BundleFile, keep_newest
from penstock.outcome import PLACE_COLUMNS, Outcome
from penstock.record import int64_array

MOST_ROWS = 200_000
MOST_BYTES = 16 * 2**20
"""How much is gathered before the newest of it are chosen."""


class BundleStager(Stager):
    def __init__(self, directory: Path, kinds: Kinds) -> None:
        self._kinds = kinds
        self._file = BundleFile(directory / f"{uuid.uuid4().hex}.bundles")
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._rows = 0
        self._first: Place | None = None

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        bundles, failures = read_bundles(batch, self._kinds)
        if bundles.num_rows:
            self._first = self._first or Place(*(bundles.column(name)[0].as_py() for name in PLACE_COLUMNS))
            self._rows += bundles.num_rows
            self._gather(bundles)
        return Outcome(bundles, 0, failures)

    def finish(self) -> list[Part]:
        if self._first is None:
            return []
        self._file.write(keep_newest(self._gathered, self._kinds))
        return [self._file.finish(self._rows, self._first)]

    def _gather(self, bundles: pa.RecordBatch) -> None:
        none = int64_array(np.zeros(bundles.num_rows, np.int64))
        self._take_in(pa.RecordBatch.from_arrays([*bundles.columns, none], schema=STAGED_SCHEMA))
        if self._gathered_rows < MOST_ROWS and self._gathered_bytes < MOST_BYTES:
            return
        newest = keep_newest(self._gathered, self._kinds)
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
        if sum(rows.num_rows for rows in newest) > MOST_ROWS // 2 or sum(map(_bytes, newest)) > MOST_BYTES // 2:
            # Too much to be looked at over and over: the driver chooses among what is on disk.
            self._file.write(newest)
            return
        for rows in newest:
            self._take_in(rows)

    def _take_in(self, rows: pa.RecordBatch) -> None:
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        self._gathered_bytes += _bytes(rows)


def _bytes(rows: pa.RecordBatch) -> int:
    """What the rows take, without the rest of the buffers that they are a part of."""
    size: int = rows.nbytes
    return size
