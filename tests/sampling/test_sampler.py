"""What becomes of spans: stories by rule, each told in a few batches."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.holding.decision import Decision
from penstock.sampling.commands import STRESS_IS_OVER
from penstock.sampling.sampler_limits import SamplerLimits
from tests.sampling.reference import Left, Span
from tests.sampling.support import COMMAND_AT, attribute, commands, items, left, made, policies, sampler_of, stamps

A, B, C, D, E = (bytes([n]) * 16 for n in range(1, 6))
S = 10**9
ERRORS = attribute("errors", "k0")
ERROR = frozenset({"k0"})
ROOTS = {"name": "roots", "type": "root_spans", "sub_policy": attribute("important", "k1")}
DROP = {"name": "drop", "type": "downgrader", "downgrade_to": "NotSampled", "sub_policy": attribute("noise", "k2")}
NOISE = frozenset({"k2"})
EMITS = {**DROP, "emit_single_span_for_not_sampled": True}
REMOTE = {"name": "remote", "type": "remote_probabilistic", "rate_from": "file", "default_rate": 0}


class Story:
    """A sampler, and the places of spans that are given to it."""

    def __init__(self, *configs: dict[str, Any], dry_run: bool = False, **limits: Any) -> None:
        self.chosen = policies(*configs)
        sizes = {"primary": 100, "secondary": 50, "sampled": 100, "not_sampled": 100, **limits}
        self.sampler = sampler_of(self.chosen, SamplerLimits(**sizes), dry_run=dry_run)
        self.given = 0
        self.decision = Decision(items([]), 0)

    def batch(self, *spans: tuple[bytes, dict[str, Any]] | bytes, **told: Any) -> list[int]:
        """Give these spans; the places of what leaves. A span's place is its number, over all batches."""
        rows = []
        for span in spans:
            trace, more = (span, {}) if isinstance(span, bytes) else span
            rows.append(Span(trace, self.given, **more))
            self.given += 1
        releases = stamps(told.pop("releases", []))
        self.decision = self.sampler.decide(items(rows, self.chosen), [], releases, commands(self.chosen, **told))
        self.decision.check("sample", len(rows))
        return [each.at for each in self.left]

    @property
    def left(self) -> list[Left]:
        return left(self.chosen, self.decision)

    @property
    def reasons(self) -> dict[str, int]:
        return dict(self.decision.reasons)

    def count(self, name: str) -> int:
        return {**self.decision.counts, **self.decision.levels}.get(name, 0)


def with_error(trace: bytes) -> tuple[bytes, dict[str, Any]]:
    return trace, {"conditions": ERROR}


def root(trace: bytes) -> tuple[bytes, dict[str, Any]]:
    return trace, {"root": True}


def says(trace: bytes, sampled: bool, **more: Any) -> tuple[bytes, dict[str, Any]]:
    return trace, {"says": sampled, **more}


