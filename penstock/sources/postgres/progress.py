"""The progress of the source: per table whether its copy is complete, and the last change that the log has.

The log itself records it: every entry carries its position, and an append happens completely or not at all. A saved
summary spares a restart from reading the whole log: it holds the progress at some offset, and the entries from there
on give the rest.

Retention removes entries from closed segments only, also those of a table that has not changed for long. So the
summary is saved, durably, whenever a segment is about to be closed: then it covers everything that may ever be removed.
Compaction keeps the newest entry of every key, which is enough here: a table's newest entry says how far its copy is,
and the newest change of all says how far the stream is.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.format.log_files import replace_durably
from penstock.log.local_log import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.record import Header, Mode
from penstock.sources.postgres.catalog.table_layout import Layout
from penstock.sources.postgres.stream_position import ChangePosition, Lsn, Position

SUMMARY_SECONDS = 10.0

_log = logging.getLogger("penstock.postgres")


@dataclass(frozen=True)
class CopiedColumn:
    """A column as it was when its table was copied, or when it came to the table later."""

    name: str
    type: str = ""
    """By ``format_type()``; empty: not known."""
    number: int = 0
    """The catalog's; 0: not known."""


@dataclass(frozen=True)
class CopiedTable:
    """What the log has of a table."""

    slot: str
    oid: int
    snapshot: Lsn
    """The copy has the changes of all transactions that committed before it."""
    complete: bool
    columns: tuple[CopiedColumn, ...] = ()
    """The columns of the copy, and those that came later; empty: not known."""
    membership: str = ""
    """What made the table published when it was copied; empty: not known."""


@dataclass
class SourceProgress:
    """Whoever appends keeps it up to date; between two appends it always describes the log."""

    slot: str
    tables: dict[str, CopiedTable] = field(default_factory=dict)
    taken: ChangePosition = field(default_factory=ChangePosition)
    """The last change of all, or where changes begin; changes of other slots do not count."""
    system: str = ""
    """The identifier of the database cluster."""
    timeline: int = 0
    """The timeline of the cluster that the newest records come from; 0: not known."""
    makes_slot: bool = False
    """We were about to create the slot: if it exists, it is ours."""
    confirmed: Lsn | None = None
    """How far we may have confirmed the slot; if the slot is further, somebody else has read it."""
    forgotten: bool = False
    """The log has lost its beginning, and no summary says what was in it."""

    def has_copy(self, namespace: str, oid: int) -> bool:
        """Whether all rows of the table are in the log, so that its changes can follow."""
        found = self.tables.get(namespace)
        return found is not None and found.complete and (found.slot, found.oid) == (self.slot, oid)

    def followed_tables(self) -> set[str]:
        """The tables of which the log has every change so far."""
        return {name for name, table in self.tables.items() if table.complete and table.slot == self.slot}

    def may_have_entries(self, namespace: str) -> bool:
        """Whether the log has, or may have had, entries of a table of that name: a new copy must void them first."""
        return self.forgotten or namespace in self.tables

    def is_used(self) -> bool:
        """Whether anything in the log came by this slot."""
        return self.taken.commit > 0 or any(table.slot == self.slot for table in self.tables.values())

    def start_lsn(self) -> Lsn:
        """Where to start the stream: the log has every transaction that committed before."""
        copied = (table.snapshot for table in self.tables.values() if table.complete and table.slot == self.slot)
        return max(self.taken.commit, min(copied, default=0))

    def newest_lsn(self) -> Lsn:
        """The log has something of the server's history up to here."""
        copied = (table.snapshot for table in self.tables.values() if table.slot == self.slot)
        return max(self.taken.commit, *copied, 0)

    def snapshot_lsn(self, namespace: str) -> Lsn:
        found = self.tables.get(namespace)
        return 0 if found is None else found.snapshot

    def copied_columns(self, namespace: str) -> tuple[CopiedColumn, ...]:
        """The columns of which the log has values of this table; none if that is not known."""
        found = self.tables.get(namespace)
        return found.columns if found is not None else ()

    def void_copy(self, namespace: str) -> None:
        """Changes of the table are being missed: it must be copied again before it can be followed again."""
        if namespace in self.tables:
            self.tables[namespace] = replace(self.tables[namespace], complete=False)

    def note_membership(self, namespace: str, membership: str) -> bool:
        """Note what makes a table published now; whether it was something else when the table was copied."""
        known = self.tables[namespace].membership
        self.tables[namespace] = replace(self.tables[namespace], membership=membership)
        return known not in ("", membership)

    def note_columns(self, layout: Layout) -> bool:
        """Note the columns that a copied table has now, beside those that it had; whether any of that is new."""
        known = self.tables[layout.namespace]
        now = {column.name: CopiedColumn(column.name, column.type, column.number) for column in layout.columns}
        columns = tuple({**{column.name: column for column in known.columns}, **now}.values())
        self.tables[layout.namespace] = replace(known, columns=columns)
        return columns != known.columns

    def note_copy(self, layout: Layout, snapshot: Lsn, complete: bool, membership: str = "") -> None:
        columns = tuple(CopiedColumn(column.name, column.type, column.number) for column in layout.columns)
        self.tables[layout.namespace] = CopiedTable(self.slot, layout.oid, snapshot, complete, columns, membership)


