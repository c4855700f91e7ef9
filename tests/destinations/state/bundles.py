"""Bundles in the short form of ``tests/conflation/samples.py``, through stager and destination, without an engine.

``Bench`` plays the engine's part: it gives batches numbers and offsets, keeps what waits, and gives it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from penstock.conflation.bundle import Bundle
from penstock.destinations.contract import Batch, Part, TableReceipt, WaitingRows
from penstock.destinations.state.config import StateConfig
from penstock.destinations.state.destination import StateDestination
from penstock.outcome import Outcome
from penstock.record import Record, entries, with_places
from tests.conflation.samples import bundle

KINDS = [
    {"name": "A", "priority": 0, "table": "a", "rows": "/items", "key": ["id"]},
    {"name": "C", "priority": 1, "table": "c", "rows": "/items", "key": ["id"]},
    {"name": "CC", "priority": 2, "table": "cc", "rows": "/items", "key": ["id"], "depends_on": {"kind": "C"}},
    {"name": "D", "priority": 3, "sync": "delta", "table": "cc", "rows": "/items", "key": ["id"],
     "depends_on": {"kind": "CC"}},
    {"name": "L", "priority": 4, "table": "l", "rows": "/items", "key": ["id"],
     "depends_on": {"kind": "C", "match": "at_least"}},
    {"name": "I", "priority": 5, "table": "i", "rows": "/items", "key": ["id"],
     "depends_on": {"kind": "A", "implicit": True}},
    {"name": "H", "priority": 6, "sync": "hybrid", "table": "h", "key": ["id"]},
]  # fmt: skip
"""Those of ``tests/conflation/samples.py``, with tables."""


def config(**options: object) -> StateConfig:
    return StateConfig.model_validate({"path": "/nowhere/state.duckdb", "kinds": KINDS, **options})


def items(*rows: Mapping[str, object]) -> dict[str, object]:
    return {"items": list(rows)}


def record(bundle: Bundle, data: object = None) -> Record:
    """A bundle as a record. Without ``data`` it has one row that tells its version."""
    value = str(bundle.version)
    if data is None:
        row = {"id": value if bundle.kind in ("D", "H") else 1, "v": value}
        data = {"create": [row]} if bundle.kind == "H" else items(row)
    headers = {"source": bundle.source, "kind": bundle.kind, "version": value}
    headers |= {"depends_on": str(bundle.depends_on)} if bundle.depends_on is not None else {}
    headers |= {"base": str(bundle.base)} if bundle.base is not None else {}
    return Record(json.dumps(data).encode(), namespace="hubs", headers=headers)


@dataclass
class Bench:
    destination: StateDestination
    folder: Path
    log: list[Record] = field(default_factory=list)
    waiting: list[WaitingRows] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    receipts: list[TableReceipt] = field(default_factory=list)
    number: int = 0
    read: int = 0
    partitions: int = 1
    """Records go to them by turns, as with several workers of a collector."""

    def add(self, text: str, source: str = "hub1", data: object = None) -> None:
        """Bundles come to the log."""
        for word in text.split():
            self.log.append(record(bundle(word, len(self.log), source), data))

    def deliver(self, text: str = "", source: str = "hub1", data: object = None) -> TableReceipt | None:
        """A batch of all that is new, and of these bundles."""
        self.add(text, source, data)
        first, self.read = self.read, len(self.log)
        if first == self.read:
            return None
        before, after = self.upto(first), self.upto(self.read)
        return self._write({p: (before[p], after[p]) for p in before}, range(first, self.read), [])

    def retry(self, groups: Sequence[str] | None = None) -> TableReceipt | None:
        """What waits, or of it these groups, is given to the destination once more."""
        chosen = [each for each in self.waiting if groups is None or each.group in groups]
        if not chosen:
            return None
        return self._write({}, sorted(at for each in chosen for at in self.numbers(each.places)), chosen)

    def retry_woken(self) -> TableReceipt | None:
        return self.retry(list(self.receipts[-1].wakes)) if self.receipts[-1].wakes else None

    def rewind(self, offset: int) -> None:
        """The engine reads the log again from an offset; what waits from there on comes with it."""
        self.read = offset
        kept = []
        for each in self.waiting:
            places = each.places.filter(pa.array([number < offset for number in self.numbers(each.places)]))
            if places.num_rows:
                kept.append(replace(each, places=places))
        self.waiting = kept
        self.counts = Counter(before=offset - self.waits)

    def stage(self, numbers: Sequence[int], cut: int = 0) -> tuple[list[Part], list[Outcome]]:
        """Stages records in a task for each partition, or in two that are cut at a record."""
        parts, outcomes = [], []
        for partition in range(self.partitions):
            own = [at for at in numbers if at % self.partitions == partition]
            for some in ([at for at in own if at < cut], [at for at in own if at >= cut]):
                if not some:
                    continue
                stager = self.destination.stager(self.folder, {})
                offsets = pa.array([at // self.partitions for at in some], pa.int64())
                placed = with_places(entries(self.log[at] for at in some), partition, offsets)
                outcomes.append(stager.add(placed))
                parts += stager.finish()
        return parts, outcomes

    def _write(
        self, ranges: Mapping[int, tuple[int, int]], numbers: Sequence[int], given: Sequence[WaitingRows]
    ) -> TableReceipt | None:
        self.folder.mkdir(exist_ok=True)
        parts, outcomes = self.stage(numbers)
        self.number += 1
        others = [each for each in self.waiting if each not in given]
        names: dict[str, list[str]] = {}
        for each in others:
            names.setdefault(each.group, []).append(each.about)
        batch = Batch("ledger", "state", self.number, ranges, waiting_groups=names, read_upto=self.upto(self.read))
        receipt = self.destination.write(batch, parts)
        failed = sum(outcome.failures.num_rows for outcome in outcomes)
        self.counts["failed"] += failed
        if not receipt.tables:
            return None
        (table,) = receipt.tables
        assert table.accounted == sum(part.rows for part in parts), "the receipt does not add up"
        superseded = {(each.group, each.about) for each in table.superseded}
        gone = [each for each in others if (each.group, each.about) in superseded]
        self.waiting = [*(each for each in others if each not in gone), *table.waiting]
        self.counts["written"] += table.rows
        self.counts["conflated"] += sum(table.skipped.values()) + sum(each.places.num_rows for each in gone)
        self.counts["failed"] += table.failures.num_rows if table.failures is not None else 0
        self.receipts.append(table)
        assert sum(self.counts.values()) + self.waits == self.read, "what came is not what was counted"
        return table

    def numbers(self, places: pa.RecordBatch) -> list[int]:
        """The places of records in the log over all partitions."""
        columns = (places.column(name).to_pylist() for name in ("partition", "offset"))
        return [offset * self.partitions + partition for partition, offset in zip(*columns, strict=True)]

    def upto(self, number: int) -> dict[int, int]:
        """Where each partition stands when so many records are read."""
        return {p: -(-(number - p) // self.partitions) for p in range(self.partitions)}

    @property
    def waits(self) -> int:
        return sum(int(each.places.num_rows) for each in self.waiting)

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.waiting]