class TestDecisions:
    def test_a_pending_trace_leaves_with_the_span_that_decides_first_one_first(self) -> None:
        story = Story(ERRORS)
        assert story.batch(A) == []
        assert story.batch(with_error(A)) == [0, 1]
        assert (story.decision.let_go, story.decision.passed, story.decision.waiting) == (1, 1, 0)

    def test_spans_of_several_batches_leave_oldest_first(self) -> None:
        story = Story(ERRORS)
        story.batch(A, B, A)
        story.batch(B, A)
        assert story.batch(B, with_error(A), A) == [0, 2, 4, 6, 7]

    def test_later_spans_of_a_sampled_trace_are_still_sent(self) -> None:
        story = Story(ERRORS)
        story.batch(with_error(A))
        assert story.batch(A, A) == [1, 2]
        assert story.count("late_sampled") == 2

    def test_late_spans_leave_with_the_policy_and_the_weight_of_their_trace(self) -> None:
        story = Story({"name": "some", "type": "probabilistic", "sampling_percentage": 99.9})
        story.batch(A)
        story.batch(A)
        assert story.left == [Left(1, "sampled", "some", 100 / 99.9)]

    def test_not_sampled_stays_so_whatever_comes(self) -> None:
        story = Story(DROP, ERRORS)
        assert story.batch((A, {"conditions": NOISE})) == []
        assert story.reasons == {"not_sampled": 1}
        assert story.batch(with_error(A)) == []
        assert story.reasons == {"late_dropped": 1}

    def test_what_waited_is_dropped_with_what_decides_against_it(self) -> None:
        story = Story(DROP)
        story.batch(A, A)
        story.batch((A, {"conditions": NOISE}))
        assert (story.decision.dropped, story.decision.skipped, story.reasons) == (2, 1, {"not_sampled": 3})

    def test_latency_counts_over_batches(self) -> None:
        story = Story({"name": "slow", "type": "latency", "threshold_ms": 5000})
        assert story.batch((A, {"start": 100 * S, "end": 103 * S})) == []
        assert story.batch((A, {"start": 104 * S, "end": 106 * S})) == [0, 1]

    def test_a_span_without_a_start_makes_no_trace_long(self) -> None:
        story = Story({"name": "slow", "type": "latency", "threshold_ms": 5000})
        story.batch((A, {"start": 100 * S, "end": 101 * S}))
        assert story.batch((A, {"end": 102 * S})) == []

    def test_spans_are_counted_over_batches(self) -> None:
        story = Story({"name": "many", "type": "span_count", "min_spans": 3})
        story.batch(A)
        assert story.batch(A, B) == []
        assert story.batch(A) == [0, 1, 3]

    def test_a_condition_of_an_earlier_batch_is_over(self) -> None:
        both = {"name": "both", "type": "and", "and_sub_policy": [attribute("x", "k0"), attribute("y", "k1")]}
        story = Story(both)
        story.batch((A, {"conditions": frozenset({"k0"})}))
        assert story.batch((A, {"conditions": frozenset({"k1"})})) == []

    def test_unless_it_is_sticky(self) -> None:
        parts = [attribute("x", "k0", sticky=True), attribute("y", "k1")]
        story = Story({"name": "both", "type": "and", "and_sub_policy": parts})
        story.batch((A, {"conditions": frozenset({"k0"})}))
        story.batch(A)
        assert story.batch((A, {"conditions": frozenset({"k1"})})) == [0, 1, 2]

    def test_a_sticky_threshold_of_an_earlier_batch_counts(self) -> None:
        parts = [{"name": "t", "type": "threshold", "sticky": True}, attribute("y", "k1")]
        story = Story({"name": "both", "type": "and", "and_sub_policy": parts})
        story.batch((A, {"threshold": 0}))
        assert story.batch((A, {"conditions": frozenset({"k1"})})) == [0, 1]

    def test_spans_of_one_batch_are_judged_together(self) -> None:
        both = {"name": "both", "type": "and", "and_sub_policy": [attribute("x", "k0"), attribute("y", "k1")]}
        story = Story(both)
        spans = ((A, {"conditions": frozenset({"k0"})}), B, (A, {"conditions": frozenset({"k1"})}))
        assert story.batch(*spans) == [0, 2]

    def test_the_policy_that_decides_is_told(self) -> None:
        story = Story(DROP, ERRORS)
        story.batch(with_error(A), (B, {"conditions": NOISE}), C)
        assert (story.count("decision/errors/Sampled"), story.count("decision/drop/NotSampled")) == (1, 1)
        assert story.count("traces_pending") == 1

    def test_how_long_a_trace_waited_is_told(self) -> None:
        story = Story(ERRORS)
        story.batch((A, {"time": 1000}))
        story.batch((A, {"time": 2000}))
        story.batch((A, {"time": 5000, "conditions": ERROR}))
        assert (story.count("decided_after_waiting"), story.count("waited_us")) == (1, 4000)

    def test_the_order_in_which_spans_are_given_does_not_matter(self) -> None:
        rows = items([Span(A, 5), Span(A, 3), Span(B, 4), Span(A, 1, ERROR)])
        story = Story(ERRORS)
        story.decision = story.sampler.decide(rows)
        assert [each.at for each in story.left] == [1, 3, 5]

    def test_nothing_given_changes_nothing(self) -> None:
        story = Story(ERRORS)
        assert story.batch() == []
        assert story.decision.change.append == ()
        story.batch(A)
        story.batch()
        assert (story.decision.change.append, story.decision.waiting) == ((), 1)
        assert dict(story.decision.holds) == {7: 0}