class ProgressStore:
    """The progress and its summary file. Opening it brings the progress up to the end of the log."""

    def __init__(self, summary: Path, slot: str, log: LocalLog, writer: PartitionWriter) -> None:
        self._summary = summary
        self._writer = writer
        self._log_identity = log.owner(writer.partition).identity
        bounds = log.bounds(writer.partition)
        usable, offset, self.progress = _load(summary, slot, self._log_identity, bounds.end)
        self.progress.forgotten = self.progress.forgotten or offset < bounds.oldest
        for batch in log.read(writer.partition, offset, bounds.end):
            _apply_entries(batch, self.progress)
        if not usable:
            self._void_all_copies()
        writer.before_roll = self.save
        self.save()

    def _void_all_copies(self) -> None:
        """Without the summary nobody knows what the log does not say: whether the slot is where we left it, and whether
        columns are still those that were copied. So what the log has may lack something."""
        for namespace in self.progress.followed_tables():
            _log.warning("how far the slot was read is not known any more: %s must be copied again", namespace)
            self.progress.void_copy(namespace)

    def save(self) -> None:
        """Save the summary, durably."""
        progress = self.progress
        content = {
            "log": self._log_identity,
            "log_offset": self._writer.next_offset,
            "slot": progress.slot,
            "system": progress.system,
            "timeline": progress.timeline,
            "forgotten": progress.forgotten,
            "makes_slot": progress.makes_slot,
            "confirmed": progress.confirmed,
            "taken": asdict(progress.taken),
            "tables": {namespace: asdict(table) for namespace, table in progress.tables.items()},
        }
        self._summary.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(self._summary, json.dumps(content).encode())
        self._saved_at = time.monotonic()

    def save_if_due(self) -> None:
        if time.monotonic() - self._saved_at > SUMMARY_SECONDS:
            self.save()


def uses_slot(summary: Path, slot: str) -> bool:
    """Whether the source with this summary has read from the slot."""
    try:
        content = json.loads(summary.read_bytes())
        return content["slot"] == slot and content["confirmed"] is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _load(summary: Path, slot: str, log_identity: str, end: int) -> tuple[bool, int, SourceProgress]:
    """Whether there is a usable summary, the offset that it is valid for, and the progress in it; without one, empty
    progress at offset 0."""
    try:
        content = json.loads(summary.read_bytes())
        offset = int(content["log_offset"])
        tables = {
            namespace: CopiedTable(**{**table, "columns": tuple(map(_copied_column, table["columns"]))})
            for namespace, table in content["tables"].items()
        }
        progress = SourceProgress(slot, tables, forgotten=bool(content["forgotten"]))
        if content["slot"] == slot:
            progress.taken, progress.system = ChangePosition(**content["taken"]), str(content["system"])
            progress.timeline = int(content.get("timeline", 0))  # a file of an earlier release has none
            progress.makes_slot, progress.confirmed = bool(content["makes_slot"]), content["confirmed"]
    except FileNotFoundError:
        return False, 0, SourceProgress(slot)
    except (ValueError, KeyError, TypeError) as error:
        _log.warning("%s cannot be read (%s); the log is read from its beginning", summary, error)
        return False, 0, SourceProgress(slot)
    if content["log"] != log_identity or offset > end:
        return False, 0, SourceProgress(slot)  # made for another log
    return True, offset, progress


def _copied_column(saved: dict[str, Any] | str) -> CopiedColumn:
    """A column of the summary. Earlier releases saved names only."""
    return CopiedColumn(saved) if isinstance(saved, str) else CopiedColumn(**saved)


def _apply_entries(batch: pa.RecordBatch, progress: SourceProgress) -> None:
    """Apply a batch to the progress: only the last entry of every table and the last change count."""
    names = batch.column("namespace").dictionary_encode()
    codes = names.indices.to_numpy()
    last = np.zeros(len(names.dictionary), np.int64)
    last[codes] = np.arange(len(codes))  # the last assignment to an index wins
    is_change = pc.equal(batch.column("mode"), str(Mode.SYNC)).to_numpy(zero_copy_only=False)
    for code, row in sorted(enumerate(last.tolist()), key=lambda pair: pair[1]):
        namespace = names.dictionary[code].as_py()
        headers = _headers(batch, row)
        position = Position.from_header(headers[Header.POSITION])
        columns = tuple(CopiedColumn(*column) for column in json.loads(headers.get(Header.COLUMNS, "{}")).items())
        if position.change is None:
            complete = batch.column("mode")[row].as_py() == Mode.COMPLETE
            progress.tables[namespace] = CopiedTable(
                position.slot, position.table, position.snapshot or 0, complete, columns
            )
        else:
            _apply_change(progress, namespace, position, columns)
    changes = np.flatnonzero(is_change)
    if len(changes):
        position = Position.from_header(_headers(batch, int(changes[-1]))[Header.POSITION])
        if position.slot == progress.slot and position.change is not None:
            progress.taken = position.change


def _apply_change(
    progress: SourceProgress, namespace: str, position: Position, columns: tuple[CopiedColumn, ...]
) -> None:
    """A change implies that the copy before it was complete."""
    known = progress.tables.get(namespace)
    if known is not None and (known.slot, known.oid) == (position.slot, position.table):
        progress.tables[namespace] = replace(known, complete=True)
    else:
        progress.tables[namespace] = CopiedTable(position.slot, position.table, 0, True, columns)


def _headers(batch: pa.RecordBatch, row: int) -> dict[str, str]:
    return dict(batch.column("headers")[row].as_py())
