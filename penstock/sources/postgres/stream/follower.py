"""Following changes: what the server sends becomes entries, and is confirmed once the log has them.

Transactions come whole and in the order of their commits, but not in one piece: a buffer of messages is one append, and
may end inside a transaction. What the server sends again after a break is known by its position and passed over.
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
from penstock.sources.postgres.progress import Book
from penstock.sources.postgres.rows.row_entries import LARGEST_ROW, fitting, too_large
from penstock.sources.postgres.rows.row_json import keys_only
from penstock.sources.postgres.rows.scratch import Scratch
from penstock.sources.postgres.stream.change_entries import change_entries, keys_as_entries
from penstock.sources.postgres.stream.pgoutput import WAL_HEADER_BYTES, Changes, Known, Progress, Scan, Why
from penstock.sources.postgres.stream.relations import Relation, parse_relation
from penstock.sources.postgres.stream.walsender import LARGE_BYTES, Message, Walsender
from penstock.sources.postgres.stream_position import ChangePosition, Lsn

BUFFER_BYTES = LARGE_BYTES
LINGER_SECONDS = 0.02
"""How long a change may wait for company: each append costs a sync of the disk."""
IDLE_SECONDS = 0.2


class Tables(Protocol):
    """What the stream asks of whoever knows the tables."""

    def describe(self, relation: Relation) -> Layout | None:
        """How a relation's rows become records; None: its changes are not wanted."""

    def outgrew_copy(self, relation: Relation) -> bool:
        """Whether changes name rows, from here on, by what the copied ones may not have."""

    def leave(self, namespace: str) -> None:
        """Put it into the log that changes of a table are missed from here on."""


class Decoder:
    """Messages of one session to entries. Keeps what the server has said of relations."""

    def __init__(self, book: Book, tables: Tables) -> None:
        self.progress = Progress.after(book.taken)
        self._book = book
        self._tables = tables
        self._scratch = Scratch()
        self._layouts: list[Layout] = []
        self._packed: Packed | None = None
        self._relations: dict[int, tuple[int, int, Lsn]] = {}
        """Per relation: how many columns it has, which layout (-1: not wanted), and since when its changes count."""
        self._known = _known({})

    def decode(self, messages: list[Message]) -> Iterator[tuple[pa.RecordBatch, ChangePosition]]:
        """Entries for the messages, and the position of the last of each batch. A batch is good until the next."""
        buffer = np.frombuffer(b"".join(messages), np.uint8)
        starts = np.zeros(len(messages) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)), out=starts[1:])
        scan = Scan(buffer, starts, self.progress, self._scratch)
        while (found := scan.go_on(self._known))[0] is not Why.END:
            why, place = found
            message = bytes(messages[int(np.searchsorted(starts, place))])[WAL_HEADER_BYTES:]
            if why is Why.UNKNOWN:
                raise PenstockError(
                    "PEN-PGS-018",
                    f"the server sent a message that is not understood: {message[:40]!r}.",
                    "Nothing of it was taken or confirmed. Please report it.",
                )
            relation = parse_relation(message)
            if self._is_news(relation) and self._tables.outgrew_copy(relation):
                # What came before is taken before anything is said of what comes.
                yield from self._entries(scan.changes())
                self._tables.leave(relation.namespace)
            self._meet(relation)
        yield from self._entries(scan.changes())

    def _is_news(self, relation: Relation) -> bool:
        """Whether it is said of changes that neither the log nor the table's copy has; the server repeats itself."""
        here = self.progress.here
        return here.commit >= self._book.since(relation.namespace) and here > self._book.taken

    def _entries(self, changes: Changes) -> Iterator[tuple[pa.RecordBatch, ChangePosition]]:
        if not len(changes.op):
            return
        if self._packed is None:
            self._packed = pack(self._layouts, self._book.slot)
        if len(changes.fields.text) > LARGEST_ROW:  # a single message
            small = changes._replace(fields=keys_only([changes.rows, changes.old_rows], changes.fields, self._packed))
            batch = keys_as_entries(small, self._layouts, self._packed, self._scratch)
            pieces = iter([too_large(batch, len(changes.fields.text))])
        else:
            pieces = fitting(change_entries(changes, self._layouts, self._packed, self._scratch))
        done = 0
        for piece in pieces:
            done += piece.num_rows
            yield piece, ChangePosition(int(changes.commit[done - 1]), int(changes.number[done - 1]))

    def _meet(self, relation: Relation) -> None:
        layout = self._tables.describe(relation)
        number = -1
        since = 0
        if layout is not None:
            since = self._book.since(layout.namespace)
            if layout not in self._layouts:
                self._layouts.append(layout)
                self._packed = None
            number = self._layouts.index(layout)
        self._relations[relation.oid] = len(relation.columns), number, since
        self._known = _known(self._relations)


class Stream:
    """From a started walsender into the log, until there is a reason to stop."""

    def __init__(
        self, walsender: Walsender, decoder: Decoder, book: Book, sink: Sink, confirming: Callable[[Lsn], None]
    ) -> None:
        """``confirming`` is told how far the server is about to hear that we are."""
        self._confirming = confirming
        self._walsender = walsender
        self._decoder = decoder
        self._book = book
        self._sink = sink

    @property
    def reached(self) -> Lsn:
        """Everything that the server has for us before this place was appended."""
        return max(self._decoder.progress.end, self._walsender.idle_at)

    def follow(self, stopping: Event, pause: Callable[[], bool], until: Lsn | None) -> bool:
        """Take changes until we are to stop, ``pause`` says so, or ``until`` is reached; whether it was."""
        there = False
        while not stopping.is_set():
            messages = self._gather()
            if messages:
                self._take(messages)
            there = until is not None and self.reached >= until
            if there:
                break
            if self._walsender.is_due():
                self._confirm(ask=until is not None)
                faults.reach("postgres.stream.confirmed")
            if not self._decoder.progress.inside and pause():
                break
        self._confirm()
        self._walsender.finish()
        return there

    def _confirm(self, ask: bool = False) -> None:
        lsn = max(self._walsender.confirmed, self._sink.durable(self.reached))
        self._confirming(lsn)
        self._walsender.confirm(lsn, ask)

    def _gather(self) -> list[Message]:
        """What comes within a short while, up to a buffer full."""
        messages: list[Message] = []
        size = 0
        deadline = time.monotonic() + IDLE_SECONDS
        while size < BUFFER_BYTES:
            taken = self._walsender.read(messages, BUFFER_BYTES - size, self._decoder.progress.inside)
            if taken and not size:
                deadline = time.monotonic() + LINGER_SECONDS
            size += taken
            left = deadline - time.monotonic()
            if left <= 0 or (self._walsender.is_due() and not messages):
                break
            if not taken:
                self._walsender.wait(left)
        return messages

    def _take(self, messages: list[Message]) -> None:
        for batch, position in self._decoder.decode(messages):
            body = self._sink.prepare(batch)
            faults.reach("postgres.stream.prepared")
            self._sink.put(body, meanwhile=lambda: self._walsender.confirm(self._walsender.confirmed))
            self._book.taken = position
            faults.reach("postgres.stream.appended")


def _known(relations: dict[int, tuple[int, int, Lsn]]) -> Known:
    ordered = sorted(relations.items())
    return Known(
        np.array([oid for oid, _ in ordered], np.int64),
        np.array([columns for _, (columns, _, _) in ordered], np.int32),
        np.array([layout for _, (_, layout, _) in ordered], np.int32),
        np.array([since for _, (_, _, since) in ordered], np.int64),
    )