class TestPriorities:
    def test_a_lone_root_waits_in_the_secondary_cache_and_a_second_span_promotes_it(self) -> None:
        story = Story(ROOTS)
        story.batch(root(A))
        assert (story.count("primary_size"), story.count("secondary_size")) == (0, 1)
        story.batch(A)
        assert (story.count("primary_size"), story.count("secondary_size")) == (1, 0)

    def test_low_stays_low_if_the_same_policy_says_so_again(self) -> None:
        low = {"name": "low", "type": "downgrader", "downgrade_to": "LowPriority", "sub_policy": attribute("x")}
        story = Story(low)
        story.batch(with_error(A))
        story.batch(with_error(A))
        assert story.count("secondary_size") == 1

    def test_another_policy_that_says_low_promotes(self) -> None:
        low = [
            {"name": f"low {k}", "type": "downgrader", "downgrade_to": "LowPriority", "sub_policy": attribute(k, k)}
            for k in ("k0", "k1")
        ]
        story = Story(*low)
        story.batch((A, {"conditions": frozenset({"k0"})}))
        story.batch((A, {"conditions": frozenset({"k1"})}))
        assert (story.count("primary_size"), story.count("secondary_size")) == (1, 0)

    def test_primary_is_never_demoted(self) -> None:
        low = {"name": "low", "type": "downgrader", "downgrade_to": "LowPriority", "sub_policy": attribute("x")}
        story = Story(low)
        story.batch(A)
        story.batch(with_error(A))
        assert (story.count("primary_size"), story.count("secondary_size")) == (1, 0)

    def test_without_a_secondary_cache_low_waits_with_the_others(self) -> None:
        story = Story(ROOTS, secondary=None)
        story.batch(root(A))
        assert story.count("primary_size") == 1

    def test_low_traces_are_evicted_by_their_own_kind_only(self) -> None:
        story = Story(ROOTS, secondary=1, primary=1)
        story.batch(root(A), C)
        story.batch(root(B))
        assert story.reasons == {"evicted_secondary": 1}
        assert story.decision.waiting == 2


class TestEviction:
    def test_the_third_trace_evicts_the_first_which_is_then_not_sampled(self) -> None:
        story = Story(ERRORS, primary=2)
        story.batch(A, B)
        story.batch(C)
        assert (story.decision.dropped, story.reasons) == (1, {"evicted_primary": 1})
        assert story.batch(with_error(A)) == []
        assert story.reasons == {"late_dropped": 1}

    def test_a_trace_that_goes_on_coming_is_evicted_last(self) -> None:
        story = Story(ERRORS, primary=2)
        story.batch(A, B)
        story.batch(A)
        story.batch(C)
        assert story.batch(with_error(A)) == [0, 2, 4]

    def test_a_trace_may_evict_one_that_comes_later_in_its_batch(self) -> None:
        story = Story(ERRORS, primary=1)
        story.batch(A)
        assert story.batch(B, with_error(A)) == []
        assert story.reasons == {"evicted_primary": 1, "late_dropped": 1}

    def test_a_trace_may_be_evicted_in_the_batch_that_it_came_in(self) -> None:
        story = Story(ERRORS, primary=1)
        story.batch(A, A, B)
        assert (story.decision.held, story.decision.skipped, story.decision.dropped) == (1, 2, 0)

    def test_a_decision_that_is_forgotten_is_made_anew(self) -> None:
        story = Story(DROP, ERRORS, not_sampled=1)
        story.batch((A, {"conditions": NOISE}), (B, {"conditions": NOISE}))
        assert story.batch(with_error(A)) == [2]

    def test_a_sampled_trace_that_is_forgotten_waits_again(self) -> None:
        story = Story(ERRORS, sampled=1)
        story.batch(with_error(A), with_error(B))
        assert story.batch(A) == []
        assert story.decision.held == 1

    def test_a_look_up_keeps_a_decision(self) -> None:
        story = Story(ERRORS, sampled=2)
        story.batch(with_error(A), with_error(B))
        story.batch(A)
        story.batch(with_error(C))
        assert story.batch(A) == [4]

    def test_caches_of_no_size_remember_nothing(self) -> None:
        story = Story(ERRORS, sampled=0, not_sampled=0)
        assert story.batch(with_error(A)) == [0]
        assert story.batch(A) == []
        assert story.decision.held == 1

    def test_the_log_is_kept_from_the_oldest_span_that_waits(self) -> None:
        story = Story(ERRORS)
        story.batch(A, A, A, B, B, B)
        assert dict(story.decision.holds) == {7: 0}
        story.batch(with_error(A))
        assert dict(story.decision.holds) == {7: 1}
        story.batch(with_error(B))
        assert dict(story.decision.holds) == {}


