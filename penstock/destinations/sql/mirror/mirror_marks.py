"""What the marks of a mirror say beyond those of other loads, and what all marks of a route say about its tables.

The changes of a table in a batch are applied in stretches, one for each key that the table has on the way, each with
its own mark. A mark says how many stretches there are and which record was applied last, so a table that was left
between two stretches is known to lack the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.destinations.contract import LoadedTable
from penstock.destinations.sql.marks import Mark, failures_in, waiting_as_in, waiting_in
from penstock.destinations.sql.mirror.stage.staged_changes import Place
from penstock.outcome import concat_failures

STRETCH_SIGN = "#"
"""Separates a table's name from the number of a further stretch. No table's name contains it."""


def mark_name(table: str, stretch: int) -> str:
    return table if stretch == 0 else f"{table}{STRETCH_SIGN}{stretch}"


@dataclass(frozen=True)
class Progress:
    """How many ``stretches`` there are in all, and the ``last`` record of the mark's own stretch, if all its rows are
    in it: rows of one record can have several keys."""

    stretches: int
    last: Place | None

    def to_members(self) -> dict[str, object]:
        return {"stretches": self.stretches, **({"last": self.last} if self.last is not None else {})}

    @classmethod
    def from_mark(cls, text: str) -> Progress | None:
        """From the text of a mark; ``None`` for one of an older release."""
        kept = json.loads(text or "{}")
        if "stretches" not in kept:
            return None
        last = kept.get("last")
        return cls(int(kept["stretches"]), None if last is None else (int(last[0]), int(last[1])))


def mirrored_loads(marks: Sequence[Mark]) -> list[LoadedTable]:
    """What a route's marks say about its tables, one for each table of a batch, oldest first.

    Marks of an older release do not say whether there were more stretches. All of its batches but the newest were
    applied completely; the newest is left out, and is applied again.
    """
    newest = max((mark.batch.number for mark in marks), default=0)
    said = [mark.failures for mark in marks if mark.batch.number == newest]
    waiting = {table: first for text in said for table, first in waiting_in(text).items()}
    waiting_as = list(dict.fromkeys(name for text in said for name in waiting_as_in(text)))
    tables: dict[tuple[int, str], dict[int, Mark]] = {}
    for mark in marks:
        table, _, number = mark.table.partition(STRETCH_SIGN)
        tables.setdefault((mark.batch.number, table), {})[int(number or 0)] = mark
    found = [
        loaded for (_, table), stretches in sorted(tables.items(), key=lambda each: each[0][0])
        if (loaded := _loaded_table(table, [stretches[n] for n in sorted(stretches)], newest)) is not None
    ]  # fmt: skip
    last = max((load.batch.number for load in found), default=0)
    return [
        replace(load, waiting=waiting, waiting_as=waiting_as) if load.batch.number == last else load for load in found
    ]


def _loaded_table(table: str, marks: Sequence[Mark], newest: int) -> LoadedTable | None:
    batch, told = marks[-1].batch, Progress.from_mark(marks[-1].failures)
    failures = [failed for mark in marks if (failed := failures_in(mark.failures)) is not None]
    load = LoadedTable(
        batch, table, sum(mark.rows for mark in marks), concat_failures(failures) if failures else None,
        waiting=waiting_in(marks[-1].failures), waiting_as=waiting_as_in(marks[-1].failures),
    )  # fmt: skip
    if told is None:
        return load if batch.number < newest else None
    if len(marks) >= told.stretches:
        return load
    return None if told.last is None else replace(load, upto=told.last)
