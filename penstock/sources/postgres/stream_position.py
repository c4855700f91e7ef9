"""Where the source was when it took a record: the header ``position``, in which a restart reads how to go on.

A record of the copy says which snapshot it is of, a change says which commit it belongs to and which of its changes it
is. Both name the slot and the table, so a table that was dropped and made again, or a source that was started anew with
another slot, is told apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.sources.postgres.catalog.table_layout import compact

Lsn = int
"""A place in PostgreSQL's write-ahead log."""


def lsn_text(lsn: Lsn) -> str:
    """As PostgreSQL writes it: ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> Lsn:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True, order=True)
class ChangePosition:
    """A change by the place of its transaction's commit, and its number among that transaction's changes."""

    commit: Lsn = 0
    number: int = -1


@dataclass(frozen=True)
class Position:
    """One header, read."""

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
        return cls(slot, table, change=ChangePosition(parse_lsn(found["commit"]), int(found["number"])))


def copy_position(slot: str, table: int, snapshot: Lsn) -> str:
    return compact({"slot": slot, "table": table, "snapshot": lsn_text(snapshot)})
