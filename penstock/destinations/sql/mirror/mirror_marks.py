"""What the marks of a mirror say beyond those of other loads, and what all marks of a route say of its tables.

The changes of a table in a batch are applied in stretches, one for each key that the table has on the way, each with a
mark of its own. A mark says how many stretches there are and which record is the last that was applied, so that a table
which was left between two of them is known to be without the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.destinations.contract import Loaded
from penstock.destinations.sql.load.loader import failures_together, from_text, waiting_as_in, waiting_in
from penstock.destinations.sql.mirror.stage.staged_changes import Place
from penstock.destinations.sql.session import Mark

SIGN = "#"
"""Between a table's name and the number of a further stretch. No table's name has it."""


def mark_name(table: str, stretch: int) -> str:
    return table if stretch == 0 else f"{table}{SIGN}{stretch}"


@dataclass(frozen=True)
class Applied:
    """How many ``stretches`` there are in all, and the ``last`` record of the one that a mark is of, if it is whole:
    rows of one record can have several keys."""

    stretches: int
    last: Place | None

    def to_members(self) -> dict[str, object]:
        return {"stretches": self.stretches, **({"last": self.last} if self.last is not None else {})}

    @classmethod
    def told(cls, text: str) -> Applied | None:
        """By a mark; ``None`` for one of an older release."""
        kept = json.loads(text or "{}")
        if "stretches" not in kept:
            return None
        last = kept.get("last")
        return cls(int(kept["stretches"]), None if last is None else (int(last[0]), int(last[1])))


def mirrored_loads(marks: Sequence[Mark]) -> list[Loaded]:
    """What a route's marks say of its tables, one for each table of a batch, oldest first.

    Marks of an older release do not say whether there were more stretches. Of its batches but the newest every one was
    applied; the newest is left out, and is applied again.
    """
    newest = max((mark.batch.number for mark in marks), default=0)
    said = [mark.failures for mark in marks if mark.batch.number == newest]
    waiting = {table: first for text in said for table, first in waiting_in(text).items()}
    waiting_as = list(dict.fromkeys(name for text in said for name in waiting_as_in(text)))
    tables: dict[tuple[int, str], dict[int, Mark]] = {}
    for mark in marks:
        table, _, number = mark.table.partition(SIGN)
        tables.setdefault((mark.batch.number, table), {})[int(number or 0)] = mark
    found = [
        loaded for (_, table), stretches in sorted(tables.items(), key=lambda each: each[0][0])
        if (loaded := _loaded(table, [stretches[n] for n in sorted(stretches)], newest)) is not None
    ]  # fmt: skip
    last = max((load.batch.number for load in found), default=0)
    return [
        replace(load, waiting=waiting, waiting_as=waiting_as) if load.batch.number == last else load for load in found
    ]


def _loaded(table: str, marks: Sequence[Mark], newest: int) -> Loaded | None:
    batch, told = marks[-1].batch, Applied.told(marks[-1].failures)
    failures = [failed for mark in marks if (failed := from_text(mark.failures)) is not None]
    load = Loaded(
        batch, table, sum(mark.rows for mark in marks), failures_together(failures) if failures else None,
        waiting=waiting_in(marks[-1].failures), waiting_as=waiting_as_in(marks[-1].failures),
    )  # fmt: skip
    if told is None:
        return load if batch.number < newest else None
    if len(marks) >= told.stretches:
        return load
    return None if told.last is None else replace(load, upto=told.last)
