"""What each set of policies decides on the spans of a shard, batch after batch.

The shard's own state decides, as on a live route. What is still undecided at the end is let go by a flush, so that
every span leaves once, with a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.engine.stateful.shards import shard_at
from penstock.holding.item import Items
from penstock.outcome import check_count
from penstock.sampling.commands import Place, flush_command
from penstock.sampling.fold_units import in_log_order
from penstock.sampling.span_item import (
    DECIDED_NOT_SAMPLED,
    DECIDED_SAMPLED,
    DECISION,
    FLUSHED,
    NO_POLICY,
    NOT_SAMPLED,
    SPAN_ITEM,
)
from penstock.steps.contract import HoldingState
from penstock.steps.sample.step import Sample

NOBODY = -1
"""In place of a policy: none has decided."""
_ROWS_AT_ONCE = 1 << 16


class Verdict(IntEnum):
    KEPT = 0
    DROPPED = 1
    WAITING = 2
    """Undecided at the end."""


VERDICT_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("policy_set", pa.int32(), nullable=False),
        pa.field("high", pa.int64(), nullable=False),
        pa.field("low", pa.int64(), nullable=False),
        pa.field("verdict", pa.int32(), nullable=False),
        pa.field("policy", pa.int32(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("service", pa.string()),
        pa.field("spans", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
"""Spans of a trace and a service that had the same verdict: how many, and their bytes. There may be several such rows.
``policy`` is a number in its set, or ``NOBODY``; ``weight`` is for how many traces this one stands."""


class Arrival(NamedTuple):
    """A row of ``ARRIVAL_SCHEMA``."""

    policy_set: int
    shard: int
    batch: int
    services: list[str | None]
    items: bytes


def reach_verdicts(
    arrivals: Iterable[pa.RecordBatch], steps: Sequence[Sample], secret: bytes
) -> Iterator[pa.RecordBatch]:
    """The verdicts of sets, by their numbers, on arrivals that are sorted by set, shard and batch. Only the rows of one
    batch are in memory, beside what the state of one shard has."""
    rows = (Arrival(*row) for batch in arrivals for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
    for (number, shard), of_shard in groupby(rows, itemgetter(0, 1)):
        trial = _ShardTrial(steps[number].new_state(shard_at(shard, secret)))
        for found in trial.run(list(batch) for _, batch in groupby(of_shard, itemgetter(2))):
            policy_set = pa.array(np.full(found.num_rows, number, np.int32))
            yield pa.RecordBatch.from_arrays([policy_set, *found.columns], schema=VERDICT_SCHEMA)


class _ShardTrial:
    """A state on trial, and the account of what it was given."""

    def __init__(self, state: HoldingState) -> None:
        self._state = state
        self._services: dict[str | None, int] = {}
        self._place = 0
        self._given = self._left = 0

    def run(self, batches: Iterable[Sequence[Arrival]]) -> Iterator[pa.RecordBatch]:
        """The verdicts, without the column of the set."""
        found: list[np.ndarray] = []
        for batch in batches:
            found.append(self._decide(batch))
            if sum(map(len, found)) >= _ROWS_AT_ONCE:
                yield self._rows(np.concatenate(found))
                found = []
        found.append(self._leave(self._state.decide(np.empty(0, SPAN_ITEM), [], [], flush_command(Place())).released))
        yield self._rows(np.concatenate(found))
        check_count("sample", self._given, self._left)

    def _decide(self, batch: Sequence[Arrival]) -> np.ndarray:
        spans = in_log_order(np.concatenate([self._items(arrival) for arrival in batch]))
        self._given += int(np.count_nonzero((spans["mask"] & (DECIDED_SAMPLED | DECIDED_NOT_SAMPLED)) == 0))
        return self._leave(self._state.decide(self._as_counted(spans), [], []).released)

    def _items(self, arrival: Arrival) -> Items:
        """The spans of a row, with the number that their services have here."""
        items = np.frombuffer(arrival.items, SPAN_ITEM).copy()
        numbers = [self._services.setdefault(name, len(self._services)) for name in arrival.services]
        items["bits"] = np.array(numbers, np.uint32)[items["bits"]]
        return items

    def _as_counted(self, spans: Items) -> Items:
        """Spans that are in the order of the log, with what the report counts in place of where they are: nobody
        fetches them. Their ``order`` alone keeps them in order; ``offset`` is their bytes, ``item`` their service."""
        spans["order"] = self._place + np.arange(len(spans))
        spans["partition"], spans["offset"], spans["item"], spans["bits"] = 0, spans["size"], spans["bits"], 0
        self._place += len(spans)
        return spans

    def _leave(self, released: Items) -> np.ndarray:
        """What has left, in rows of ``_LEFT``: spans side by side that are alike make one."""
        spans = released[(released["bits"] & DECISION) == 0]
        self._left += len(spans)
        alike = [spans[name] for name in ("high", "low", "bits", "item", "weight")]
        new = np.ones(len(spans), np.bool_)
        new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in alike])
        firsts = np.flatnonzero(new)
        left = np.empty(len(firsts), _LEFT)
        for name, column in zip(("high", "low", "bits", "service", "weight"), alike, strict=True):
            left[name] = column[firsts]
        left["spans"] = np.diff(firsts, append=len(spans))
        left["bytes"] = np.add.reduceat(spans["offset"], firsts) if len(firsts) else 0
        return left

    def _rows(self, left: np.ndarray) -> pa.RecordBatch:
        bits = left["bits"]
        verdicts = np.where(bits & NOT_SAMPLED, Verdict.DROPPED, Verdict.KEPT)
        verdicts[(bits & FLUSHED) != 0] = Verdict.WAITING
        policies = (bits & NO_POLICY).astype(np.int32)
        policies[policies == NO_POLICY] = NOBODY
        columns = {
            "high": left["high"].view(np.int64),
            "low": left["low"].view(np.int64),
            "verdict": verdicts.astype(np.int32),
            "policy": policies,
            "weight": left["weight"],
            "service": pa.array(list(self._services), pa.string()).take(pa.array(left["service"])),
            "spans": left["spans"],
            "bytes": left["bytes"],
        }
        return pa.RecordBatch.from_pydict(columns)


_LEFT = np.dtype(
    [
        ("high", "<u8"), ("low", "<u8"), ("bits", "<u4"), ("service", "<i8"), ("weight", "<f8"), ("spans", "<i8"),
        ("bytes", "<i8"),
    ]
)  # fmt: skip
