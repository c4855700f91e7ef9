"""Sends the requests of a route's batches, and remembers between them what their keys are told to wait for.

Nothing of the data is remembered: rows that were not accepted are in the log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import uvloop

from penstock.destinations.sending.http_client import HttpClient
from penstock.destinations.sending.late_requests import LateRequests
from penstock.destinations.sending.request_protocol import NoteProgress, RequestProtocol, Sent, Work
from penstock.destinations.sending.sending_round import NoteLate, RoundSettings, SendingRound
from penstock.sessions.adaptive_limit import AdaptiveLimit
from penstock.sessions.error_states import ErrorStates, SessionError
from penstock.sessions.retry_schedule import RetrySchedule

_log = logging.getLogger("penstock")


@dataclass(frozen=True)
class SenderSettings:
    schedule: RetrySchedule
    limit: AdaptiveLimit
    timeout: float
    patience: float
    error_timeout: float | None = None
    ca: Path | None = None


class RouteSender:
    """One per route. ``send`` is called by one thread at a time; the rest by any."""

    def __init__(self, settings: SenderSettings, whenever_idle: Callable[[], None]) -> None:
        """``whenever_idle`` is called when no request is in flight any more that was let go."""
        self._settings = settings
        self._lock = threading.Lock()
        self._errors = ErrorStates(settings.schedule, random.random, settings.error_timeout)
        self._slow: set[str] = set()
        self._late = LateRequests()
        self._whenever_idle = whenever_idle

    def send(
        self, works: Sequence[Work], protocol: RequestProtocol, note: NoteProgress, note_late: NoteLate
    ) -> tuple[Mapping[str, Sent], Mapping[str, int]]:
        """Send what can be sent now; returns what became of each key, and what the answers have counted. Raises what
        ``note`` raises. ``note_late`` is told, perhaps after the call, how requests have ended that were let go."""
        settings, returned = self._settings, Future[tuple[dict[str, Sent], Mapping[str, int]]]()
        sending = SendingRound(
            works,
            protocol,
            HttpClient(settings.timeout, settings.ca),
            note,
            note_late,
            settings.limit,
            self._errors,
            self._slow,
            self._late,
            RoundSettings(settings.patience, settings.timeout),
            returned,
        )
        threading.Thread(target=self._run, args=(sending,), name="sending", daemon=True).start()
        return returned.result()

    def pause(self, key: str) -> float:
        """Seconds until a key may be tried; 0 if now."""
        return self._errors.seconds_left(key, time.monotonic())

    def reason(self, key: str) -> str:
        return self._errors.reason(key)

    def is_busy(self, key: str) -> bool:
        """Whether a request of the key is in flight that was let go."""
        return self._late.is_in_flight(key)

    @property
    def is_idle(self) -> bool:
        return self._late.count == 0

    def take_woken(self) -> Collection[str]:
        return self._late.take_woken()

    def give_up(self, key: str) -> None:
        """The oldest request of a key is not tried any more: patience begins anew with the next one."""
        self._errors.forget(key)

    def failing(self) -> Mapping[str, SessionError]:
        return self._errors.failing(time.monotonic())

    def _run(self, sending: SendingRound) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(sending.run())
        except Exception:
            _log.exception("requests that were let go have ended with an error")
        if sending.has_late and self.is_idle:
            self._whenever_idle()
