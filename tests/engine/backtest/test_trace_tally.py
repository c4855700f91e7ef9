"""Counts are those that plain dictionaries give, wherever the rows are cut into batches and tasks."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.backtest.trace_tally import (
    Amount,
    Cell,
    Level,
    add_tallies,
    tally_to_batch,
    tally_traces,
)
from penstock.engine.backtest.verdicts import NOBODY, VERDICT_SCHEMA, Verdict


class Row(NamedTuple):
    policy_set: int
    high: int
    low: int
    verdict: int
    policy: int
    weight: float
    service: str | None
    spans: int
    bytes: int


rows = st.lists(
    st.builds(
        Row,
        st.integers(0, 1),
        st.integers(-2, 2),
        st.integers(-1, 1),
        st.sampled_from([int(each) for each in Verdict]),
        st.integers(NOBODY, 2),
        st.just(2.0),
        st.sampled_from(["shop", "cart", None]),
        st.integers(1, 2**40),
        st.integers(1, 2**60),
    ),
    max_size=30,
)


def batch(some: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row._asdict() for row in some], schema=VERDICT_SCHEMA)


def plain(some: list[Row]) -> dict[Cell, Amount]:
    spans: defaultdict[Cell, list[Row]] = defaultdict(list)
    for row in some:
        verdict = Verdict(row.verdict)
        spans[Cell(Level.VERDICT, row.policy_set, verdict)].append(row)
        spans[Cell(Level.POLICY, row.policy_set, verdict, policy=row.policy)].append(row)
        spans[Cell(Level.SERVICE, row.policy_set, verdict, service=row.service)].append(row)
    found = {}
    for cell, counted in spans.items():
        traces = {(row.high, row.low) for row in counted}
        sums = sum(row.spans for row in counted), sum(row.bytes for row in counted)
        found[cell] = Amount(len(traces), *sums, 2.0 * len(traces))
    kept = [{(row.high, row.low) for row in some if row.policy_set == n and row.verdict == 0} for n in range(2)]
    found[Cell(Level.ALL)] = Amount(len({(row.high, row.low) for row in some}))
    found[Cell(Level.KEPT_BY_ALL)] = Amount(len(kept[0] & kept[1]))
    return found


@given(some=rows, size=st.integers(1, 30))
def test_batches_make_no_difference(some: list[Row], size: int) -> None:
    some.sort(key=lambda row: (row.high, row.low))
    found = tally_traces(batch(some[at : at + size]) for at in range(0, len(some), size))
    assert {**plain([]), **found} == plain(some)


@given(some=rows)
def test_tasks_with_different_traces_add_up(some: list[Row]) -> None:
    some.sort(key=lambda row: (row.high, row.low))
    tasks = [[row for row in some if row.high % 2 == rest] for rest in range(2)]
    found = add_tallies(tally_to_batch(tally_traces([batch(task)])) for task in tasks)
    assert {**plain([]), **found} == plain(some)
