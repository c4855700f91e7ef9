"""Rows that a table waits for and that staging does not produce again, because the config has changed meanwhile.

A step may skip them now: then they count as skipped by ``changed``. Rows that fail now, or go to another table, are
neither given up nor delivered: they keep waiting until an operator decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.engine.delivery.batch_pieces import Place, joined
from penstock.engine.delivery.task import read_rows
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.ledger import WaitingPart
from penstock.errors import RouteError
from penstock.outcome import PLACE_COLUMNS

MAX_STRETCHES = 5
"""How many stretches of offsets an error lists."""


@dataclass(frozen=True)
class NewFailures:
    """Records of a batch that fail now and did not when it was committed."""

    places: Collection[Place]
    reason: str


def newly_failing(report: BatchReport, before: Collection[tuple[int, int, int]]) -> NewFailures | None:
    """``before``: the items of the batch that are in the failed store, by partition, offset and number."""
    found: dict[tuple[int, int, int], str] = {}
    for file in report.failed:
        for rows in read_rows(file.path):
            for row in rows.select([*PLACE_COLUMNS, "step", "code", "message"]).to_pylist():
                item = row["partition"], row["offset"], row["item"]
                found[item] = f"{row['step']}: {row['code']}: {row['message']}"
    new = {item: reason for item, reason in found.items() if item not in before}
    places = sorted({(partition, offset) for partition, offset, _ in new})
    return NewFailures(places, next(iter(new.values()))) if new else None


def refuse_to_drop(part: WaitingPart, rows: int, failing: NewFailures | None, elsewhere: Collection[str]) -> None:
    """Raise if up to ``rows`` that a table waits for would be dropped: records are ``failing``, or go to tables
    ``elsewhere`` that had nothing of the batch."""
    if failing is None and not elsewhere:
        return
    if failing is not None:
        what, stretches = f"fail now, the first with {failing.reason}", _stretches(failing.places)
    else:
        what = f"would go to {', '.join(sorted(elsewhere))} now"
        stretches = {p: [stretch] for p, stretch in part.batch.ranges.items()}
    verbs = [
        f"penstock offset ack {part.route} {start if end - start == 1 else f'{start}..{end - 1}'} --partition {p}"
        for p, found in stretches.items()
        for start, end in found
    ]
    more = f", and {len(verbs) - MAX_STRETCHES} more such" if len(verbs) > MAX_STRETCHES else ""
    raise RouteError(
        "PEN-RTE-023",
        f"up to {rows} rows that table '{part.table}' has been waiting for since batch {part.batch.number} {what}: the"
        " config has changed meanwhile. They stay waiting.",
        "Put back what was changed (`steps`, `table`, `tables`) until the table has got them. Or give them up:"
        f" {', '.join(verbs[:MAX_STRETCHES])}{more}",
    )


def _stretches(places: Collection[Place]) -> Mapping[int, list[tuple[int, int]]]:
    return {
        partition: joined((offset, offset + 1) for p, offset in places if p == partition)
        for partition in sorted({p for p, _ in places})
    }
