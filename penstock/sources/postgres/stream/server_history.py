"""Whether the server still has the history that the log's records come from.

An older copy of a server (its files, a snapshot of its machine) has the same identifier and the same slot. Once it has
worked for a while, its write-ahead log is also as long as before, but has other transactions. Three checks tell:

- the write-ahead log must reach as far as the log's records;
- if the server is on another timeline (it was promoted, or restored to a point in time), that timeline must have begun
  after them;
- the server must send the log's newest transaction again, with the same commit time, unless the slot is confirmed
  beyond it. Only we confirm the slot, so in the second case the copy was made after that transaction, and the server
  sends everything since.

A slot that is confirmed less far than we have confirmed it proves nothing: a server that crashes forgets confirmations.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event

from penstock.errors import PenstockError
from penstock.sources.postgres.connection import Connection
from penstock.sources.postgres.progress import SourceProgress
from penstock.sources.postgres.stream.pgoutput import WAL_HEADER_BYTES
from penstock.sources.postgres.stream.slot import ask, end_of_wal
from penstock.sources.postgres.stream.walsender import Message
from penstock.sources.postgres.stream_position import ChangePosition, Lsn, lsn_text, parse_lsn

_BEGIN = struct.Struct(">cQq")


@dataclass(frozen=True)
class System:
    """Which database cluster, and which of its histories."""

    identifier: str
    timeline: int


def identify_system(walsender: Connection, stopping: Event) -> System:
    identifier, timeline, *_ = ask(walsender, "IDENTIFY_SYSTEM", stopping)
    return System(identifier, int(timeline))


def check_reachable(connection: Connection, newest: Lsn) -> None:
    """Refuse a server whose write-ahead log ends before ``newest``, which the log has."""
    end = end_of_wal(connection)
    if end < newest:
        raise other_server_error(f"it is at {lsn_text(end)}, but the log has changes up to {lsn_text(newest)}")


def check_timeline(walsender: Connection, known: int, now: int, newest: Lsn, stopping: Event) -> None:
    """Refuse a timeline that left the one of the log's records (0: not known) before ``newest``."""
    if known in (0, now):
        return
    fork = _timeline_forks(walsender, now, stopping).get(known) if now > known else None
    if fork is None:
        raise other_server_error(f"its timeline {now} does not come from the timeline {known} of the log's records")
    if fork < newest:
        raise other_server_error(
            f"its timeline {now} left the timeline {known} at {lsn_text(fork)}, but the log has changes up to"
            f" {lsn_text(newest)}"
        )


class ResentTransaction:
    """The transaction that the server must send first, if it must."""

    def __init__(self, progress: SourceProgress, confirmed: Lsn) -> None:
        """``confirmed``: how far the slot is confirmed when the stream starts."""
        taken = progress.taken
        is_resent = taken.number >= 0 and confirmed <= taken.commit == progress.start_lsn()
        self._expected = taken if is_resent else None

    def check(self, messages: Sequence[Message], idle_at: Lsn) -> None:
        """Check what the server has sent. ``idle_at``: it has nothing more for us up to here.

        Raises ``PenstockError`` if it has left the transaction out, or has another one in its place.
        """
        expected = self._expected
        if expected is None:
            return
        if messages:
            _check_begin(bytes(messages[0][WAL_HEADER_BYTES : WAL_HEADER_BYTES + _BEGIN.size]), expected)
            self._expected = None
        elif idle_at > expected.commit:
            raise _missing_error(expected, f"nothing before {lsn_text(idle_at)}")


def other_server_error(why: str) -> PenstockError:
    return PenstockError(
        "PEN-PGS-013",
        f"this is not the server that the log's records come from, or it was put back to an earlier state: {why}.",
        "Point `url` to the right server, or give `slot` another name to copy every table again.",
    )


def _timeline_forks(walsender: Connection, timeline: int, stopping: Event) -> dict[int, Lsn]:
    """Per timeline that this one comes from: where it was left."""
    _, content = ask(walsender, f"TIMELINE_HISTORY {timeline}", stopping)
    lines = (line.split("\t") for line in content.splitlines() if line.strip() and not line.startswith("#"))
    return {int(number): parse_lsn(fork) for number, fork, *_ in lines}


def _check_begin(message: bytes, expected: ChangePosition) -> None:
    """Check that a stream that begins with this message begins with the expected transaction."""
    kind, commit, time = _BEGIN.unpack(message)
    if kind != b"B":
        return  # whoever decodes it says that it is not understood
    if commit != expected.commit:
        raise _missing_error(expected, f"the next one is at {lsn_text(commit)}")
    if expected.time not in (None, time):
        raise _missing_error(expected, "the one there committed at another time")


def _missing_error(expected: ChangePosition, found: str) -> PenstockError:
    return other_server_error(
        f"the log has a transaction at {lsn_text(expected.commit)} that it does not have; {found}"
    )
