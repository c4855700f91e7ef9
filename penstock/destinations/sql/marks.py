"""Marks: what a destination keeps of every loaded batch, so that none is loaded twice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from penstock.destinations.contract import Batch
from penstock.outcome import PLACE_COLUMNS, failure_batch

MARKS = "_penstock_loads"
"""The table of marks: one per loaded batch and table. A mark is written with its batch, so the two never differ."""
KEPT_MARKS = 1_000
"""How many marks a route keeps, and more while one of its tables waits. An older batch is never written again."""


@dataclass(frozen=True)
class Mark:
    """Says that a table has its part of a batch: how many rows it accepted, and which it refused (as text)."""

    batch: Batch
    table: str
    rows: int
    failures: str = ""


def last_expired_batch(batch: Batch) -> int:
    """Marks up to this batch number may be deleted: nobody writes those batches again, not even a waiting table."""
    return min([batch.number, *batch.waiting.values()]) - KEPT_MARKS


def mark_from_row(row: Sequence[object]) -> Mark:
    """A mark from a row of scope, route, number, origin, table, rows and failures."""
    scope, route, number, origin, table, rows, failures = (str(value) for value in row)
    return Mark(Batch(scope, route, int(number), {}, origin), table, int(rows), failures)


def mark_text(
    failures: pa.RecordBatch,
    merged: int = 0,
    meant_for: Sequence[str] = (),
    batch: Batch | None = None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """What a mark keeps besides the number of rows: the failures (each message once, because they repeat), how many
    rows were merged before they were written, the tables that they were meant for, if others, the waiting tables of its
    batch, and whatever ``more`` a kind of load adds."""
    kept: dict[str, object] = {"merged": merged} if merged else {}
    kept |= {"meant_for": list(meant_for)} if meant_for else {}
    kept |= {"waiting": dict(batch.waiting)} if batch and batch.waiting else {}
    kept |= {"waiting_as": list(batch.waiting_as)} if batch and batch.waiting_as else {}
    kept |= more
    if failures.num_rows:
        reasons = list(zip(failures.column("code").to_pylist(), failures.column("message").to_pylist(), strict=True))
        numbers = {reason: number for number, reason in enumerate(dict.fromkeys(reasons))}
        places = zip(*(failures.column(name).to_pylist() for name in PLACE_COLUMNS), reasons, strict=True)
        kept |= {"reasons": list(numbers), "rows": [[p, o, numbers[reason], item] for p, o, item, reason in places]}
    return json.dumps(kept) if kept else ""


def failures_in(text: str) -> pa.RecordBatch | None:
    """The failures that a mark keeps, if any."""
    kept = json.loads(text or "{}")
    if "rows" not in kept:
        return None
    # An older release kept no item.
    rows = [(p, o, *(item or (0,)), *kept["reasons"][reason]) for p, o, reason, *item in kept["rows"]]
    return failure_batch(rows)


def meant_for_in(text: str) -> list[str]:
    """The tables that the rows were meant for, if they are in another one."""
    return [str(table) for table in json.loads(text or "{}").get("meant_for", ())]


def waiting_in(text: str) -> dict[str, int]:
    """The tables that waited when the mark was made, each with the number of the first batch that it lacked."""
    return {str(table): int(number) for table, number in json.loads(text or "{}").get("waiting", {}).items()}


def waiting_as_in(text: str) -> list[str]:
    """The earlier names of the route under which they waited."""
    return [str(name) for name in json.loads(text or "{}").get("waiting_as", ())]


def merged_in(text: str) -> int:
    """How many rows were merged, according to a mark; 0 for one of an older release."""
    return int(json.loads(text or "{}").get("merged", 0))
