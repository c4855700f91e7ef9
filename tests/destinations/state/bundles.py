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
import pyarrow.compute as pc

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
        return self._write({0: (first, self.read)}, range(first, self.read), [])

    def retry(self, groups: Sequence[str] | None = None) -> TableReceipt | None:
        """What waits, or of it these groups, is given to the destination once more."""
        chosen = [each for each in self.waiting if groups is None or each.group in groups]
        if not chosen:
            return None
        offsets = sorted(offset for each in chosen for offset in each.places.column("offset").to_pylist())
        return self._write({}, offsets, chosen)

    def retry_woken(self) -> TableReceipt | None:
        return self.retry(list(self.receipts[-1].wakes)) if self.receipts[-1].wakes else None

    def rewind(self, offset: int) -> None:
        """The engine reads the log again from an offset; what waits from there on comes with it."""
        self.read = offset
        kept = []
        for each in self.waiting:
            places = each.places.filter(pc.less(each.places.column("offset"), offset))
            if places.num_rows:
                kept.append(replace(each, places=places))
        self.waiting = kept
        self.counts = Counter(before=offset - self.waits)

    def stage(self, offsets: Sequence[int], cut: int = 0) -> tuple[list[Part], list[Outcome]]:
        """Stages records in one task, or in two that are cut at an offset."""
        parts, outcomes = [], []
        for some in ([at for at in offsets if at < cut], [at for at in offsets if at >= cut]):
            if some:
                stager = self.destination.stager(self.folder, {})
                placed = with_places(entries(self.log[at] for at in some), 0, pa.array(some, pa.int64()))
                outcomes.append(stager.add(placed))
                parts += stager.finish()
        return parts, outcomes

    def _write(
        self, ranges: Mapping[int, tuple[int, int]], offsets: Sequence[int], given: Sequence[WaitingRows]
    ) -> TableReceipt | None:
        self.folder.mkdir(exist_ok=True)
        parts, outcomes = self.stage(offsets)
        self.number += 1
        others = [each for each in self.waiting if each not in given]
        names: dict[str, list[str]] = {}
        for each in others:
            names.setdefault(each.group, []).append(each.about)
        batch = Batch("ledger", "state", self.number, ranges, waiting_groups=names, read_upto={0: self.read})
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

    @property
    def waits(self) -> int:
        return sum(int(each.places.num_rows) for each in self.waiting)

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.waiting]
