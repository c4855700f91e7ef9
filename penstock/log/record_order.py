"""The order of records over all partitions of a log, and batches that keep it.

Records are in order of (stamp, partition, offset). A record that was acknowledged before another was sent has the lower
stamp (see ``logical_clock``), so it comes first. A batch is always the beginning, in this order, of what was published
when it was cut. So batches that are applied one after the other keep the order of everything that did not overlap,
wherever they are cut. Of records that overlapped, one that was published late can be in a later batch than one with a
higher stamp: which of them is the later one may differ from batch to batch, and once they are delivered again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from penstock.log.local_log import LocalLog

Offsets = dict[int, int]
Ranges = Mapping[int, tuple[int, int]]
Numbers = npt.NDArray[np.int64]

_NO_LIMIT = 2**62


def ends(log: LocalLog, sources: Collection[str] | None = None) -> Offsets:
    """Where every partition ends, at one moment of the order: if a record was acknowledged before another was sent, the
    later one is never included without the earlier one.

    Partitions are read one after the other, and grow meanwhile. So they are read twice: what is newer at the second
    look than everything at the first is left for later. A record that is included was sent before the first look was
    over; the second look has everything that had been acknowledged by then.
    """
    stamp = max((log.reader(partition).published_end().stamp for partition in log.partitions(sources)), default=0)
    found: Offsets = {}
    for partition in log.partitions(sources):
        reach = log.reader(partition).published_end()
        found[partition] = reach.end if reach.stamp <= stamp else log.reader(partition).end_at(stamp)
    return found


def beginning(
    log: LocalLog, start: Mapping[int, int], stop: Mapping[int, int], max_records: int | None, max_bytes: int | None
) -> Offsets:
    """Where to cut ``start..stop`` so that its beginning has at most so many records, and about so many bytes.

    If there is any record, there is one in it. Where no record is left the end is ``stop``.
    """
    records_left, bytes_left = (_NO_LIMIT if limit is None else limit for limit in (max_records, max_bytes))
    ranges = {p: (start.get(p, 0), end) for p, end in stop.items() if start.get(p, 0) < end}
    if not ranges or (max_records is None and max_bytes is None):
        return {p: end for p, (_, end) in ranges.items()}
    most = {p: min(end, log.advance(p, first, max_records, max_bytes)) for p, (first, end) in ranges.items()}
    if len(ranges) == 1:
        return most
    if all(most[p] == end for p, (_, end) in ranges.items()) and _fits(log, ranges, records_left, bytes_left):
        return most
    reached = _marked(log, ranges, most, records_left, bytes_left)
    records, raw_bytes = _measure(log, {p: (first, reached[p]) for p, (first, _) in ranges.items()})
    rest = {p: (reached[p], end) for p, (_, end) in ranges.items()}
    return _walk_appends(log, rest, records_left - records, bytes_left - raw_bytes, first=records == 0)


class LogOrder:
    """The order of the records of a log, to cut ranges by."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log

    def before(self, ranges: Ranges, place: tuple[int, int]) -> dict[int, tuple[int, int]]:
        """The part of the ranges before the record at (partition, offset)."""
        partition, offset = place
        stamp = self._log.reader(partition).stamp_at(offset)
        found: dict[int, tuple[int, int]] = {}
        for p, (start, end) in sorted(ranges.items()):
            if p == partition:
                cut = min(max(offset, start), end)
            else:
                cut = self._log.reader(p).end_at(stamp if p < partition else stamp - 1, start, end)
            if start < cut:
                found[p] = (start, cut)
        return found

    def first(self, ranges: Ranges, records: int) -> dict[int, tuple[int, int]]:
        """The first ``records`` records of the ranges."""
        starts, stops = ({p: stretch[side] for p, stretch in ranges.items()} for side in (0, 1))
        reached = beginning(self._log, starts, stops, records, None)
        return {p: (starts[p], end) for p, end in sorted(reached.items()) if starts[p] < end}


