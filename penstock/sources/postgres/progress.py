"""What the log holds of the source: per table whether its copy is whole, and the last change.

The log itself is the record of it: every entry carries its position, and an append is whole or not at all. A saved
summary spares a restart the reading of the whole log: it says how things stood at some offset, and the entries from
there on say the rest.

Retention takes entries out of closed segments only, and also those of a table that nobody has written to for long. So
the summary is saved, durably, whenever a segment is about to be closed: then it covers all that may ever go.
Compaction keeps the newest entry of every key, which is all that is asked here: a table's newest entry says how far its
copy is, the newest change of all how far the stream is.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.format.log_files import replace_durably
from penstock.log.local import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.record import Header, Mode
from penstock.sources.postgres.catalog.table_layout import Layout
from penstock.sources.postgres.stream_position import ChangePosition, Lsn, Position

SUMMARY_SECONDS = 10.0

_log = logging.getLogger("penstock.postgres")


@dataclass(frozen=True)
class Copied:
    """What the log has of a table."""

    slot: str
    oid: int
    snapshot: Lsn
    """Changes of transactions that committed before are in the copy."""
    complete: bool
    columns: tuple[str, ...] = ()
    """Those of the copy. A key that has others is one that copied rows may not have; empty: they are not known."""


@dataclass
class Book:
    """Kept by whoever appends; true for the log at every moment between two appends."""

    slot: str
    tables: dict[str, Copied] = field(default_factory=dict)
    taken: ChangePosition = field(default_factory=ChangePosition)
    """The last change of all, or where changes begin; those of other slots do not count."""
    system: str = ""
    """Which database cluster it all comes from."""
    makes_slot: bool = False
    """We were about to make the slot: if it is there, it is ours."""
    confirmed: Lsn | None = None
    """How far we may have confirmed the slot; a slot that is further was read by somebody else."""
    forgotten: bool = False
    """The log has lost its beginning, and nothing says what was in it."""

    def has_copy(self, namespace: str, oid: int) -> bool:
        """Whether all rows of the table are in the log, so that its changes can follow."""
        found = self.tables.get(namespace)
        return found is not None and found.complete and (found.slot, found.oid) == (self.slot, oid)

    def followed(self) -> set[str]:
        """The tables whose changes are in the log up to the last one."""
        return {name for name, table in self.tables.items() if table.complete and table.slot == self.slot}

    def has_any(self, namespace: str) -> bool:
        """Whether anything of a table of that name is, or may have been, in the log: a new copy must void it first."""
        return self.forgotten or namespace in self.tables

    def is_used(self) -> bool:
        """Whether anything in the log came by this slot."""
        return self.taken.commit > 0 or any(table.slot == self.slot for table in self.tables.values())

    def begin(self) -> Lsn:
        """From where on the stream is to be taken: the log has every transaction that committed before."""
        copied = (table.snapshot for table in self.tables.values() if table.complete and table.slot == self.slot)
        return max(self.taken.commit, min(copied, default=0))

    def since(self, namespace: str) -> Lsn:
        found = self.tables.get(namespace)
        return 0 if found is None else found.snapshot

    def copied_columns(self, namespace: str) -> frozenset[str]:
        """The columns that all rows of a table had when they were copied; none if that is not known."""
        found = self.tables.get(namespace)
        return frozenset(found.columns if found is not None else ())

    def void_copy(self, namespace: str) -> None:
        """Changes of the table are being missed: if it is to be followed again, it must be copied again."""
        if namespace in self.tables:
            self.tables[namespace] = replace(self.tables[namespace], complete=False)

    def note_copy(self, layout: Layout, snapshot: Lsn, complete: bool) -> None:
        columns = tuple(column.name for column in layout.columns)
        self.tables[layout.namespace] = Copied(self.slot, layout.oid, snapshot, complete, columns)


class Keeper:
    """A book with its summary. Opening it brings the book up to the end of the log."""

    def __init__(self, summary: Path, slot: str, log: LocalLog, writer: PartitionWriter) -> None:
        self._summary = summary
        self._writer = writer
        self._log_identity = log.owner(writer.partition).identity
        bounds = log.bounds(writer.partition)
        offset, self.book = _load(summary, slot, self._log_identity, bounds.end)
        self.book.forgotten = self.book.forgotten or offset < bounds.oldest
        for batch in log.read(writer.partition, offset, bounds.end):
            _read(batch, self.book)
        writer.before_roll = self.save
        self.save()

    def save(self) -> None:
        """Keep how things stand now."""
        book = self.book
        content = {
            "log": self._log_identity,
            "log_offset": self._writer.next_offset,
            "slot": book.slot,
            "system": book.system,
            "forgotten": book.forgotten,
            "makes_slot": book.makes_slot,
            "confirmed": book.confirmed,
            "taken": asdict(book.taken),
            "tables": {namespace: asdict(table) for namespace, table in book.tables.items()},
        }
        self._summary.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(self._summary, json.dumps(content).encode())
        self._saved_at = time.monotonic()

    def save_now_and_then(self) -> None:
        if time.monotonic() - self._saved_at > SUMMARY_SECONDS:
            self.save()


def uses_slot(summary: Path, slot: str) -> bool:
    """Whether a source that has such a summary has read from the slot."""
    try:
        content = json.loads(summary.read_bytes())
        return content["slot"] == slot and content["confirmed"] is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _load(summary: Path, slot: str, log_identity: str, end: int) -> tuple[int, Book]:
    """The summary, and the offset that it is true for; nothing, true for the beginning, if there is none to believe."""
    try:
        content = json.loads(summary.read_bytes())
        offset = int(content["log_offset"])
        tables = {
            namespace: Copied(**{**table, "columns": tuple(table["columns"])})
            for namespace, table in content["tables"].items()
        }
        book = Book(slot, tables, forgotten=bool(content["forgotten"]))
        if content["slot"] == slot:
            book.taken, book.system = ChangePosition(**content["taken"]), str(content["system"])
            book.makes_slot, book.confirmed = bool(content["makes_slot"]), content["confirmed"]
    except FileNotFoundError:
        return 0, Book(slot)
    except (ValueError, KeyError, TypeError) as error:
        _log.warning("%s cannot be read (%s); the log is read from its beginning", summary, error)
        return 0, Book(slot)
    if content["log"] != log_identity or offset > end:
        return 0, Book(slot)  # made for another log
    return offset, book


def _read(batch: pa.RecordBatch, book: Book) -> None:
    """Bring the book up to date: only the last entry of every table in the batch counts, and the last change."""
    names = batch.column("namespace").dictionary_encode()
    codes = names.indices.to_numpy()
    last = np.zeros(len(names.dictionary), np.int64)
    last[codes] = np.arange(len(codes))  # of a repeated index the last assignment counts
    is_change = pc.equal(batch.column("mode"), str(Mode.SYNC)).to_numpy(zero_copy_only=False)
    for code, row in sorted(enumerate(last.tolist()), key=lambda pair: pair[1]):
        namespace = names.dictionary[code].as_py()
        headers = _headers(batch, row)
        position = Position.from_header(headers[Header.POSITION])
        columns = tuple(json.loads(headers.get(Header.COLUMNS, "{}")))
        if position.change is None:
            complete = batch.column("mode")[row].as_py() == Mode.COMPLETE
            book.tables[namespace] = Copied(position.slot, position.table, position.snapshot or 0, complete, columns)
        else:
            _follow(book, namespace, position, columns)
    changes = np.flatnonzero(is_change)
    if len(changes):
        position = Position.from_header(_headers(batch, int(changes[-1]))[Header.POSITION])
        if position.slot == book.slot and position.change is not None:
            book.taken = position.change


def _follow(book: Book, namespace: str, position: Position, columns: tuple[str, ...]) -> None:
    """A change says that the copy before it was whole."""
    known = book.tables.get(namespace)
    if known is not None and (known.slot, known.oid) == (position.slot, position.table):
        book.tables[namespace] = replace(known, complete=True)
    else:
        book.tables[namespace] = Copied(position.slot, position.table, 0, True, columns)


def _headers(batch: pa.RecordBatch, row: int) -> dict[str, str]:
    return dict(batch.column("headers")[row].as_py())
