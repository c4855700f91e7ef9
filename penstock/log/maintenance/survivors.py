"""Writes what is left of a segment when some of its entries are dropped: the others, in frames of a good size.

Many small frames with little left in each become few; a large frame that loses nothing is copied as it is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.format.frame import MAX_FRAME_BYTES, SCATTERED_SCHEMA, STAMPED_SCHEMA, encode
from penstock.log.format.index import first_place
from penstock.log.format.segment import Segment
from penstock.log.maintenance.rewrite import Rewrite
from penstock.record import int64_array

FRAME_RECORDS = 16_384
FRAME_BYTES = 2**20
_WORTH_COPYING = 2**18


def write_survivors(segment: Segment, dropped: npt.NDArray[np.bool_], into: Rewrite, compression: str) -> None:
    """Write the entries of a segment that are not dropped; ``dropped`` has a flag for each, in their order."""
    gathered = _Gathered(into, compression)
    done = stamp = 0
    for place, header in segment.walk(first_place(segment.base)):
        flags = dropped[done : done + header.records]
        done += header.records
        stamp = header.stamp
        lost = int(np.count_nonzero(flags))
        if lost == header.records:
            continue
        if lost == 0 and header.raw_bytes >= _WORTH_COPYING:
            gathered.flush()
            into.copy(header, segment.payload(place, header))
            continue
        (entries, offsets), stamps = segment.open(place, header), segment.stamps(place, header)
        if lost:
            rows = np.flatnonzero(~flags)
            entries, offsets, stamps = entries.take(int64_array(rows)), offsets[rows], stamps[rows]
        gathered.add(entries, offsets, stamps)
    gathered.flush()
    into.reach_up_to(segment.end.offset, stamp)


class _Gathered:
    def __init__(self, into: Rewrite, compression: str) -> None:
        self._into = into
        self._compression = compression
        self._empty()

    def add(self, entries: pa.RecordBatch, offsets: npt.NDArray[np.int64], stamps: npt.NDArray[np.int64]) -> None:
        size = entries.nbytes
        if self._records + len(offsets) > FRAME_RECORDS or self._bytes + size > FRAME_BYTES:
            self.flush()
        self._entries.append(entries)
        self._offsets.append(offsets)
        self._stamps.append(stamps)
        self._records += len(offsets)
        self._bytes += size

    def flush(self) -> None:
        if self._records:
            self._write(pa.concat_batches(self._entries), np.concatenate(self._offsets), np.concatenate(self._stamps))
            self._empty()

    def _write(self, entries: pa.RecordBatch, offsets: npt.NDArray[np.int64], stamps: npt.NDArray[np.int64]) -> None:
        first, last, count = int(offsets[0]), int(offsets[-1]), len(offsets)
        of_one_append = stamps[0] == stamps[-1]
        if last - first + 1 != count or not of_one_append:
            if count > 1 and entries.nbytes + offsets.nbytes + stamps.nbytes > MAX_FRAME_BYTES:
                # The columns of offsets and stamps may make the frame too large.
                half = count // 2
                self._write(entries.slice(0, half), offsets[:half], stamps[:half])
                self._write(entries.slice(half), offsets[half:], stamps[half:])
                return
            added = [int64_array(offsets)] if of_one_append else [int64_array(offsets), int64_array(stamps)]
            schema = SCATTERED_SCHEMA if of_one_append else STAMPED_SCHEMA
            entries = pa.RecordBatch.from_arrays([*added, *entries.columns], schema=schema)
        self._into.add(encode(entries, self._compression), first, last, int(stamps[-1]))

    def _empty(self) -> None:
        self._entries: list[pa.RecordBatch] = []
        self._offsets: list[npt.NDArray[np.int64]] = []
        self._stamps: list[npt.NDArray[np.int64]] = []
        self._records = self._bytes = 0