class RangeOrder:
    """The order of the records in some ranges of a log. Looked up when it is first asked for, and kept."""

    def __init__(self, log: LocalLog, ranges: Ranges) -> None:
        self._log = log
        self._ranges = ranges
        self._appends: dict[int, tuple[Numbers, Numbers]] = {}

    def ranks(self, partitions: Numbers, offsets: Numbers) -> Numbers:
        """A number for each record: the later in the order, the higher."""
        ranks = np.empty(len(offsets), np.int64)
        ranks[np.lexsort((offsets, partitions, self.stamps(partitions, offsets)))] = np.arange(len(offsets))
        return ranks

    def stamps(self, partitions: Numbers, offsets: Numbers) -> Numbers:
        """The stamp of each record."""
        stamps = np.zeros(len(offsets), np.int64)
        for partition in np.unique(partitions):
            chosen = partitions == partition
            firsts, found = self._appends_of(int(partition))
            if len(firsts):
                stamps[chosen] = found[np.maximum(np.searchsorted(firsts, offsets[chosen], "right") - 1, 0)]
        return stamps

    def _appends_of(self, partition: int) -> tuple[Numbers, Numbers]:
        """The first offset of every append in the range, and its stamp."""
        if partition not in self._appends:
            # A step may have invented a record's place; such a record counts as older than all others.
            start, stop = self._ranges.get(partition, (0, 0))
            runs = [(int(run.offsets[0]), run.stamp) for run in self._log.reader(partition).runs(start, stop)]
            found = np.array(runs, np.int64).reshape(-1, 2)
            self._appends[partition] = found[:, 0], found[:, 1]
        return self._appends[partition]


def _marked(log: LocalLog, ranges: Ranges, most: Offsets, records: int, raw_bytes: int) -> Offsets:
    """Where each partition is at the latest indexed moment that is within the limits.

    Only moments at which the indexes have entries are tried, so that the frames between need not be read. ``most`` is
    how far each partition could go if it were alone.
    """
    found = {p: first for p, (first, _) in ranges.items()}
    moments = sorted({stamp for p, first in found.items() for stamp in log.reader(p).marked_stamps(first, most[p])})

    def at(moment: int) -> Offsets:
        return {p: log.reader(p).end_at(moment, first, most[p]) for p, (first, _) in ranges.items()}

    def is_too_much(moment: int) -> bool:
        reached = at(moment)
        if any(reached[p] == most[p] < end for p, (_, end) in ranges.items()):
            return True
        return not _fits(log, {p: (first, reached[p]) for p, (first, _) in ranges.items()}, records, raw_bytes)

    fitting = bisect_left(moments, True, key=is_too_much)
    return at(moments[fitting - 1]) if fitting else found


def _fits(log: LocalLog, ranges: Ranges, records: int, raw_bytes: int) -> bool:
    found = _measure(log, ranges)
    return found[0] <= records and found[1] <= raw_bytes


def _measure(log: LocalLog, ranges: Ranges) -> tuple[int, int]:
    found = [log.reader(p).measure(start, stop) for p, (start, stop) in ranges.items() if start < stop]
    return sum(records for records, _ in found), sum(raw_bytes for _, raw_bytes in found)


def _walk_appends(log: LocalLog, ranges: Ranges, records: int, raw_bytes: int, first: bool) -> Offsets:
    """Append by append in the order. ``first``: there is nothing in the batch yet, so one record is taken anyway."""
    reached = {p: start for p, (start, _) in ranges.items()}
    runs = heapq.merge(
        *(log.reader(p).runs(*stretch) for p, stretch in ranges.items()), key=lambda run: (run.stamp, run.partition)
    )
    for run in runs:
        count = len(run.offsets)
        if count > records or (run.bytes > raw_bytes and not first):
            take = max(records, 1 if first else 0)
            if 0 < take < count and (first or run.bytes * take // count <= raw_bytes):
                reached[run.partition] = int(run.offsets[take])
            return reached | _emptied(log, {p: (reached[p], end) for p, (_, end) in ranges.items()})
        records, raw_bytes, first = records - count, raw_bytes - run.bytes, False
        reached[run.partition] = int(run.offsets[-1]) + 1
    return {p: end for p, (_, end) in ranges.items()}


def _emptied(log: LocalLog, ranges: Ranges) -> Offsets:
    """The ends of ranges in which there is no record (any more): compaction may have left none."""
    return {p: end for p, (start, end) in ranges.items() if next(log.reader(p).runs(start, end), None) is None}
