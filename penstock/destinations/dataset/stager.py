"""Stages events, each serialised once, by session. What can never be sent fails here, before anything is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Part, RecordIds, Stager
from penstock.destinations.dataset.event_mapping import BrokenRule, EventMapper
from penstock.destinations.dataset.plain_events import PlainEvents
from penstock.destinations.sending.staged.keyed_row_file import KeyedRow, KeyedRowFile
from penstock.outcome import PLACE_COLUMNS, Outcome, failure_batch
from penstock.record import int64_array, int64_values

TABLE = "events"
ROWS_AT_ONCE = 256
"""So many are taken out of Arrow together."""
_SEPARATOR = b","


class EventStager(Stager):
    def __init__(self, directory: Path, mapper: EventMapper) -> None:
        self._mapper = mapper
        self._plain_events = PlainEvents(mapper)
        self._file = KeyedRowFile(directory, TABLE)
        self._trimmed = 0

    def identify(self, ids: RecordIds) -> None:
        self._mapper = replace(self._mapper, record_id=ids.id_of)
        self._plain_events = PlainEvents(self._mapper)

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        has_data = pc.fill_null(pc.greater(pc.binary_length(batch.column("data")), 0), False)
        kept = has_data.to_numpy(zero_copy_only=False).copy()
        block, is_mapped = self._plain_events.map(batch, kept)
        if block is not None:
            self._file.add_block(block)
        failures: list[tuple[int, int, int, str, str]] = []
        unusual = np.flatnonzero(kept & ~is_mapped)
        for start in range(0, len(unusual), ROWS_AT_ONCE):
            rows = unusual[start : start + ROWS_AT_ONCE]
            kept[rows] = self._add_one_by_one(batch.take(int64_array(rows)), failures)
        skipped = batch.num_rows - int(kept.sum()) - len(failures)
        return Outcome(batch if kept.all() else batch.filter(pa.array(kept)), skipped, failure_batch(failures))

    def finish(self) -> list[Part]:
        return [replace(part, header=str(self._trimmed)) for part in self._file.finish()]

    def _add_one_by_one(self, batch: pa.RecordBatch, failures: list[tuple[int, int, int, str, str]]) -> list[bool]:
        """Stage what is not plain; returns what was."""
        # Event by event: only Python can take objects apart that differ from each other.
        kept = []
        places = zip(*(batch.column(name).to_pylist() for name in PLACE_COLUMNS), strict=True)
        times = int64_values(batch.column("timestamp")).tolist()
        for place, data, came in zip(places, batch.column("data").to_pylist(), times, strict=True):
            try:
                event = self._mapper.map_event(data, came, place)
            except BrokenRule as broken:
                failures.append((*place, broken.code, broken.message))
                kept.append(False)
                continue
            kept.append(True)
            self._trimmed += event.is_trimmed
            definitions = event.thread, event.log
            self._file.add(KeyedRow(place, event.key, event.session_info, event.body + _SEPARATOR, definitions))
        return kept
