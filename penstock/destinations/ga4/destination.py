"""Events to Google Analytics 4: at least once.

Google Analytics has no transactions and cannot be queried, so a batch that is tried again is sent again, except for
requests that this process knows were accepted: only a crash or a lost answer repeats events. Each event carries its
record's id, by which duplicates can be recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock import faults
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Destination,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.destinations.ga4 import limits
from penstock.destinations.ga4.client import PROBE, VALIDATE, Client
from penstock.destinations.ga4.config import Ga4Config
from penstock.destinations.ga4.event_mapping import Mapper
from penstock.destinations.ga4.requests import Request, requests
from penstock.destinations.ga4.server_clock import ServerClock
from penstock.destinations.ga4.staged_events import Place, Staged, staged_events
from penstock.destinations.ga4.stager import TABLE, EventStager
from penstock.errors import RefusedError
from penstock.outcome import failure_batch


@dataclass
class _Progress:
    """What is settled of the batch that is under way."""

    batch: Batch
    sent: set[Place] = field(default_factory=set)
    failures: dict[Place, tuple[str, str]] = field(default_factory=dict)

    def is_settled(self, staged: Staged) -> bool:
        return staged.place in self.sent or staged.place in self.failures

    def note(self, events: Sequence[Staged], failure: tuple[str, str] | None = None) -> None:
        places = [staged.place for staged in events]
        if failure is None:
            self.sent.update(places)
        else:
            self.failures.update(dict.fromkeys(places, failure))


class Ga4Destination(Destination[Ga4Config]):
    def __init__(self, config: Ga4Config) -> None:
        super().__init__(config)
        self._progress: _Progress | None = None
        self._clock = ServerClock()

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return EventStager(directory, Mapper(self.config))

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        if not parts:
            return Receipt()
        if self._progress is None or self._progress.batch != batch:
            self._progress = _Progress(batch)
        progress = self._progress
        most = 1 if self.config.validate_only else limits.MAX_EVENTS
        self._ask_time()
        with Client(self.config, self._clock) as client:
            for request in requests(self._due(parts, progress), most):
                self._send(client, request, progress)
                faults.reach("destination.writing")
        faults.reach("destination.committed")
        rows = sum(part.rows for part in parts)
        failures = failure_batch([(*place[:3], *why) for place, why in sorted(progress.failures.items())])
        return Receipt([TableReceipt(TABLE, rows - failures.num_rows, failures if failures.num_rows else None)])

    def write_all_or_nothing(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        if parts and (self._progress is None or self._progress.batch != batch):
            self._ask_time()
            wrong = next((found for staged in staged_events(parts, None) if (found := self._untimely(staged))), None)
            if wrong is not None:
                raise RefusedError(
                    "PEN-DST-121",
                    wrong[1],
                    "Google Analytics does not accept it. Go on without it: penstock offset ack",
                )
        return self.write(batch, parts, book)

    def check(self) -> str:
        with Client(self.config) as client:
            client.send(PROBE, VALIDATE)
        return f"{self.config.endpoint} answers; it does not tell whether the secret is right"

    def _due(self, parts: Sequence[Part], progress: _Progress) -> Iterator[Staged]:
        for staged in staged_events(parts, progress.batch.order):
            if progress.is_settled(staged):
                continue
            if (wrong := self._untimely(staged)) is not None:
                progress.note([staged], wrong)
                continue
            param = self.config.id_param
            named = staged if param is None else staged.with_id(param, progress.batch.record_ids)
            yield named.not_after(int(self._clock.now() * 1_000_000))

    def _ask_time(self) -> None:
        """Set the clock by the server's, once; every later answer sets it too."""
        if not self._clock.is_known:
            with Client(self.config, self._clock) as client:
                client.ask_time()

    def _untimely(self, staged: Staged) -> tuple[str, str] | None:
        """The failure of an event whose time Google Analytics does not accept."""
        age = self._clock.now() - staged.event.micros / 1_000_000
        if age > limits.MAX_AGE:
            most = limits.MAX_AGE // 3600
            return (
                "too_old",
                f"it is {age / 3600:,.0f} hours old; Google Analytics takes what is at most {most} hours old",
            )
        if age < -limits.MAX_AHEAD:
            return (
                "in_future",
                f"its time is {-age / 3600:,.1f} hours in the future; Google Analytics takes no such event",
            )
        return None

    def _send(self, client: Client, request: Request, progress: _Progress) -> None:
        if self.config.validate_only:
            answer = client.send(request.body, VALIDATE)
            wrong = answer.refused or "; ".join(answer.messages)
            progress.note(request.events, ("invalid", wrong) if wrong else None)
            return
        answer = client.send(request.body)
        if answer.refused is None:
            progress.note(request.events)
        elif len(request.events) == 1:
            progress.note(request.events, ("refused", answer.refused))
        else:
            for alone in request.one_by_one():
                self._send(client, alone, progress)
