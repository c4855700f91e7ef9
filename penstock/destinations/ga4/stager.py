"""Stages records as events, a line each, inside a task. What breaks a rule fails here, before anything is sent."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.destinations.contract import Part, Stager
from penstock.destinations.ga4.event_mapping import BrokenRule, Mapper
from penstock.destinations.ga4.staged_events import staged_line
from penstock.outcome import PLACE_COLUMNS, Outcome, failure_batch

TABLE = "ga4"


class EventStager(Stager):
    def __init__(self, directory: Path, mapper: Mapper) -> None:
        self._path = directory / f"{uuid.uuid4().hex}.ndjson"
        self._mapper = mapper
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int, int] | None = None
        self._nth = 0
        self._rows = 0

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        # Record by record: each is checked by many rules, and the network is slower than this.
        kept = np.zeros(batch.num_rows, bool)
        failures: list[tuple[int, int, int, str, str]] = []
        lines: list[str] = []
        columns = [batch.column(name).to_pylist() for name in (*PLACE_COLUMNS, "data", "timestamp")]
        for row, (partition, offset, item, data, came) in enumerate(zip(*columns, strict=True)):
            # Rows of one item, which a step in Spark has made, are adjacent, and are numbered from 0 at every try.
            self._nth = self._nth + 1 if (partition, offset, item) == self._last else 0
            self._last = partition, offset, item
            if not data:
                continue
            try:
                event = self._mapper.event(data, came)
            except BrokenRule as broken:
                failures.append((partition, offset, item, broken.code, broken.message))
                continue
            if event is not None:
                kept[row] = True
                place = (partition, offset, item, self._nth)
                lines.append(staged_line(place, event))
                self._first = self._first or (partition, offset)
        if lines:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
            self._rows += len(lines)
        skipped = batch.num_rows - len(lines) - len(failures)
        return Outcome(batch.filter(pa.array(kept)), skipped, failure_batch(failures))

    def finish(self) -> list[Part]:
        return [] if self._first is None else [Part(TABLE, str(self._path), self._rows, *self._first)]
