"""What a sender is given, and what it says afterwards.

Rows belong to keys. The rows of a key go out in their order, in requests of one or more rows, one request at a time;
the next one is sent only after the answer to the one before is noted. Keys do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, Protocol


class Request(NamedTuple):
    """One HTTP request, ready to be sent."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"
    payload_bytes: int = 0
    """The size of the body before it was compressed."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class NoAnswer(Exception):
    """No connection, or none that lasted until the answer was read. Says why, without secrets. Nobody knows whether
    the request was accepted."""


class Verdict(Enum):
    """What an answer means for the rows of its request."""

    ACCEPTED = auto()
    RETRY = auto()
    """Not now: send it again later."""
    TOO_LARGE = auto()
    """Send it in two halves; a single row is refused."""
    REFUSED = auto()
    """Never, as it is."""


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    message: str = ""
    """Why it was not accepted, for people. Without secrets."""
    status: int = 0
    wait: float | None = None
    """Seconds after which the server asks to be tried again."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """What the answer says of numbers (bytes charged, say), to be added up."""


class RequestProtocol(Protocol):
    """How rows become requests, and what answers mean. Rows of a key are numbered from 0. Large requests are
    built in threads, for different keys at the same time."""

    def cut(self, key: str, start: int) -> int:
        """The row behind the last one that goes into the same request as row ``start``; more than ``start``."""

    def bytes_of(self, key: str, start: int, end: int) -> int:
        """About how many bytes these rows have, before they are compressed."""

    def build(self, key: str, start: int, end: int) -> Request:
        """The request for these rows; compressed."""

    def judge(self, answer: Answer) -> Judgement:
        """Called in the event loop: quick."""

    def place(self, key: str, row: int) -> tuple[int, int, int]:
        """Partition, offset and item of a row."""


class Refused(NamedTuple):
    start: int
    end: int
    message: str


@dataclass(frozen=True)
class Progress:
    """Up to which row a key is settled, and which of these rows were refused."""

    settled: int = 0
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True)
class Work:
    """What is to be sent of a key."""

    key: str
    rows: int
    known: Progress = Progress()
    """What was settled earlier."""


@dataclass(frozen=True)
class Sent:
    """What became of a key's rows. Rows from ``settled`` on were not sent, or not accepted yet."""

    key: str
    progress: Progress
    reason: str = ""
    """Why the rest was not sent; empty if there is none."""
    due: float = 0.0
    """Seconds until it is to be tried again."""
    exhausted: int | None = None
    """Up to which row the first request of the rest goes, if that has failed for longer than it is to be sent again."""


class NoteProgress(Protocol):
    """Told, before the next request of a key is sent, up to which row the key is settled; of several keys at a time.
    What was told is known after a crash."""

    def note(self, progress: Mapping[str, Progress]) -> None:
        """Called in a thread."""

    def note_at_once(self, progress: Mapping[str, Progress]) -> bool:
        """Note it if that waits for nothing but a disk; ``False`` if it would. Called in the event loop."""
