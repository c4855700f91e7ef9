"""Sends the requests of a route's batches, and remembers between them what their keys are told to wait for.

Nothing of the data is remembered: rows that were not accepted are in the log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from penstock.destinations.sending.http_client import HttpClient
from penstock.destinations.sending.late_requests import LateRequests
from penstock.destinations.sending.request_protocol import NoteProgress, RequestProtocol, Sent, Work
from penstock.destinations.sending.sender_lease import SenderLease
from penstock.destinations.sending.sending_round import NoteLate, RoundSettings, SendingRound
from penstock.errors import TransientError
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

    def __init__(self, settings: SenderSettings, lease: SenderLease) -> None:
        """``lease``: held by who calls ``send``, and for longer if a request is let go."""
        self._settings = settings
        self._lease = lease
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._errors = ErrorStates(settings.schedule, random.random, settings.error_timeout)
        self._slow: set[str] = set()
        self._late = LateRequests()

    def send(
        self, works: Sequence[Work], protocol: RequestProtocol, note: NoteProgress, note_late: NoteLate
    ) -> Mapping[str, Sent]:
        """Send what can be sent now; returns what became of each key. Raises what ``note`` raises, and
        ``TransientError`` if the lease was lost. ``note_late`` is told, perhaps after the call, how requests have ended
        that were let go."""
        settings, returned = self._settings, Future[dict[str, Sent]]()
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
            self._lease.check,
            self._count,
            returned,
        )
        self._lease.share()
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

    def take_counted(self) -> Mapping[str, int]:
        """What answers have counted since this was asked last, also those to requests that had been let go."""
        with self._lock:
            counted, self._counted = self._counted, Counter()
            return counted

    @property
    def has_late(self) -> bool:
        return self._late.count() > 0

    def wait(self, seconds: float) -> None:
        """Wait for what was let go, for so long at most."""
        self._late.wait(seconds)

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
        except TransientError as error:
            _log.warning("requests that were let go were ended: %s", error)
        except Exception:
            _log.exception("requests that were let go have ended with an error")
        finally:
            # Another engine that has it by now says so when this one takes it again.
            with suppress(TransientError):
                self._lease.give_back()

    def _count(self, numbers: Mapping[str, int]) -> None:
        with self._lock:
            self._counted.update(numbers)
