"""From records to typed files, inside a task: choose the table, flatten, write Arrow files per table.

Each staged row carries its place in the log, so that a refused row can be named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Part, Stager
from penstock.destinations.sql.stage.table_files import CreateFile, HeldRows, TableFiles, create_arrow_file
from penstock.destinations.sql.stage.table_name import TableChooser
from penstock.flatten.table import Flattened, flatten_pieces
from penstock.outcome import FAILURE_SCHEMA, NO_FAILURES, PLACE_COLUMNS, Outcome, failures_of, place_key
from penstock.record import Op
from penstock.steps.outcomes import settle

PARTITION = "@partition"
OFFSET = "@offset"
ITEM = "@item"
"""The columns of a row's place in the log. No data column has such a name: those are letters, digits and ``_``."""
PLACE = [PARTITION, OFFSET, ITEM]

_ROW_OPS = pa.array([Op.INSERT, Op.UPDATE], pa.string())


HELD_BYTES = 96 << 20
"""How much a task holds back over all tables before it writes, so that many small pieces of a table become one."""


class TypedStager(Stager):
    """Stages the flattened data of each record that is a row (an insert or update), for the table that ``names``
    chooses. Other records are skipped: only mirrors remove rows."""

    def __init__(
        self,
        directory: Path,
        names: TableChooser,
        casts: Mapping[str, str],
        max_name: int,
        create: CreateFile = create_arrow_file,
        with_places: bool = True,
        infer_timestamps: bool = False,
    ) -> None:
        self._directory = directory
        self._names = names
        self._casts = casts
        self._max_name = max_name
        self._create = create
        self._with_places = with_places
        self._infer_timestamps = infer_timestamps
        self._tables: dict[str, TableFiles] = {}

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        is_row = pc.is_in(batch.column("op"), _ROW_OPS)
        if is_row.false_count:
            outcome = self._add(batch.filter(is_row), read)
            return replace(outcome, skipped=outcome.skipped + is_row.false_count)
        return self._add(batch, read)

    def _add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        taken = np.zeros(batch.num_rows, np.bool_)
        failures: list[pa.RecordBatch] = []
        for choice in self._names.choose(self._naming_data(batch, read)):
            rows = batch if choice.rows is None else batch.take(pa.array(choice.rows))
            if choice.problem:
                failures.append(failures_of(rows, choice.code, choice.problem))
            elif choice.table:
                for first, flat in self._flattened(rows.column("data")):
                    piece = rows.slice(first, len(flat.rows) + len(flat.empty) + len(flat.failures))
                    failures.append(_unreadable(piece, flat))
                    if len(flat.rows):
                        self._append(choice.table, piece.select(PLACE_COLUMNS), flat)
                        kept = flat.rows.to_numpy() + first
                        taken[kept if choice.rows is None else choice.rows[kept]] = True
        flush_many(self._tables.values())
        return settle(batch, taken, failures)

    def finish(self) -> list[Part]:
        return [part for files in self._tables.values() for part in files.finish()]

    def _naming_data(self, batch: pa.RecordBatch, read: pa.RecordBatch | None) -> pa.Array:
        """The data that the table is chosen by: each record as it was read from the log, before any step."""
        if self._names.fixed or read is None or read is batch:
            return batch.column("data")
        return read.column("data").take(pc.index_in(place_key(batch), value_set=place_key(read)))

    def _flattened(self, data: pa.Array) -> Iterator[tuple[int, Flattened]]:
        return flatten_pieces(data, self._casts, self._max_name, self._infer_timestamps, keep_json=self._with_places)

    def _append(self, table: str, places: pa.RecordBatch, flat: Flattened) -> None:
        if len(flat.rows) != places.num_rows:
            places = places.take(flat.rows)
        rows = flat.table
        if self._with_places:
            for name, column in zip(PLACE, places.columns, strict=True):
                rows = rows.append_column(name, column)
        files = self._tables.get(table)
        if files is None:
            files = self._tables[table] = TableFiles(self._directory, table, self._create)
        files.append(rows, flat.columns, places)


def flush_many(tables: Collection[HeldRows]) -> None:
    """Write what is held of all tables, if it is much."""
    if sum(files.held_bytes for files in tables) > HELD_BYTES:
        for files in tables:
            files.flush()


def _unreadable(rows: pa.RecordBatch, flat: Flattened) -> pa.RecordBatch:
    if not flat.failures:
        return NO_FAILURES
    records = pa.array([problem.record for problem in flat.failures], pa.int64())
    codes = pa.array([problem.code for problem in flat.failures], pa.string())
    messages = pa.array([problem.message for problem in flat.failures], pa.string())
    places = rows.select(PLACE_COLUMNS).take(records)
    return pa.RecordBatch.from_arrays([*places.columns, codes, messages], schema=FAILURE_SCHEMA)