class TestCaps:
    def test_a_trace_of_too_many_spans_is_not_sampled(self) -> None:
        story = Story(ERRORS, spans_per_trace=3)
        story.batch(A, A, A)
        assert story.decision.held == 3
        story.batch(A)
        assert story.reasons == {"over_cap": 4}
        assert story.batch(with_error(A)) == []

    def test_a_trace_of_too_many_bytes_is_not_sampled(self) -> None:
        story = Story(ERRORS, bytes_per_trace=250)
        story.batch(A, A)
        story.batch(A)
        assert story.reasons == {"over_cap": 3}
        assert story.count("traces_over_cap") == 1

    def test_a_large_trace_that_a_policy_samples_is_sampled(self) -> None:
        story = Story(ERRORS, spans_per_trace=1)
        assert story.batch(A, with_error(A)) == [0, 1]


class TestDecisionSpans:
    def test_true_releases_what_waits_and_is_not_forwarded(self) -> None:
        story = Story(ERRORS)
        story.batch(A)
        assert story.batch(says(A, True)) == [0]
        assert story.reasons == {"decision_span": 1}
        assert story.batch(A) == [2]

    def test_false_drops_what_waits(self) -> None:
        story = Story(ERRORS)
        story.batch(A)
        assert story.batch(says(A, False)) == []
        assert story.reasons == {"decision_span": 1, "decided_elsewhere": 1}
        assert story.batch(with_error(A)) == []

    def test_it_counts_before_the_other_spans_of_its_batch(self) -> None:
        story = Story(ERRORS)
        assert story.batch(with_error(A), says(A, False)) == []
        assert story.batch(B, says(B, True)) == [2]

    @pytest.mark.parametrize("sampled", [True, False])
    def test_an_existing_decision_wins(self, sampled: bool) -> None:
        story = Story(DROP, ERRORS)
        story.batch(with_error(A) if sampled else (A, {"conditions": NOISE}))
        story.batch(says(A, not sampled))
        assert story.batch(A) == ([2] if sampled else [])

    def test_of_several_the_first_wins(self) -> None:
        story = Story(ERRORS)
        story.batch(says(A, True), says(A, False))
        assert story.reasons == {"decision_span": 2}
        assert story.batch(A) == [2]

    def test_one_for_an_unknown_trace_is_remembered(self) -> None:
        story = Story(ERRORS)
        story.batch(says(A, True))
        assert (story.count("sampled_size"), story.decision.waiting) == (1, 0)

    def test_it_is_no_span_of_the_trace(self) -> None:
        story = Story({"name": "many", "type": "span_count", "min_spans": 2}, not_sampled=0)
        story.batch(says(A, False), A)
        assert story.batch(A) == []

    def test_what_it_releases_names_the_policy_and_the_weight_that_it_names(self) -> None:
        story = Story(ERRORS, DROP)
        story.batch(A)
        story.batch(says(A, True, by="drop", weight=50.0))
        assert story.left == [Left(0, "sampled", "drop", 50.0)]
        story.batch(A, says(B, False, by="errors", weight=9.0))
        assert story.left == [Left(2, "sampled", "drop", 50.0)]
        story.batch(flush=True)
        assert made(story.chosen, story.decision) == [(A, True, "drop", 50.0), (B, False, "errors", 1.0)]

    def test_it_names_the_policy_of_a_trace_that_waited_low(self) -> None:
        story = Story(ROOTS, DROP)
        story.batch(root(A))
        story.batch(says(A, True, by="drop", weight=2.0), B)
        assert story.left == [Left(0, "sampled", "drop", 2.0)]

    def test_what_it_releases_names_no_policy_if_it_names_none(self) -> None:
        story = Story(ERRORS)
        story.batch(A)
        story.batch(says(A, True))
        assert story.left == [Left(0, "sampled", None, 1.0)]


class TestReleases:
    def test_old_traces_are_evicted_and_the_others_stay(self) -> None:
        story = Story(ERRORS)
        story.batch(A, A, A)
        story.batch(B, B, B)
        story.batch(releases=[2])
        assert (story.decision.dropped, story.reasons) == (3, {"evicted_release": 3})
        assert dict(story.decision.holds) == {7: 1}

    def test_the_whole_trace_goes_if_one_span_is_old(self) -> None:
        story = Story(ERRORS)
        story.batch(A, B, B)
        story.batch(A, A, A)
        story.batch(releases=[2])
        assert story.decision.waiting == 0

    def test_what_came_with_the_release_goes_too(self) -> None:
        story = Story(ERRORS)
        story.batch(A, B, C, releases=[2])
        assert (story.decision.held, story.decision.skipped) == (0, 3)

    def test_released_traces_stay_not_sampled(self) -> None:
        story = Story(ERRORS)
        story.batch(A, A, A, releases=[2])
        assert story.batch(with_error(A)) == []


