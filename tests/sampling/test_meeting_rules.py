"""Where two rules meet: which of them counts."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sampling.commands import STRESS_IS_OVER
from tests.sampling.reference import Left
from tests.sampling.support import attribute, made
from tests.sampling.test_sampler import (
    DROP,
    EMITS,
    ERRORS,
    NOISE,
    REMOTE,
    ROOTS,
    A,
    B,
    C,
    D,
    S,
    Story,
    root,
    says,
    with_error,
)

T1 = bytes(range(16))
T4 = bytes.fromhex("deadbeefbaddecafdeadbeefbaddecaf")
LOW_1 = {"name": "low 1", "type": "downgrader", "downgrade_to": "LowPriority", "sub_policy": attribute("x", "k0")}
LOW_2 = {"name": "low 2", "type": "downgrader", "downgrade_to": "LowPriority", "sub_policy": attribute("y", "k1")}
NOISY = {"conditions": NOISE}


def probabilistic(percentage: float, **more: Any) -> dict[str, Any]:
    return {"name": "base", "type": "probabilistic", "sampling_percentage": percentage, **more}


def one(key: str) -> dict[str, Any]:
    return {"conditions": frozenset({key})}


def test_low_stays_low_while_the_same_policy_says_so() -> None:
    story = Story(LOW_1, LOW_2)
    story.batch((A, one("k0")))
    story.batch((A, one("k0")))
    assert (story.count("secondary_size"), story.count("primary_size")) == (1, 0)
    story.batch((A, one("k1")))
    assert (story.count("secondary_size"), story.count("primary_size")) == (0, 1)
    story.batch((A, one("k1")))
    assert (story.count("secondary_size"), story.count("primary_size")) == (0, 1)


def test_primary_is_never_demoted() -> None:
    story = Story(LOW_1)
    story.batch(A)
    story.batch((A, one("k0")))
    assert (story.count("secondary_size"), story.count("primary_size")) == (0, 1)


def test_a_trace_that_is_promoted_may_evict_the_oldest_of_the_primary_cache() -> None:
    story = Story(ROOTS, ERRORS, primary=2, secondary=1)
    story.batch(B, C)
    story.batch(root(A))
    story.batch(A)
    assert story.reasons == {"evicted_primary": 1}
    assert story.batch(with_error(B), with_error(A)) == [2, 3, 5]


def test_a_full_secondary_cache_takes_nothing_from_the_primary_one() -> None:
    story = Story(ROOTS, ERRORS, primary=2, secondary=1)
    story.batch(A, B, root(C), root(D))
    assert (story.reasons, story.count("primary_size")) == ({"evicted_secondary": 1}, 2)
    assert story.batch(with_error(A), with_error(C), with_error(D)) == [0, 4, 3, 6]


@pytest.mark.parametrize("look", [A, says(A, False)])
def test_a_look_at_a_decision_makes_it_new_also_by_a_decision_span(look: Any) -> None:
    story = Story(ERRORS, sampled=2)
    story.batch(with_error(A), with_error(B))
    story.batch(look)
    story.batch(with_error(C))
    assert story.batch(A, B) == [4]


def test_a_decision_that_is_forgotten_is_made_anew() -> None:
    story = Story(DROP, ERRORS, not_sampled=1)
    story.batch((A, NOISY), (B, NOISY))
    assert story.batch(with_error(A), with_error(B)) == [2]


def test_a_decision_span_counts_more_than_stress() -> None:
    story = Story(ERRORS)
    assert story.batch(says(A, True, by="errors", weight=3.0), A, B, stress=0.0) == [1]
    assert story.left == [Left(1, "sampled", "errors", 3.0)]


def test_what_stress_decided_stays_so_when_it_is_over() -> None:
    story = Story(ERRORS)
    story.batch(A, stress=0.0)
    assert story.batch(with_error(A), with_error(B), stress=STRESS_IS_OVER) == [2]


def test_stress_decides_on_what_waits_only_when_more_of_it_comes() -> None:
    story = Story(ERRORS)
    story.batch(A, B)
    assert story.batch(A, stress=100.0) == [0, 2]
    assert story.decision.waiting == 1


def test_false_drops_a_trace_that_waits_low() -> None:
    story = Story(ROOTS)
    story.batch(root(A))
    story.batch(says(A, False))
    assert story.reasons == {"decision_span": 1, "decided_elsewhere": 1}
    assert (story.count("secondary_size"), story.count("not_sampled_size")) == (0, 1)


def test_a_placeholder_stands_for_all_of_a_trace_that_waited() -> None:
    story = Story(EMITS)
    story.batch(A, A)
    assert story.batch(A, (A, NOISY), A) == [0]
    assert [each.kind for each in story.left] == ["placeholder"]
    assert story.batch((A, NOISY)) == []


def test_a_policy_that_samples_counts_more_than_a_cap() -> None:
    story = Story({"name": "many", "type": "span_count", "min_spans": 3}, spans_per_trace=2)
    story.batch(A, A)
    assert story.batch(A) == [0, 1, 2]


def test_a_cap_counts_more_than_low_priority() -> None:
    story = Story(LOW_1, spans_per_trace=1)
    story.batch((A, one("k0")), (A, one("k0")))
    assert (story.reasons, story.count("secondary_size")) == ({"over_cap": 2}, 0)


def test_a_release_with_a_flush_drops_first_and_hands_over_that_it_did() -> None:
    story = Story(ERRORS)
    story.batch(A, A, A)
    assert story.batch(B, releases=[2], flush=True) == [3]
    assert made(story.chosen, story.decision) == [(A, False, None, 1.0)]


def test_a_rate_that_came_before_a_flush_holds_after_it() -> None:
    story = Story(REMOTE)
    story.batch(A, rates={"remote": 100.0})
    story.batch(flush=True)
    assert story.batch(B) == [1]


def test_a_limit_is_not_full_again_after_a_flush() -> None:
    story = Story({"name": "few", "type": "rate_limiting", "spans_per_second": 1, "burst_capacity": 1})
    assert story.batch(A) == [0]
    story.batch(flush=True)
    assert story.batch(B) == []


@pytest.mark.parametrize(
    ("trace", "percentage", "sampled"),
    [
        (T1, 65, True),
        (T1, 64.9, False),
        (T4, 20, True),
        (T4, 19, False),
        (T1, -5, False),
        (T1, 250, True),
        (T1, 0, False),
    ],
)
def test_the_cases_of_a_percentage(trace: bytes, percentage: float, sampled: bool) -> None:
    assert Story(probabilistic(percentage)).batch(trace) == ([0] if sampled else [])


def test_a_percentage_over_a_hundred_stands_for_one_trace() -> None:
    story = Story(probabilistic(250))
    story.batch(A)
    assert story.left == [Left(0, "sampled", "base", 1.0)]


def test_spans_that_end_before_they_start_last_no_time() -> None:
    story = Story({"name": "slow", "type": "latency", "threshold_ms": 0})
    assert story.batch((A, {"start": 5 * S, "end": 4 * S})) == []
    assert story.batch((A, {"start": 5 * S, "end": 5 * S})) == [0, 1]


def test_the_smallest_threshold_of_all_spans_that_came_together_counts() -> None:
    story = Story({"name": "t", "type": "threshold"})
    randomness = int.from_bytes(T1[-7:])
    assert story.batch((T1, {"threshold": randomness + 1})) == []
    assert story.batch(T1) == []
    assert story.batch((T1, {"threshold": randomness + 1}), (T1, {"threshold": randomness})) == [0, 1, 2, 3]


def test_a_trace_that_is_evicted_by_its_own_batch_is_not_sampled_in_it() -> None:
    story = Story({"name": "many", "type": "span_count", "min_spans": 2}, primary=1)
    story.batch(A)
    assert story.batch(B, A) == []
    assert story.reasons == {"evicted_primary": 1, "late_dropped": 1}


def test_a_downgrade_to_pending_asks_the_next_policy() -> None:
    pending = {"name": "no", "type": "downgrader", "downgrade_to": "Pending", "sub_policy": attribute("z", "k0")}
    story = Story(pending, {"name": "all", "type": "always_sample"})
    story.batch(with_error(A))
    assert story.left == [Left(0, "sampled", "all", 1.0)]


def test_in_a_dry_run_a_decision_span_is_not_forwarded_either() -> None:
    story = Story(ERRORS, dry_run=True)
    story.batch(A)
    assert story.batch(says(A, False), A) == [0, 2]
    assert story.reasons == {"decision_span": 1}
