"""What a Spark task returns to the driver: one small row, however many records it processed.

A task reads one stretch of one log partition, runs the route's steps and stages the result. Its report says what it
covered, what became of every record, and which files it left for the destination and for the failed store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise

import pyarrow as pa

from penstock.destinations.contract import Part
from penstock.engine.delivery.staged_digest import add_digests, digest_of_tables
from penstock.errors import RouteError
from penstock.holding.decision import join_levels
from penstock.outcome import check_count

REPORT_SCHEMA: pa.Schema = pa.schema([pa.field("report", pa.string(), nullable=False)])


@dataclass(frozen=True)
class RowsOnDisk:
    """An Arrow file, and how many rows it has."""

    path: str
    rows: int


@dataclass(frozen=True)
class TaskReport:
    """``partition`` is ``None`` for a task after a shuffle: it covers rows, but no stretch of the log."""

    items: int
    staged: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    parts: Sequence[Part] = ()
    failed: Sequence[RowsOnDisk] = ()
    """Failures (``STEP_FAILURE_SCHEMA``)."""
    partition: int | None = None
    start: int = 0
    end: int = 0
    added: Mapping[str, int] = field(default_factory=dict)
    """Rows that steps made beyond one per record, by the step's label."""
    given: Mapping[str, int] = field(default_factory=dict)
    """Rows that went on to a step in Spark, by its label."""
    returned: Mapping[str, int] = field(default_factory=dict)
    """Rows that such a step returned, without those that it added. A holding step returns what it keeps back, too."""
    waiting: int = 0
    """Rows that a holding step keeps back from now on, less those of earlier batches that it releases."""
    waiting_in_all: int = 0
    """Rows that it keeps back, of all batches."""
    holds: Mapping[int, int] = field(default_factory=dict)
    """Per partition, the lowest offset that its shards of this task keep back."""
    shards: int = 0
    """How many shards of a holding step have decided."""
    places: Sequence[RowsOnDisk] = ()
    """What a route with such a step has staged (``NOTED_PLACE_SCHEMA``): its range does not tell."""
    noted: Sequence[RowsOnDisk] = ()
    """What has failed behind such a step, the same way."""
    digest: int = 0
    """Of the items that it has staged."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the shards of a holding step have counted, for metrics, by names of the step's own."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """How much they have of what."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def to_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"report": self.to_json()}], schema=REPORT_SCHEMA)

    @classmethod
    def from_json(cls, text: str) -> TaskReport:
        raw = json.loads(text)
        return cls(
            **{
                **raw,
                "parts": tuple(Part(**part) for part in raw["parts"]),
                "failed": tuple(RowsOnDisk(**file) for file in raw["failed"]),
                "places": tuple(RowsOnDisk(**file) for file in raw["places"]),
                "noted": tuple(RowsOnDisk(**file) for file in raw["noted"]),
                "holds": {int(partition): first for partition, first in raw["holds"].items()},
            }
        )


@dataclass(frozen=True)
class BatchReport:
    """The sum of the reports of all tasks of a batch."""

    ranges: Mapping[int, tuple[int, int]]
    items: int
    staged: int
    skipped: Mapping[str, int]
    parts: Sequence[Part]
    failed: Sequence[RowsOnDisk]
    added: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    waiting_in_all: int = 0
    holds: Mapping[int, int] = field(default_factory=dict)
    shards: int = 0
    places: Sequence[RowsOnDisk] = ()
    noted: Sequence[RowsOnDisk] = ()
    digest: int = 0
    """Of the items that it has staged, and of how many go to each table."""
    counts: Mapping[str, int] = field(default_factory=dict)
    levels: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed_rows(self) -> int:
        return sum(file.rows for file in self.failed)

    @property
    def is_set_aside(self) -> bool:
        """Whether nothing is staged of what it releases."""
        return bool(self.places) and not self.staged


def rows_by_table(parts: Iterable[Part]) -> Counter[str]:
    """How many rows were staged for each table."""
    rows: Counter[str] = Counter()
    for part in parts:
        rows[part.table] += part.rows
    return rows


def add_up(reports: Iterable[TaskReport]) -> BatchReport:
    """Add up the reports of a batch. Refuses stretches that overlap or leave a gap, because its range was fixed
    beforehand, and a step in Spark that has not returned what it was given."""
    stretches: dict[int, list[tuple[int, int]]] = {}
    skipped: Counter[str] = Counter()
    added: Counter[str] = Counter()
    parts: list[Part] = []
    failed: list[RowsOnDisk] = []
    places: list[RowsOnDisk] = []
    noted: list[RowsOnDisk] = []
    given: Counter[str] = Counter()
    returned: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    levels: list[Mapping[str, int]] = []
    holds: dict[int, int] = {}
    items = staged = waiting = waiting_in_all = shards = digest = 0
    for report in reports:
        if report.partition is not None:
            stretches.setdefault(report.partition, []).append((report.start, report.end))
            items += report.items
        given.update(report.given)
        returned.update(report.returned)
        staged += report.staged
        waiting += report.waiting
        waiting_in_all += report.waiting_in_all
        shards += report.shards
        digest += report.digest
        for partition, first in report.holds.items():
            holds[partition] = min(first, holds.get(partition, first))
        counts.update(report.counts)
        levels.append(report.levels)
        skipped.update(report.skipped)
        added.update(report.added)
        parts.extend(report.parts)
        failed.extend(report.failed)
        places.extend(report.places)
        noted.extend(report.noted)
    for step in given.keys() | returned.keys():
        check_count(step, given[step], returned[step])
    parts.sort(key=lambda part: (part.partition, part.first_offset))
    ranges = {partition: _joined(partition, pieces) for partition, pieces in sorted(stretches.items())}
    return BatchReport(
        ranges, items, staged, dict(skipped), parts, failed, dict(added), waiting, waiting_in_all, holds, shards,
        places, noted, add_digests(digest, digest_of_tables(rows_by_table(parts))), dict(counts), join_levels(levels),
    )  # fmt: skip


def _joined(partition: int, pieces: list[tuple[int, int]]) -> tuple[int, int]:
    pieces.sort()
    for (_, end), (start, _) in pairwise(pieces):
        if end != start:
            raise RouteError(
                "PEN-RTE-002",
                f"a batch covers partition {partition} up to {end} and again from {start}.",
                "Nothing was delivered; restart the pipeline. If it comes again, please report it.",
            )
    return pieces[0][0], pieces[-1][1]