class TestFlush:
    def test_what_waits_leaves_undecided_oldest_first(self) -> None:
        story = Story(ROOTS, ERRORS)
        story.batch(root(C), A, B)
        story.batch(A)
        story.batch(flush=True)
        assert [(each.at, each.kind) for each in story.left] == [
            (2, "flushed"),
            (1, "flushed"),
            (3, "flushed"),
            (0, "flushed"),
        ]
        assert (story.decision.let_go, story.decision.waiting) == (4, 0)

    def test_then_decisions_leave_oldest_first_whatever_they_are(self) -> None:
        story = Story(DROP, ERRORS)
        story.batch(with_error(A), (B, {"conditions": NOISE}), with_error(C), (D, {"conditions": NOISE}))
        story.batch(A, flush=True)
        assert made(story.chosen, story.decision) == [
            (B, False, "drop", 1.0),
            (C, True, "errors", 1.0),
            (D, False, "drop", 1.0),
            (A, True, "errors", 1.0),
        ]
        rows = story.decision.released[-4:]
        assert rows["item"].tolist() == [1, 2, 3, 4]
        assert set(rows["offset"].tolist()) == {COMMAND_AT}

    def test_the_order_of_decisions_outlives_a_restart(self) -> None:
        story = Story(DROP, ERRORS)
        story.batch((B, {"conditions": NOISE}), with_error(C), (D, {"conditions": NOISE}), with_error(A))
        blobs = story.sampler.snapshot()
        story.sampler = Story(DROP, ERRORS).sampler
        for blob in blobs:
            story.sampler.apply(blob)
        story.batch(B, flush=True)
        assert [trace for trace, *_ in made(story.chosen, story.decision)] == [C, D, A, B]

    def test_everything_is_forgotten(self) -> None:
        story = Story(ERRORS)
        story.batch(with_error(A), B)
        story.batch(flush=True)
        assert story.batch(A, B) == []
        assert story.decision.held == 2

    def test_what_comes_with_the_flush_leaves_too(self) -> None:
        story = Story(ERRORS)
        assert story.batch(A, flush=True) == [0]
        assert (story.decision.passed, story.decision.held) == (1, 0)

    def test_shards_number_their_decisions_differently(self) -> None:
        chosen = policies(ERRORS)
        sampler = sampler_of(chosen, SamplerLimits(100, None, 1000, 100), shards=8)
        sampler.decide(items([Span(bytes([n]) * 16, n, ERROR) for n in range(40)]))
        rows = sampler.decide(items([]), commands=commands(chosen, flush=True)).released
        assert len(set(rows["item"].tolist())) == 40
        assert ((rows["item"] - 1) % 8 == (rows["high"] % 8).astype(int)).all()


class TestDryRun:
    def test_what_would_be_dropped_leaves_and_says_so(self) -> None:
        story = Story(DROP, dry_run=True)
        story.batch(A)
        story.batch((A, {"conditions": NOISE}))
        assert story.left == [Left(0, "not_sampled", "drop", 1.0), Left(1, "not_sampled", "drop", 1.0)]
        assert (story.decision.skipped, story.decision.dropped) == (0, 0)

    def test_late_spans_leave_too(self) -> None:
        story = Story(DROP, dry_run=True)
        story.batch((A, {"conditions": NOISE}))
        story.batch(A)
        assert story.left == [Left(1, "not_sampled", "drop", 1.0)]

    def test_so_does_what_is_evicted(self) -> None:
        story = Story(ERRORS, dry_run=True, primary=1)
        story.batch(A)
        story.batch(B)
        assert story.left == [Left(0, "not_sampled", None, 1.0)]

    def test_a_decision_span_never_leaves(self) -> None:
        story = Story(ERRORS, dry_run=True)
        assert story.batch(says(A, True)) == []
        assert story.reasons == {"decision_span": 1}

    def test_what_is_sampled_leaves_as_ever(self) -> None:
        story = Story(ERRORS, dry_run=True)
        story.batch(with_error(A))
        assert story.left == [Left(0, "sampled", "errors", 1.0)]


