"""Stages events, each serialised once, by session. What can never be sent fails here, before anything is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.destinations.contract import Part, RecordIds, Stager
from penstock.destinations.dataset.event_mapping import BrokenRule, EventMapper
from penstock.destinations.sending.keyed_rows import KeyedRow, KeyedRowFile
from penstock.outcome import PLACE_COLUMNS, Outcome, failure_batch
from penstock.record import int64_values

TABLE = "events"
ROWS_AT_ONCE = 256
"""So many are taken out of Arrow together."""


class EventStager(Stager):
    def __init__(self, directory: Path, mapper: EventMapper) -> None:
        self._mapper = mapper
        self._file = KeyedRowFile(directory, TABLE)
        self._trimmed = 0

    def identify(self, ids: RecordIds) -> None:
        self._mapper = replace(self._mapper, record_id=ids.id_of)

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        # Event by event: names are made of paths, and only Python can take objects apart that differ from each other.
        kept = np.zeros(batch.num_rows, bool)
        failures: list[tuple[int, int, int, str, str]] = []
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            self._add(batch.slice(start, ROWS_AT_ONCE), kept[start : start + ROWS_AT_ONCE], failures)
        skipped = batch.num_rows - int(kept.sum()) - len(failures)
        return Outcome(batch if kept.all() else batch.filter(pa.array(kept)), skipped, failure_batch(failures))

    def _add(
        self, batch: pa.RecordBatch, kept: npt.NDArray[np.bool_], failures: list[tuple[int, int, int, str, str]]
    ) -> None:
        places = zip(*(batch.column(name).to_pylist() for name in PLACE_COLUMNS), strict=True)
        times = int64_values(batch.column("timestamp")).tolist()
        for row, (place, data, came) in enumerate(zip(places, batch.column("data").to_pylist(), times, strict=True)):
            if not data:
                continue
            try:
                event = self._mapper.map_event(data, came, place)
            except BrokenRule as broken:
                failures.append((*place, broken.code, broken.message))
                continue
            kept[row] = True
            self._trimmed += event.is_trimmed
            definitions = event.thread, event.log
            self._file.add(KeyedRow(place, event.key, event.session_info, event.body, definitions))

    def finish(self) -> list[Part]:
        return [replace(part, header=str(self._trimmed)) for part in self._file.finish()]
