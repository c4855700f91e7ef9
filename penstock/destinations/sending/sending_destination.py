"""A destination that sends rows by key: one request in flight per key, over all batches, retries and engines.

A key that fails does not hold up its batch: the batch commits, and its rows wait in the log. New rows of a key of which
some wait do so behind them. Once the oldest are accepted, the others follow at once.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock import faults
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    OF_ALL,
    Batch,
    Capabilities,
    ConfigT,
    Destination,
    FailingRows,
    Part,
    Receipt,
    TableBook,
    TableReceipt,
    WaitingRows,
)
from penstock.destinations.sending.late_requests import LateEnd
from penstock.destinations.sending.progress_notes import ProgressNotes
from penstock.destinations.sending.request_protocol import Progress, Refused, RequestProtocol, Sent, Work
from penstock.destinations.sending.route_sender import RouteSender, SenderSettings
from penstock.destinations.sending.sender_lease import SenderLease
from penstock.destinations.sending.staged.keyed_rows import KeyedRows
from penstock.outcome import failure_batch

REFUSED = "refused"
NOT_ACCEPTED = "not_accepted"
BEHIND = "earlier events of its session wait"
BUSY = "a request of its session is still in flight"
BEHIND_DUE = 60.0
"""Seconds after which what waits behind others is looked at, if nothing wakes it before."""
SOON = 1.0

_log = logging.getLogger("penstock")


@dataclass
class _Settling:
    """What is known of the keys of a batch while it is written."""

    staged: KeyedRows
    progress: dict[str, Progress] = field(default_factory=dict)
    waiting: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Why the rest of a key waits, and for how many seconds."""
    given_up: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Up to which row a key was given up, and why."""

    def settled(self, key: str) -> int:
        return self.progress[key].settled


class SendingDestination(Destination[ConfigT]):
    capabilities = Capabilities(leaves_waiting=True)

    table: str
    """Under which name its rows are staged and counted."""

    @property
    @abstractmethod
    def settings(self) -> SenderSettings: ...

    @property
    def gives_up(self) -> bool:
        """Whether a request fails for good that was sent again for long enough."""
        return False

    @abstractmethod
    def protocol(self, batch: Batch, staged: KeyedRows, book: TableBook) -> RequestProtocol: ...

    def count_staged(self, parts: Sequence[Part]) -> Mapping[str, int]:
        """What tasks have counted while they staged these parts."""
        return {}

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        if not parts:
            return Receipt()
        settling = _Settling(KeyedRows.load(parts, batch.order))
        notes = ProgressNotes(batch, book, settling.staged)
        self._read_progress(batch, notes, settling)
        works = [work for key in settling.staged.keys if (work := self._begin(batch, key, settling)) is not None]
        if works:
            protocol = self.protocol(batch, settling.staged, book)
            with self._lease.held(book):
                sent = self._sender.send(works, protocol, notes, notes.note_late)
            for each in sent.values():
                self._end(each, settling)
        faults.reach("destination.committed")
        counted = Counter(self._sender.take_counted())
        if batch.ranges:
            # What is read again for a retry was counted with its batch.
            counted.update(self.count_staged(parts))
        return Receipt([self._receipt(batch, settling, counted)])

    def look_after(self) -> Collection[str]:
        return self._sender.take_woken()

    def finish(self, patience: float) -> None:
        self._sender.wait(patience)

    @property
    def is_busy(self) -> bool:
        return self._sender.has_late

    def forget(self, keys: Collection[str]) -> None:
        for key in keys:
            self._sender.give_up(key)

    def failing(self) -> Mapping[str, FailingRows]:
        now = time.monotonic()
        return {
            key: FailingRows(now - error.since, error.failures, error.reason)
            for key, error in self._sender.failing().items()
        }

    @cached_property
    def _lease(self) -> SenderLease:
        return SenderLease()

    @cached_property
    def _sender(self) -> RouteSender:
        return RouteSender(self.settings, self._lease)

    def _read_progress(self, batch: Batch, notes: ProgressNotes, settling: _Settling) -> None:
        """What was settled by earlier attempts, and by requests that had been let go."""
        settling.progress = {**dict.fromkeys(settling.staged.keys, Progress()), **notes.read()}
        late = {
            key: _with_late_end(settling.staged, key, settling.progress[key], end)
            for key, end in notes.read_late().items()
            if key not in batch.waiting_groups and not self._sender.is_busy(key)
        }
        if late:
            notes.take_over(late)
            settling.progress |= late

    def _begin(self, batch: Batch, key: str, settling: _Settling) -> Work | None:
        """What is to be sent of a key now, if anything."""
        rows, known = len(settling.staged.keys[key]), settling.progress[key]
        if key in batch.waiting_groups:
            settling.waiting[key] = (BEHIND, BEHIND_DUE)
            return None
        if self._sender.is_busy(key):
            settling.waiting[key] = (BUSY, self.settings.timeout)
            return None
        if known.settled == rows:
            return None
        if (pause := self._sender.pause(key)) > 0:
            settling.waiting[key] = (self._sender.reason(key) or "the server asked to be left alone", pause)
            return None
        return Work(key, rows, known)

    def _end(self, sent: Sent, settling: _Settling) -> None:
        """Note what became of a key that was tried."""
        settling.progress[sent.key] = sent.progress
        if sent.progress.settled == len(settling.staged.keys[sent.key]):
            return
        if sent.exhausted is not None and self.gives_up:
            settling.given_up[sent.key] = (sent.exhausted, sent.reason)
            self._sender.give_up(sent.key)
            settling.waiting[sent.key] = (BEHIND, SOON)
        else:
            settling.waiting[sent.key] = (sent.reason, sent.due)

    def _receipt(self, batch: Batch, settling: _Settling, counted: Mapping[str, int]) -> TableReceipt:
        staged = settling.staged
        failures: list[tuple[int, int, int, str, str]] = []
        waiting: list[WaitingRows] = []
        loaded = 0
        for key, rows in staged.keys.items():
            progress = settling.progress[key]
            stretches = [(each.start, each.end, REFUSED, each.message) for each in progress.refused]
            settled = progress.settled
            if key in settling.given_up:
                upto, why = settling.given_up[key]
                stretches.append((settled, upto, NOT_ACCEPTED, why))
                settled = upto
            failed = [
                (*staged.place(key, row), code, why) for start, end, code, why in stretches for row in range(start, end)
            ]
            failures += failed
            loaded += settled - len(failed)
            if settled < len(rows):
                reason, due = settling.waiting[key]
                waiting.append(WaitingRows(key, staged.places(key, settled, len(rows)), reason, due))
        left = {rows.group for rows in waiting}
        return TableReceipt(
            self.table,
            loaded,
            failure_batch(failures) if failures else None,
            waiting=waiting,
            # A batch of new rows has nothing of a key of which some wait.
            wakes=[] if batch.ranges else [key for key in staged.keys if key not in left],
            tallies={OF_ALL: {name: count for name, count in counted.items() if count}}
            if any(counted.values())
            else {},
        )


def _with_late_end(staged: KeyedRows, key: str, known: Progress, end: LateEnd) -> Progress:
    """The progress with what was settled since the last attempt. Rows that are others now, because the config was
    changed, are sent again."""
    upto = known.settled + end.rows
    if upto > len(staged.keys[key]):
        return known
    if (staged.place(key, known.settled), staged.place(key, upto - 1)) != (end.first, end.last):
        return known
    refused = (Refused(known.settled, upto, end.refused),) if end.refused else ()
    return Progress(upto, (*known.refused, *refused))