class TestPlaceholders:
    def test_one_span_leaves_in_place_of_the_trace(self) -> None:
        story = Story(EMITS)
        story.batch((A, {"conditions": NOISE}), A, A)
        assert story.left == [Left(0, "placeholder", "drop", 1.0)]
        assert (story.decision.passed, story.decision.skipped) == (1, 2)

    def test_it_is_the_oldest_that_waited(self) -> None:
        story = Story(EMITS)
        story.batch(A, A)
        story.batch((A, {"conditions": NOISE}))
        assert story.left == [Left(0, "placeholder", "drop", 1.0)]
        assert (story.decision.let_go, story.decision.dropped, story.decision.skipped) == (1, 1, 1)

    def test_late_spans_make_no_second_one(self) -> None:
        story = Story(EMITS)
        story.batch((A, {"conditions": NOISE}))
        assert story.batch(A) == []

    def test_eviction_makes_none(self) -> None:
        story = Story(EMITS, primary=1)
        story.batch(A)
        assert story.batch(B) == []


class TestRatesAndStress:
    def test_a_command_sets_a_rate_from_its_batch_on(self) -> None:
        story = Story(REMOTE)
        assert story.batch(A) == []
        assert story.batch(A, B, rates={"remote": 100}) == [0, 1, 2]
        assert story.batch(C) == [3]

    def test_a_rate_for_another_policy_changes_nothing(self) -> None:
        story = Story({"name": "some", "type": "probabilistic", "sampling_percentage": 0})
        assert story.batch(A, rates={"some": 100}) == []

    def test_under_stress_only_the_trace_id_counts(self) -> None:
        story = Story(ERRORS)
        story.batch(A)
        assert story.batch(with_error(A), B, stress=0.0) == []
        assert story.reasons == {"stress_relief": 3}
        assert story.batch(C, stress=100.0) == [3]
        assert story.batch(D) == [4]
        assert story.count("stress_sampled") == 1

    def test_when_stress_is_over_policies_are_asked_again(self) -> None:
        story = Story(ERRORS)
        story.batch(A, stress=0.0)
        assert story.batch(B, with_error(C), stress=STRESS_IS_OVER) == [2]
        assert story.decision.waiting == 1

    def test_a_rate_limit_lasts_and_fills_again(self) -> None:
        story = Story({"name": "limit", "type": "rate_limiting", "spans_per_second": 2, "burst_capacity": 2})
        assert story.batch(A, B, C) == [0, 1]
        assert story.batch((D, {"time": 499_999})) == []
        assert story.batch((E, {"time": 500_000})) == [4]

    def test_time_that_goes_back_fills_no_limit(self) -> None:
        story = Story({"name": "limit", "type": "rate_limiting", "spans_per_second": 1, "burst_capacity": 1})
        story.batch((A, {"time": 10 * 10**6}))
        assert story.batch((B, {"time": 0})) == []
        assert story.batch((C, {"time": 10 * 10**6})) == []

    def test_bytes_are_limited_alike(self) -> None:
        story = Story({"name": "limit", "type": "bytes_limiting", "bytes_per_second": 100, "burst_capacity": 250})
        assert story.batch(A, B, C) == [0, 1]

    def test_a_trace_that_fails_first_takes_nothing_from_a_limit(self) -> None:
        limit = {"name": "limit", "type": "rate_limiting", "spans_per_second": 1, "burst_capacity": 1}
        story = Story({"name": "both", "type": "and", "and_sub_policy": [ERRORS, limit]})
        assert story.batch(A, B, with_error(C)) == [2]


class TestMemory:
    def test_traces_with_too_many_bytes_shrink_the_primary_cache(self) -> None:
        story = Story(ERRORS, primary=8, waiting_bytes=400)
        story.batch(A, B, C, D, E)
        story.batch(A)
        # 500 bytes of 400 are 1.25 times too many: 8 traces by the square of that.
        assert (story.count("primary_limit"), story.count("primary_size")) == (5, 5)
        story.batch(A)
        # 600 bytes are more than 1.3 times too many: a quarter.
        assert story.count("primary_limit") == 2
        assert story.count("traces_evicted_primary") == 3

    def test_it_grows_again_when_there_is_room(self) -> None:
        story = Story(ERRORS, primary=8, waiting_bytes=400)
        story.batch((A, {"size": 10_000}))
        story.batch(B)
        assert story.count("primary_limit") == 2
        story.batch(with_error(A))
        limits = []
        for _ in range(8):
            story.batch((C, {"size": 1}))
            limits.append(story.count("primary_limit"))
        assert limits == [3, 4, 5, 6, 7, 8, 8, 8]

    def test_waiting_bytes_that_are_not_limited_shrink_nothing(self) -> None:
        story = Story(ERRORS, primary=8)
        story.batch((A, {"size": 10**9}))
        story.batch(A)
        assert story.count("primary_limit") == 8
