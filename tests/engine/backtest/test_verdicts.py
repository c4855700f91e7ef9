"""Every span of a range has one verdict: that of the plain reference, over the same batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.backtest.arrivals import Reading, read_arrivals
from penstock.engine.backtest.backtest_report import agreement, all_traces, set_counts
from penstock.engine.backtest.log_range import LogRange
from penstock.engine.backtest.policy_sets import ComparedSets, PolicySet
from penstock.engine.backtest.trace_tally import Tally, tally_traces
from penstock.engine.backtest.verdicts import Verdict, reach_verdicts
from penstock.engine.pipeline import Pipeline
from penstock.log.read_ranges import Stretch
from penstock.steps.sample.config import SampleConfig
from tests.engine.backtest.recorded import (
    BATCH_US,
    CANDIDATE,
    LIVE,
    Arrived,
    judge,
    made_up,
    write_project,
)

SMALL: dict[str, Any] = {**LIVE, "primary_cache_size": 8, "decision_cache": CANDIDATE["decision_cache"]}


def in_process(pipeline: Pipeline, sets: ComparedSets, pieces: int = 1) -> Tally:
    """What Spark does, without it: the log in so many tasks, then sorted by shard and batch, then by trace."""
    plan = pipeline.plan("sampled")
    reading = Reading(plan, pipeline.log, sets, BATCH_US)
    chosen = LogRange.between(pipeline.log, ["spans"], None, None)
    stretches = [
        Stretch(partition, start + (end - start) * n // pieces, start + (end - start) * (n + 1) // pieces)
        for partition, (start, end) in chosen.offsets.items()
        for n in range(pieces)
    ]
    arrivals = [row for stretch in stretches for row in read_arrivals(reading, stretch)]
    verdicts = list(
        reach_verdicts(_sorted(arrivals, "policy_set", "shard", "batch"), sets.build_steps(), plan.key_secret)
    )
    return tally_traces(_sorted(verdicts, "high", "low"))


def _sorted(batches: Sequence[pa.RecordBatch], *by: str) -> list[pa.RecordBatch]:
    table = pa.Table.from_batches(batches).sort_by([(name, "ascending") for name in by])
    return list(table.to_batches(max_chunksize=7))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("live", [LIVE, SMALL], ids=["large caches", "small caches"])
def test_verdicts_are_those_of_the_reference(tmp_path: Path, seed: int, live: dict[str, Any]) -> None:
    requests = made_up(seed)
    pipeline = write_project(tmp_path, requests, live)
    plan = pipeline.plan("sampled")
    sets = ComparedSets.of(plan, SampleConfig.model_validate(CANDIDATE))
    tally = in_process(pipeline, sets)
    found = set_counts(tally, sets)
    judged = [judge(config, requests, plan.key_secret) for config in sets.configs]
    for name, expected in zip(PolicySet, judged, strict=True):
        counts = found[name]
        for verdict in Verdict:
            by_service = {service: amounts[verdict].spans for service, amounts in counts.services.items()}
            assert Counter(by_service) == _of(expected.spans, verdict)
            by_service = {service: amounts[verdict].bytes for service, amounts in counts.services.items()}
            assert Counter(by_service) == _of(expected.sizes, verdict)
            assert counts.amounts[verdict].traces == len(expected.traces[verdict])
        assert Counter({each.policy: each.kept.spans for each in counts.policies}) == expected.kept_by
    live_kept, candidate_kept = (each.traces[Verdict.KEPT] for each in judged)
    assert all_traces(tally) == len({span.trace for spans in requests for span in spans})
    both = agreement(tally)
    assert (both.both, both.only_live, both.only_candidate) == (
        len(live_kept & candidate_kept), len(live_kept - candidate_kept), len(candidate_kept - live_kept)
    )  # fmt: skip


def _of(counts: Counter[tuple[Verdict, str | None]], verdict: Verdict) -> Counter[str | None]:
    return Counter({service: number for (each, service), number in counts.items() if each is verdict})


def test_every_span_is_in_one_place(tmp_path: Path) -> None:
    requests = made_up(7, traces=200)
    sets, tally = _compare(tmp_path, requests)
    spans = [span for several in requests for span in several]
    for counts in set_counts(tally, sets).values():
        assert counts.total.spans == len(spans)
        assert counts.total.bytes == sum(span.size for span in spans)
        assert {verdict for verdict, amount in counts.amounts.items() if amount.spans} >= {
            Verdict.KEPT,
            Verdict.WAITING,
        }


def test_how_the_log_is_cut_into_tasks_makes_no_difference(tmp_path: Path) -> None:
    pipeline = write_project(tmp_path, made_up(3))
    sets = ComparedSets.of(pipeline.plan("sampled"), SampleConfig.model_validate(CANDIDATE))
    whole = in_process(pipeline, sets)
    assert in_process(pipeline, sets, pieces=5) == whole


def test_the_same_policies_keep_the_same(tmp_path: Path) -> None:
    pipeline = write_project(tmp_path, made_up(4))
    plan = pipeline.plan("sampled")
    sets = ComparedSets.of(plan, SampleConfig.model_validate(LIVE))
    tally = in_process(pipeline, sets)
    found = set_counts(tally, sets)
    assert found[PolicySet.LIVE] == found[PolicySet.CANDIDATE]
    assert (agreement(tally).only_live, agreement(tally).only_candidate) == (0, 0)


def test_kept_traces_stand_for_all(tmp_path: Path) -> None:
    requests = made_up(5, traces=400)
    base = {"policies": [{"name": "base", "type": "probabilistic", "sampling_percentage": 25}]}
    sets, tally = _compare(tmp_path, requests, base)
    kept = set_counts(tally, sets)[PolicySet.CANDIDATE].amounts[Verdict.KEPT]
    assert kept.weight == 4 * kept.traces


def test_a_set_may_be_for_some_namespaces_only(tmp_path: Path) -> None:
    sets, tally = _compare(tmp_path, made_up(6), {**CANDIDATE, "namespace": "none of ours"})
    found = set_counts(tally, sets)
    assert found[PolicySet.LIVE].total.spans > 0
    assert found[PolicySet.CANDIDATE].total.spans == 0


def _compare(
    folder: Path, requests: list[list[Arrived]], candidate: dict[str, Any] = CANDIDATE
) -> tuple[ComparedSets, Tally]:
    pipeline = write_project(folder, requests)
    sets = ComparedSets.of(pipeline.plan("sampled"), SampleConfig.model_validate(candidate))
    return sets, in_process(pipeline, sets)
