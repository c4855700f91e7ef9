"""OTLP requests to a collector or a backend: at least once.

OTLP has no transactions, and nobody can ask what was accepted. So a batch that is tried again is sent again, except for
what this process knows to be accepted: only a crash or a lost answer repeats entries (spans, log records, metrics).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock import faults
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Destination,
    Order,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.destinations.otlp.config import OtlpConfig
from penstock.destinations.otlp.http_sender import Answer, Busy, Sender
from penstock.destinations.otlp.request_batches import Pieces, halves, request_batches
from penstock.destinations.otlp.staged_requests import Place, StagedPiece, staged_pieces
from penstock.destinations.otlp.stager import RequestStager
from penstock.errors import PenstockError
from penstock.otlp.json_requests import Signal
from penstock.otlp.request_pieces import join_request
from penstock.outcome import failure_batch

REFUSED = "refused"
REJECTED = "rejected"
MOST_SEARCHES = 1_000
"""Refused requests of a batch after which what is still refused fails together, and is not searched any more."""
_TOO_LARGE = 413

_log = logging.getLogger("penstock.destinations.otlp")


@dataclass
class _Progress:
    """What is settled of one signal of the batch that is under way."""

    sent: dict[Place, int] = field(default_factory=dict)
    """How many entries of each row were accepted: its first ones."""
    failures: dict[Place, tuple[str, str]] = field(default_factory=dict)
    rejected: int = 0
    """Entries that were not accepted, nobody says which."""
    rejected_rows: int = 0
    """How many of them were all of their row."""
    message: str = ""
    """What the target said last about what it accepted."""
    searches: int = 0

    def due(self, piece: StagedPiece) -> StagedPiece | None:
        """What of the piece is still to be sent."""
        settled = self.sent.get(piece.place, 0)
        if settled >= piece.end or piece.place in self.failures:
            return None
        return piece if settled <= piece.first else piece.between(settled - piece.first, len(piece))

    def note_sent(self, pieces: Pieces) -> None:
        for piece in pieces:
            self.sent[piece.place] = piece.end

    def note_failed(self, pieces: Pieces, code: str, message: str) -> None:
        self.failures.update({piece.place: (code, message) for piece in pieces})


class OtlpDestination(Destination[OtlpConfig]):
    def __init__(self, config: OtlpConfig) -> None:
        super().__init__(config)
        self._batch: Batch | None = None
        self._progress: dict[str, _Progress] = {}
        self._quiet_until = 0.0
        """By the monotonic clock: before that the target asked not to be tried."""

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return RequestStager(directory)

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        if not parts:
            return Receipt()
        if self._batch != batch:
            self._batch, self._progress = batch, {}
        self._stay_quiet()
        signals = sorted({part.table for part in parts})
        with Sender(self.config) as sender:
            for table in signals:
                try:
                    self._send_all(sender, Signal(table), [part for part in parts if part.table == table], batch.order)
                except Busy as busy:
                    self._quiet_until = time.monotonic() + busy.pause
                    raise
        faults.reach("destination.committed")
        return Receipt([self._receipt(table, [part for part in parts if part.table == table]) for table in signals])

    def check(self) -> str:
        with Sender(self.config) as sender:
            answer = sender.send(Signal.TRACES, b"")
        if answer.refused is not None:
            raise PenstockError(
                "PEN-DST-133",
                f"an empty OTLP request was refused: {answer.refused}.",
                "Look whether `endpoint` is one that takes OTLP over HTTP.",
            )
        return f"{self.config.endpoint} takes traces by OTLP"

    def _stay_quiet(self) -> None:
        """Not wait here: the engine does, and can be stopped while it does."""
        left = self._quiet_until - time.monotonic()
        if left > 0:
            raise Busy(f"it asked to be left alone for another {left:.0f} s", left)

    def _send_all(self, sender: Sender, signal: Signal, parts: Sequence[Part], order: Order | None) -> None:
        progress = self._progress.setdefault(signal.value, _Progress())
        staged = staged_pieces(parts, order)
        due = (found for piece in staged if (found := progress.due(piece)) is not None)
        for pieces in request_batches(due, self.config.max_spans, self.config.max_bytes):
            todo = [pieces]
            while todo:
                # A row of which a part has failed meanwhile is not sent any further.
                request = [piece for piece in todo.pop() if piece.place not in progress.failures]
                if request:
                    todo += reversed(self._send(sender, signal, request, progress))
                    faults.reach("destination.writing")

    def _send(self, sender: Sender, signal: Signal, pieces: Pieces, progress: _Progress) -> Sequence[Pieces]:
        """Send a request; returns those to send instead of it, if it was refused."""
        answer = sender.send(signal, join_request(piece.piece for piece in pieces))
        if answer.refused is None:
            _note_accepted(signal, pieces, answer, progress)
            return ()
        progress.searches += 1
        cut = halves(pieces, inside_rows=answer.status == _TOO_LARGE) if progress.searches < MOST_SEARCHES else None
        if cut is None:
            progress.note_failed(pieces, REFUSED, answer.refused)
        return cut or ()

    def _receipt(self, table: str, parts: Sequence[Part]) -> TableReceipt:
        progress = self._progress[table]
        failures = failure_batch([(*place[:3], *why) for place, why in sorted(progress.failures.items())])
        if progress.rejected or progress.message:
            _log.warning("of %s the target rejects %d entries: %s", table, progress.rejected, progress.message or "-")
        rows = sum(part.rows for part in parts) - failures.num_rows - progress.rejected_rows
        skipped = {REJECTED: progress.rejected_rows} if progress.rejected_rows else {}
        return TableReceipt(table, rows, failures if failures.num_rows else None, skipped=skipped)


def _note_accepted(signal: Signal, pieces: Pieces, answer: Answer, progress: _Progress) -> None:
    """A partial success is one: sent again, what was accepted would be there twice."""
    progress.rejected += answer.rejected
    progress.message = answer.message or progress.message
    # Of metrics the target counts the data points, which are more than the entries.
    rejected = answer.rejected if signal is not Signal.METRICS else 0
    if rejected >= sum(map(len, pieces)):
        progress.note_failed(pieces, REJECTED, answer.message or "the target rejects it and does not say why")
        return
    progress.note_sent(pieces)
    if all(piece.row_entries == 1 for piece in pieces):
        progress.rejected_rows += rejected
