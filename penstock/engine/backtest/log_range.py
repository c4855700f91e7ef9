"""The part of the log that a backtest reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch, stretches
from penstock.log.record_order import ends

BYTES_PER_TASK = 32 << 20
"""Of records in memory: few enough that a task that is lost costs little, and that all cores have work to the end."""


@dataclass(frozen=True)
class LogRange:
    """Per partition, the first offset and the one behind the last."""

    offsets: Mapping[int, tuple[int, int]]
    records: int
    bytes: int
    """In memory, about."""

    @classmethod
    def between(
        cls, log: LocalLog, sources: Collection[str], since: datetime | None, until: datetime | None
    ) -> LogRange:
        """The records of these sources from the first one not before ``since`` on, up to the first one not before
        ``until``; ``None`` is all that is there now."""
        offsets: dict[int, tuple[int, int]] = {}
        records = size = 0
        for partition, now in ends(log, sources).items():
            start = log.bounds(partition).oldest if since is None else log.offset_at(partition, since)
            end = now if until is None else min(now, log.offset_at(partition, until))
            if start < end:
                offsets[partition] = (start, end)
                found = log.reader(partition).measure(start, end)
                records, size = records + found[0], size + found[1]
        return cls(offsets, records, size)

    def cut(self, log: LocalLog, cores: int) -> list[Stretch]:
        """The range in parts, one for each task."""
        starts, stops = ({p: edges[side] for p, edges in self.offsets.items()} for side in (0, 1))
        return stretches(log, starts, stops, max(cores, self.bytes // BYTES_PER_TASK))
