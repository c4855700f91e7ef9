"""Where the source was when it read a record: the header ``position``, from which a restart resumes.

A copied record names its snapshot; a change names its commit and its number among the commit's changes. Both name the
slot and the table, which tells apart a table that was dropped and created again, and a source that was restarted with
another slot.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.sources.postgres.catalog.table_layout import compact

Lsn = int
"""A position in PostgreSQL's write-ahead log."""

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def lsn_text(lsn: Lsn) -> str:
    """As PostgreSQL writes it: ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> Lsn:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True, order=True)
class ChangePosition:
    """A change: the position of its transaction's commit, and its number among that transaction's changes."""

    commit: Lsn = 0
    number: int = -1
    """Negative: a place between transactions."""
    time: int | None = field(default=None, compare=False)
    """When the transaction committed, in microseconds since 2000; None: not known."""


@dataclass(frozen=True)
class Position:
    """A parsed header."""

    slot: str
    table: int
    snapshot: Lsn | None = None
    change: ChangePosition | None = None

    @classmethod
    def from_header(cls, text: str) -> Position:
        found = json.loads(text)
        slot, table = str(found["slot"]), int(found["table"])
        if "snapshot" in found:
            return cls(slot, table, snapshot=parse_lsn(found["snapshot"]))
        change = ChangePosition(parse_lsn(found["commit"]), int(found["number"]), _micros(found.get("committed")))
        return cls(slot, table, change=change)


def copy_position(slot: str, table: int, snapshot: Lsn) -> str:
    return compact({"slot": slot, "table": table, "snapshot": lsn_text(snapshot)})


def _micros(time: str | None) -> int | None:
    """Microseconds since 2000, where PostgreSQL's time begins."""
    return None if time is None else (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1)
