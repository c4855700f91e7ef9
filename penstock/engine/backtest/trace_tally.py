"""Adds verdicts up: how many traces, spans and bytes, by set, policy and service.

A trace counts wherever it has spans: under every service that it passed, and under two verdicts if its decision was
forgotten and made anew in between. A span counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.backtest.policy_sets import SETS
from penstock.engine.backtest.verdicts import VERDICT_SCHEMA, Verdict

Numbers = npt.NDArray[np.int64]


class Level(StrEnum):
    """What a count is of."""

    ALL = "all"
    """All traces."""
    KEPT_BY_ALL = "kept_by_all"
    """Traces that every set keeps."""
    VERDICT = "verdict"
    """By set and verdict."""
    POLICY = "policy"
    """By set, verdict and policy."""
    SERVICE = "service"
    """By set, verdict and service."""


@dataclass(frozen=True)
class Cell:
    """What is counted together. What its level does not tell apart is ``None``."""

    level: Level
    policy_set: int | None = None
    verdict: Verdict | None = None
    policy: int | None = None
    service: str | None = None
    """``None`` is also a service without a name."""


@dataclass(frozen=True)
class Amount:
    traces: int = 0
    spans: int = 0
    bytes: int = 0
    weight: float = 0.0
    """For how many traces these stand."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.traces + other.traces,
            self.spans + other.spans,
            self.bytes + other.bytes,
            self.weight + other.weight,
        )


Tally = Mapping[Cell, Amount]

TALLY_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("level", pa.string(), nullable=False),
        pa.field("policy_set", pa.int32()),
        pa.field("verdict", pa.int32()),
        pa.field("policy", pa.int32()),
        pa.field("service", pa.string()),
        pa.field("traces", pa.int64(), nullable=False),
        pa.field("spans", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
    ]
)


def tally_traces(verdicts: Iterable[pa.RecordBatch]) -> Tally:
    """Of verdicts (``VERDICT_SCHEMA``) that have the rows of each trace side by side."""
    tally: defaultdict[Cell, Amount] = defaultdict(Amount)
    for rows in _whole_traces(verdicts):
        for cell, amount in _count(rows):
            tally[cell] += amount
    return tally


def tally_to_batch(tally: Tally) -> pa.RecordBatch:
    rows = [
        (c.level.value, c.policy_set, c.verdict, c.policy, c.service, a.traces, a.spans, a.bytes, a.weight)
        for c, a in tally.items()
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(TALLY_SCHEMA)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, TALLY_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=TALLY_SCHEMA)


def add_tallies(batches: Iterable[pa.RecordBatch]) -> Tally:
    """The sum of tallies of different traces."""
    tally: defaultdict[Cell, Amount] = defaultdict(Amount)
    for batch in batches:
        for row in batch.to_pylist():
            verdict = None if row["verdict"] is None else Verdict(row["verdict"])
            cell = Cell(Level(row["level"]), row["policy_set"], verdict, row["policy"], row["service"])
            tally[cell] += Amount(row["traces"], row["spans"], row["bytes"], row["weight"])
    return tally


def _whole_traces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, so that no trace is in two batches: the last one of each waits for more."""
    waiting = pa.RecordBatch.from_pylist([], schema=VERDICT_SCHEMA)
    for batch in batches:
        rows = pa.concat_batches([waiting, batch.cast(VERDICT_SCHEMA)])
        if rows.num_rows:
            last = int(np.flatnonzero(_begins(rows))[-1])
            yield rows.slice(0, last)
            waiting = rows.slice(last)
    yield waiting


def _begins(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which rows are the first of a trace."""
    high, low = (rows.column(name).to_numpy() for name in ("high", "low"))
    begins = np.ones(len(high), np.bool_)
    begins[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return begins


def _count(rows: pa.RecordBatch) -> Iterator[tuple[Cell, Amount]]:
    if rows.num_rows == 0:
        return
    traces = np.cumsum(_begins(rows)) - 1
    policy_set, verdict, policy = (rows.column(name).to_numpy() for name in ("policy_set", "verdict", "policy"))
    services = pc.dictionary_encode(rows.column("service"), null_encoding="encode")
    names = services.dictionary.to_pylist()
    yield from _count_agreement(traces, policy_set, verdict)
    for values, amount in _group(rows, traces, policy_set, verdict):
        yield Cell(Level.VERDICT, values[0], Verdict(values[1])), amount
    for values, amount in _group(rows, traces, policy_set, verdict, policy):
        yield Cell(Level.POLICY, values[0], Verdict(values[1]), policy=values[2]), amount
    for values, amount in _group(rows, traces, policy_set, verdict, services.indices.to_numpy()):
        yield Cell(Level.SERVICE, values[0], Verdict(values[1]), service=names[values[2]]), amount


def _count_agreement(traces: Numbers, policy_set: Numbers, verdict: Numbers) -> Iterator[tuple[Cell, Amount]]:
    kept = np.zeros((int(traces[-1]) + 1, len(SETS)), np.bool_)
    is_kept = verdict == Verdict.KEPT
    kept[traces[is_kept], policy_set[is_kept]] = True
    yield Cell(Level.ALL), Amount(len(kept))
    yield Cell(Level.KEPT_BY_ALL), Amount(int(np.count_nonzero(kept.all(axis=1))))


def _group(rows: pa.RecordBatch, traces: Numbers, *by: Numbers) -> Iterator[tuple[list[int], Amount]]:
    """The amounts of rows that have the same values in these columns."""
    groups, group_of = np.unique(np.stack(by, axis=1), axis=0, return_inverse=True)
    group_of = group_of.reshape(-1)
    pairs, first = np.unique(traces * len(groups) + group_of, return_index=True)
    counts = np.bincount(pairs % len(groups), minlength=len(groups))
    weights = np.bincount(pairs % len(groups), rows.column("weight").to_numpy()[first], len(groups))
    spans, sizes = np.zeros((2, len(groups)), np.int64)
    np.add.at(spans, group_of, rows.column("spans").to_numpy())
    np.add.at(sizes, group_of, rows.column("bytes").to_numpy())
    amounts = zip(counts.tolist(), spans.tolist(), sizes.tolist(), weights.tolist(), strict=True)
    yield from zip(groups.tolist(), (Amount(*amount) for amount in amounts), strict=True)
