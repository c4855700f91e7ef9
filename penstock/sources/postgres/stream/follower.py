"""Follows changes: turns what the server sends into entries, and confirms it once the log has them.

The server sends complete transactions in the order of their commits. A buffer of messages is one append, and may end
inside a transaction. What the server sends again after a break is recognised by its position and skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock import faults
from penstock.errors import PenstockError
from penstock.sources.postgres.catalog.table_layout import Layout, Packed, pack
from penstock.sources.postgres.log_sink import Sink
from penstock.sources.postgres.progress import SourceProgress
from penstock.sources.postgres.rows.row_entries import LARGEST_ROW, fitting, too_large
from penstock.sources.postgres.rows.row_json import keys_only
from penstock.sources.postgres.rows.scratch import Scratch
from penstock.sources.postgres.stream.change_entries import change_entries, keys_as_entries
from penstock.sources.postgres.stream.pgoutput import (
    WAL_HEADER_BYTES,
    Changes,
    KnownRelations,
    Scan,
    StopReason,
    StreamCursor,
)
from penstock.sources.postgres.stream.relations import Relation, parse_relation
from penstock.sources.postgres.stream.server_history import ResentTransaction
from penstock.sources.postgres.stream.walsender import LARGE_BYTES, Message, Walsender
from penstock.sources.postgres.stream_position import ChangePosition, Lsn

BUFFER_BYTES = LARGE_BYTES
LINGER_SECONDS = 0.02
"""How long a change may wait for more changes: each append costs a disk sync."""
IDLE_SECONDS = 0.2


class Tables(Protocol):
    """What the stream asks about tables."""

    def wanted_layout(self, relation: Relation) -> Layout | None:
        """The layout by which a relation's rows become records; None: its changes are not wanted."""

    def has_outgrown_copy(self, relation: Relation) -> bool:
        """Whether changes cannot be applied, from here on, to the rows that were copied."""

    def void_table(self, namespace: str) -> None:
        """Note in the log that changes of a table are missed from here on."""


class Decoder:
    """Decodes the messages of one session into entries. Remembers the relations that the server has described."""

    def __init__(self, progress: SourceProgress, tables: Tables) -> None:
        self.cursor = StreamCursor.after(progress.taken)
        self._progress = progress
        self._tables = tables
        self._scratch = Scratch()
        self._layouts: list[Layout] = []
        self._packed: Packed | None = None
        self._relations: dict[int, tuple[int, int, Lsn]] = {}
        """Per relation: how many columns it has, which layout (-1: not wanted), and since when its changes count."""
        self._known = _known({})

    def decode(self, messages: list[Message]) -> Iterator[tuple[pa.RecordBatch, ChangePosition]]:
        """Entries for the messages, and the position of each batch's last entry. A batch is valid until the next."""
        buffer = np.frombuffer(b"".join(messages), np.uint8)
        starts = np.zeros(len(messages) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)), out=starts[1:])
        scan = Scan(buffer, starts, self.cursor, self._scratch)
        while (found := scan.advance(self._known))[0] is not StopReason.END:
            why, place = found
            message = bytes(messages[int(np.searchsorted(starts, place))])[WAL_HEADER_BYTES:]
            if why is StopReason.UNKNOWN:
                raise PenstockError(
                    "PEN-PGS-018",
                    f"the server sent a message that is not understood: {message[:40]!r}.",
                    "Nothing of it was taken or confirmed. Please report it.",
                )
            relation = parse_relation(message)
            if self._is_new(relation) and self._tables.has_outgrown_copy(relation):
                # Append the earlier changes before the entry that voids the table.
                yield from self._entries(scan.changes())
                self._tables.void_table(relation.namespace)
            self._register_relation(relation)
        yield from self._entries(scan.changes())

    def _is_new(self, relation: Relation) -> bool:
        """Whether it describes changes that neither the log nor the copy has; the server repeats descriptions."""
        here = self.cursor.here
        return here.commit >= self._progress.snapshot_lsn(relation.namespace) and here > self._progress.taken

    def _entries(self, changes: Changes) -> Iterator[tuple[pa.RecordBatch, ChangePosition]]:
        if not len(changes.op):
            return
        if self._packed is None:
            self._packed = pack(self._layouts, self._progress.slot)
        if len(changes.fields.text) > LARGEST_ROW:  # a single message
            small = changes._replace(fields=keys_only([changes.rows, changes.old_rows], changes.fields, self._packed))
            batch = keys_as_entries(small, self._layouts, self._packed, self._scratch)
            pieces = iter([too_large(batch, len(changes.fields.text))])
        else:
            pieces = fitting(change_entries(changes, self._layouts, self._packed, self._scratch))
        done = 0
        for piece in pieces:
            done += piece.num_rows
            last = done - 1
            yield piece, ChangePosition(int(changes.commit[last]), int(changes.number[last]), int(changes.time[last]))

    def _register_relation(self, relation: Relation) -> None:
        layout = self._tables.wanted_layout(relation)
        number = -1
        since = 0
        if layout is not None:
            since = self._progress.snapshot_lsn(layout.namespace)
            if layout not in self._layouts:
                self._layouts.append(layout)
                self._packed = None
            number = self._layouts.index(layout)
        self._relations[relation.oid] = len(relation.columns), number, since
        self._known = _known(self._relations)


