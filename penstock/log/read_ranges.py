"""Which offsets a batch covers: where a reader starts, how far one batch goes, how it is cut into tasks.

Offsets travel as JSON, partition to next offset: ``{"0": 120, "1": 33}``. A partition that is not named has not been
read yet, so one that appears while a stream runs is read from its beginning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import LogError
from penstock.log.local_log import LocalLog
from penstock.log.record_order import Offsets, beginning

TASK_BYTES = 2**20
"""A range with fewer bytes than this is not worth a task of its own."""


@dataclass(frozen=True)
class Stretch:
    """What one task reads: the records of a partition with ``start <= offset < end``."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class FixedRange:
    """A range that was decided before a crash: from ``start`` the next batch ends at ``end``, whatever came since."""

    start: Offsets
    end: Offsets

    def begins_at(self, offsets: Offsets) -> bool:
        """Whether a batch from these offsets is this one; partitions that appeared since do not matter."""
        return all(offsets.get(partition, 0) == offset for partition, offset in self.start.items())


@dataclass(frozen=True)
class ReadOptions:
    """The options of the Spark source, read once."""

    path: Path
    sources: tuple[str, ...] | None
    starting: str | Offsets
    ending: str | Offsets
    starting_time: datetime | None
    ending_time: datetime | None
    max_records: int | None
    max_bytes: int | None
    consumer: str | None
    fixed: FixedRange | None
    tasks: int


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse options as Spark gives them: strings under names without regard to case."""
    given = {name.lower(): value for name, value in options.items()}
    if not given.get("path"):
        raise _wrong("path", "", "the directory of a log")
    sources = [name.strip() for name in given.get("sources", "").split(",") if name.strip()]
    return ReadOptions(
        path=Path(given["path"]),
        sources=tuple(sources) or None,
        starting=_position(given, "startingOffsets", "earliest"),
        ending=_position(given, "endingOffsets", "latest"),
        starting_time=_time(given, "startingTimestamp"),
        ending_time=_time(given, "endingTimestamp"),
        max_records=_positive(given, "maxRecordsPerTrigger"),
        max_bytes=_positive(given, "maxBytesPerTrigger"),
        consumer=given.get("consumer") or None,
        fixed=_fixed_range(given),
        tasks=_positive(given, "tasks") or os.cpu_count() or 1,
    )


def offsets_from_json(found: object) -> Offsets:
    """Offsets out of parsed JSON. Raises ``ValueError`` if it is something else."""
    if not isinstance(found, dict):
        raise ValueError("not an object of partition to offset")
    offsets = {int(partition): offset for partition, offset in found.items()}
    if not all(type(offset) is int and offset >= 0 for offset in offsets.values()):
        raise ValueError("an offset is a whole number, 0 or more")
    return dict(sorted(offsets.items()))


def offsets_to_json(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def first_offsets(log: LocalLog, options: ReadOptions) -> Offsets:
    """Where a new reader starts."""
    return _resolve(log, options, options.starting, options.starting_time)


def last_offsets(log: LocalLog, options: ReadOptions) -> Offsets:
    """Where a bounded reader stops, not including that offset."""
    return _resolve(log, options, options.ending, options.ending_time)


def next_offsets(
    log: LocalLog, start: Offsets, limit: Offsets, max_records: int | None, max_bytes: int | None
) -> Offsets:
    """The end of a batch from ``start`` on: at most up to ``limit``, at most so many records, about so many bytes.

    It takes what is oldest, over all partitions: see ``record_order``. With nothing to read it is ``start`` again.
    """
    return dict(sorted((start | beginning(log, start, limit, max_records, max_bytes)).items()))


def stretches(log: LocalLog, start: Offsets, end: Offsets, tasks: int) -> list[Stretch]:
    """A batch cut into about ``tasks`` stretches; the cuts depend on the range alone."""
    unread = {p: (start.get(p, 0), stop) for p, stop in end.items() if start.get(p, 0) < stop}
    present = {p: (max(first, log.bounds(p).oldest), stop) for p, (first, stop) in unread.items()}
    ranges = {p: (first, stop) for p, (first, stop) in present.items() if first < stop}
    total = sum(stop - first for first, stop in ranges.values())
    found: list[Stretch] = []
    for partition, (first, stop) in sorted(ranges.items()):
        pieces = max(1, round(tasks * (stop - first) / total))
        found += [Stretch(partition, *cut) for cut in log.reader(partition).split(first, stop, pieces, TASK_BYTES)]
    return found


def _resolve(log: LocalLog, options: ReadOptions, position: str | Offsets, time: datetime | None) -> Offsets:
    found: Offsets = {}
    for partition in log.partitions(options.sources):
        bounds = log.bounds(partition)
        if time is not None:
            found[partition] = log.offset_at(partition, time)
        elif isinstance(position, dict):
            default = bounds.oldest if position is options.starting else bounds.end
            found[partition] = min(position.get(partition, default), bounds.end)
        else:
            found[partition] = bounds.oldest if position == "earliest" else bounds.end
    return found


def _position(given: Mapping[str, str], name: str, default: str) -> str | Offsets:
    text = given.get(name.lower(), default)
    if text in ("earliest", "latest"):
        return text
    try:
        return offsets_from_json(json.loads(text))
    except ValueError:
        raise _wrong(name, text, 'earliest, latest or JSON such as {"0": 12}') from None


def _fixed_range(given: Mapping[str, str]) -> FixedRange | None:
    text = given.get("fixedrange")
    if not text:
        return None
    try:
        content = json.loads(text)
        return FixedRange(offsets_from_json(content["start"]), offsets_from_json(content["end"]))
    except (ValueError, KeyError, TypeError):
        raise _wrong("fixedRange", text, 'JSON such as {"start": {"0": 1}, "end": {"0": 9}}') from None


def _time(given: Mapping[str, str], name: str) -> datetime | None:
    text = given.get(name.lower())
    if not text:
        return None
    try:
        return datetime.fromtimestamp(int(text) / 1000, UTC) if text.isdecimal() else datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise _wrong(name, text, "a time such as 2030-01-31T12:00:00Z, or milliseconds since 1970") from None


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if not text:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise _wrong(name, text, "a whole number of 1 or more")
    return int(text)


def _wrong(name: str, value: str, expected: str) -> LogError:
    return LogError("PEN-LOG-011", f"option {name} of penstock_log is '{value}'.", f"Expected {expected}.")
