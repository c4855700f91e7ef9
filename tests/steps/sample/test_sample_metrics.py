"""What a sampler tells of itself: every number is in the docs, and adds up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY
from pydantic import ValidationError

import penstock
from penstock.engine import events
from penstock.engine.operate.samplers import SamplerStatus
from penstock.engine.stateful.shard_decision import ShardReport, lag_of
from penstock.holding.decision import join_levels
from penstock.sampling.batch_work import Tally
from penstock.sampling.decision_names import CountedDecision
from penstock.steps.contract import Shard
from tests.steps.sample.test_sample import ERRORS, error, items_of, records, request, sampler, span, step

README = Path(penstock.__file__).parent / "steps" / "sample" / "README.md"
FROM = {"resource_attribute": "service.name", "values": {"shop": "^shop", "all shops": "shop"}}


def _documented() -> set[str]:
    _, _, section = README.read_text().partition("## Metrics")
    return set(re.findall(r"`([a-z_]+)`", section.partition("## What it promises")[0]))


def test_every_number_of_a_sampler_is_in_the_docs() -> None:
    sample = step(follow=["logs"])
    batch = records(request(error(1), span(2)))
    decision = sample.new_state(Shard(0, 1, bytes(16))).decide(items_of(sample, batch))
    report = ShardReport.of(decision, lag_of(items_of(sample, batch)))
    told = {each.name.lower() for each in Tally if each > Tally.DECISION_SPAN}
    told |= {f"spans_{each.name.lower()}" for each in Tally if Tally.NOT_SAMPLED <= each <= Tally.DECISION_SPAN}
    told |= {name for name in decision.counts if CountedDecision.named(name) is None} | set(report.levels)
    assert told - _documented() == set()
    assert {"shard_lag_us_highest", "state_bytes", "logs_limit", "spans_in"} <= told


def test_spans_and_traces_add_up() -> None:
    sample = step(primary_cache_size=1)
    state = sampler(sample)
    counts: dict[str, int] = {}
    for body in (request(span(1), span(2), error(3)), request(span(3), span(2), span(1), error(1))):
        for name, n in state.decide(items_of(sample, records(body))).counts.items():
            counts[name] = counts.get(name, 0) + n
    assert (counts["spans_in"], counts["spans_out"], counts["spans_dropped"]) == (7, 2, 3)
    assert (counts["traces_in"], counts["traces_sampled"], counts["traces_evicted_primary"]) == (3, 1, 1)
    assert (counts["spans_evicted_primary"], counts["late_sampled"], counts["late_not_sampled"]) == (1, 1, 2)


def test_decisions_are_counted_by_where_traces_are_from() -> None:
    sample = step(decision_from=FROM)
    resources: list[dict[str, Any]] = [
        {"service.name": "shop-1"}, {"service.name": "old shop"}, {"service.name": "bank"}, {"service.name": 7}, {},
        {"service.name": "shop-2"},
    ]  # fmt: skip
    batch = records(*(request(error(n), **resource) for n, resource in enumerate(resources, 1)))
    counts = sampler(sample).decide(items_of(sample, batch)).counts
    status = SamplerStatus("kept", counts, {})
    assert status.decisions == {
        CountedDecision("errors", "Sampled", "shop"): 2,
        CountedDecision("errors", "Sampled", "all shops"): 1,
        CountedDecision("errors", "Sampled", "other"): 3,
    }
    events.step_counted("from", counts, {})
    labels = {"route": "from", "policy": "errors", "decision": "Sampled", "decision_from": "shop"}
    assert REGISTRY.get_sample_value("penstock_sampling_decisions_total", labels) == 2


def test_where_a_trace_is_from_is_what_came_when_it_was_decided() -> None:
    sample = step(decision_from=FROM)
    state = sampler(sample)
    state.decide(items_of(sample, records(request(span(1), **{"service.name": "bank"}))))
    later = records(request(span(1), **{"service.name": "shop"}), request(error(1), **{"service.name": "bank"}))
    decided = state.decide(items_of(sample, later))
    assert decided.counts["decision/errors/Sampled/shop"] == 1
    assert decided.passed + decided.let_go == 3


@pytest.mark.parametrize("wrong", [{"a": "("}, {}, {"": "x"}, {str(n): "x" for n in range(256)}])
def test_what_cannot_be_counted_by_is_refused_at_the_start(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        step(ERRORS, decision_from={"resource_attribute": "service.name", "values": wrong})


@pytest.mark.parametrize("policy", ["plain", "a/b", "100%", "%2F", "a/b/c/d", "ä ö"])
@pytest.mark.parametrize("origin", ["", "shop", "a/b%"])
def test_a_counted_decision_is_read_back_whatever_its_names_are(policy: str, origin: str) -> None:
    decision = CountedDecision(policy, "NotSampled", origin)
    assert CountedDecision.named(decision.name) == decision


def test_levels_of_shards_are_added_up_and_the_highest_lag_counts() -> None:
    shards = [{"primary_size": 3, "shard_lag_us_highest": 9}, {"primary_size": 0, "shard_lag_us_highest": 12}, {}]
    assert join_levels(shards) == {"primary_size": 3, "shard_lag_us_highest": 12}
    assert join_levels([{"primary_size": 0}]) == {"primary_size": 0}


def test_a_shard_without_records_says_nothing_of_its_lag() -> None:
    assert lag_of(np.empty(0, step().item_type)) is None