class Stream:
    """Appends what a started walsender sends to the log, until there is a reason to stop."""

    def __init__(
        self,
        walsender: Walsender,
        decoder: Decoder,
        progress: SourceProgress,
        sink: Sink,
        confirming: Callable[[Lsn], None],
        resent: ResentTransaction,
    ) -> None:
        """``confirming`` is called with each position before it is confirmed to the server; ``resent`` with all
        messages before they are appended."""
        self._confirming = confirming
        self._resent = resent
        self._walsender = walsender
        self._decoder = decoder
        self._progress = progress
        self._sink = sink

    @property
    def reached(self) -> Lsn:
        """Everything that the server has for us before this position was appended."""
        return max(self._decoder.cursor.end, self._walsender.idle_at)

    def follow(self, stopping: Event, pause: Callable[[], bool], until: Lsn | None) -> bool:
        """Append changes until we are told to stop, ``pause`` returns true, or ``until`` is reached; whether it was.

        Raises ``PenstockError`` if the server has another history than the log.
        """
        there = False
        while not stopping.is_set():
            messages = self._gather()
            self._resent.check(messages, self._walsender.idle_at)
            if messages:
                self._append(messages)
            there = until is not None and self.reached >= until
            if there:
                break
            if self._walsender.is_due():
                self._confirm(ask=until is not None)
                faults.reach("postgres.stream.confirmed")
            if not self._decoder.cursor.inside and pause():
                break
        self._confirm()
        self._walsender.finish()
        return there

    def _confirm(self, ask: bool = False) -> None:
        lsn = max(self._walsender.confirmed, self._sink.durable_lsn(self.reached))
        self._confirming(lsn)
        self._walsender.confirm(lsn, ask)

    def _gather(self) -> list[Message]:
        """The messages that arrive within a short time, up to a full buffer."""
        messages: list[Message] = []
        size = 0
        deadline = time.monotonic() + IDLE_SECONDS
        while size < BUFFER_BYTES:
            taken = self._walsender.read(messages, BUFFER_BYTES - size, self._decoder.cursor.inside)
            if taken and not size:
                deadline = time.monotonic() + LINGER_SECONDS
            size += taken
            left = deadline - time.monotonic()
            if left <= 0 or (self._walsender.is_due() and not messages):
                break
            if not taken:
                self._walsender.wait(left)
        return messages

    def _append(self, messages: list[Message]) -> None:
        for batch, position in self._decoder.decode(messages):
            body = self._sink.prepare(batch)
            faults.reach("postgres.stream.prepared")
            self._sink.write(body, meanwhile=lambda: self._walsender.confirm(self._walsender.confirmed))
            self._progress.taken = position
            faults.reach("postgres.stream.appended")


def _known(relations: dict[int, tuple[int, int, Lsn]]) -> KnownRelations:
    ordered = sorted(relations.items())
    return KnownRelations(
        np.array([oid for oid, _ in ordered], np.int64),
        np.array([columns for _, (columns, _, _) in ordered], np.int32),
        np.array([layout for _, (_, layout, _) in ordered], np.int32),
        np.array([since for _, (_, _, since) in ordered], np.int64),
    )
