"""Logs that follow the decisions on their traces, against the plain reference; and what they never do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.holding.decision import Decision
from penstock.holding.item import Items
from penstock.sampling.following import followed_sampler as module
from penstock.sampling.following.followed_sampler import FollowedSampler
from penstock.sampling.following.waiting_logs import WaitingLogs
from penstock.sampling.policy_config import Policy, all_policies
from penstock.sampling.sampler import Sampler
from penstock.sampling.sampler_limits import SamplerLimits
from penstock.sampling.span_item import LOG
from tests.sampling.logs_reference import FollowedReference, FollowedResult, Log
from tests.sampling.reference import Span
from tests.sampling.support import CONDITIONS, SECRET, commands, items, left, made, policies, program_of, stamps
from tests.sampling.test_against_reference import TRACES, Batch, _named, large, one_batch, tiny, trees

ERRORS = {"type": "string_attribute", "key": CONDITIONS[0], "values": ["x"], "name": "errors"}
DROP = {"type": "downgrader", "name": "drop", "downgrade_to": "NotSampled", "sub_policy": {**ERRORS, "name": "inner"}}
ROOMY = SamplerLimits(primary=100, secondary=None, sampled=100, not_sampled=100)


def followed(
    chosen: tuple[Policy, ...], limits: SamplerLimits, dry_run: bool = False, follows: bool = True, shards: int = 1
) -> FollowedSampler:
    own = limits.split(shards)
    sampler = Sampler(program_of(chosen), limits, shards, SECRET, dry_run, followed=follows)
    return FollowedSampler(sampler, WaitingLogs(limit_of(own)), follows, dry_run)


def limit_of(own: SamplerLimits) -> int:
    return 2 * own.primary + (own.secondary or 0)


def log_items(logs: list[Log]) -> Items:
    rows = items([Span(log.trace, log.at) for log in logs])
    rows["mask"], rows["size"], rows["threshold"] = LOG, 0, 0
    return rows


@dataclass(frozen=True)
class WithLogs:
    batch: Batch
    logs: list[bytes]
    """The traces of the logs, which stand behind the spans."""


with_logs = st.lists(
    st.builds(
        WithLogs,
        one_batch,
        st.lists(st.sampled_from([*TRACES, b"only logs 123456", b"only logs 654321"]), max_size=8),
    ),
    min_size=1,
    max_size=8,
)


class Shard:
    def __init__(self, chosen: tuple[Policy, ...], limits: SamplerLimits, dry_run: bool) -> None:
        self.made_with = (chosen, limits, dry_run)
        self.chosen, self.limits = chosen, limits
        self.sampler = followed(*self.made_with)
        self.reference = FollowedReference(chosen, limits, 1, dry_run)
        self.waiting: dict[bytes, list[Log]] = {}
        self.held = 0
        self.blobs: list[bytes] = []

    def decide(self, spans: list[Span], logs: list[Log], batch: Batch, end: int) -> None:
        releases = [] if batch.release is None else [end - 1 - 3 * batch.release]
        remote = [each.name for each in all_policies(self.chosen) if each.type == "remote_probabilistic"]
        rates = {} if batch.rates is None else dict.fromkeys(remote, batch.rates)
        told = commands(self.chosen, rates, batch.stress, batch.flush)
        rows = np.concatenate([items(spans, self.chosen), log_items(logs)])
        shuffled = np.random.default_rng(batch.order).permutation(len(rows)) if batch.order else np.arange(len(rows))
        decision = self.sampler.decide(rows[shuffled], [], stamps(releases), told)
        decision.check("sample", len(rows))
        if batch.stress is not None:
            self.reference.stress = None if batch.stress != batch.stress else batch.stress
        expected = self.reference.follow(spans, logs, self.waiting, releases, rates, batch.flush, limit_of(self.limits))
        self._check(decision, expected)
        del self.blobs[: decision.change.drop]
        self.blobs += decision.change.append
        if batch.restart:
            again = followed(*self.made_with)
            for blob in self.blobs:
                again.apply(blob)
            assert again.snapshot() == self.sampler.snapshot()
            self.sampler = again

    def _check(self, decision: Decision, expected: FollowedResult) -> None:
        found, spans = left(self.chosen, decision), len(expected.spans.left)
        assert found[:spans] == expected.spans.left
        assert sorted(found[spans:], key=lambda each: each.at) == sorted(expected.left, key=lambda each: each.at)
        assert made(self.chosen, decision) == expected.spans.made
        assert decision.reasons == dict(+expected.spans.reasons) | expected.reasons
        assert sum(decision.reasons.values()) == decision.skipped + decision.dropped
        assert decision.levels["logs_size"] == len(self.waiting)
        kept = [log.at for each in self.waiting.values() for log in each] + [
            span.at
            for cache in (self.reference.primary, self.reference.secondary)
            for each in cache.values()
            for span in each.spans
        ]
        assert decision.waiting == len(kept) == len(self.sampler)
        assert dict(decision.holds) == ({7: min(kept) // 3} if kept else {})
        self.held += decision.held - decision.let_go - decision.dropped
        assert self.held == len(kept)


def _run(shard: Shard, taken: list[WithLogs]) -> None:
    at, time = 0, 0
    for each in taken:
        time += int(each.batch.seconds * 10**6)
        spans = [Span(**{**vars(span), "at": at + place, "time": time}) for place, span in enumerate(each.batch.spans)]
        logs = [Log(trace, at + len(spans) + place) for place, trace in enumerate(each.logs)]
        at += len(spans) + len(logs)
        at += -at % 3
        shard.decide(spans, logs, each.batch, at)


@given(trees, st.one_of(tiny, large), with_logs, st.sampled_from([False, False, True]))
@settings(max_examples=300)
def test_logs_follow_as_the_reference_says(
    tree: list[dict[str, Any]], limits: SamplerLimits, taken: list[WithLogs], dry_run: bool
) -> None:
    _run(Shard(_named(tree), limits, dry_run), taken)


@given(trees, tiny, with_logs)
@settings(max_examples=60)
def test_what_is_written_anew_is_the_same_state(
    tree: list[dict[str, Any]], limits: SamplerLimits, taken: list[WithLogs]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_BLOBS", 2)
        _run(Shard(_named(tree), limits, False), taken)


def _decide(state: FollowedSampler, *rows: Items, **options: Any) -> Decision:
    given = np.concatenate(rows)
    decision = state.decide(given, **options)
    decision.check("sample", len(given))
    return decision


def test_logs_wait_for_a_trace_that_is_not_known_and_leave_with_it() -> None:
    chosen = policies(ERRORS)
    state = followed(chosen, ROOMY)
    waits = _decide(state, log_items([Log(TRACES[1], 0), Log(TRACES[1], 1), Log(TRACES[2], 2)]))
    assert (waits.held, waits.waiting, dict(waits.holds)) == (3, 3, {7: 0})
    goes = _decide(state, items([Span(TRACES[1], 3, frozenset(CONDITIONS[:1]))]))
    assert [(each.at, each.kind, each.policy) for each in left(chosen, goes)] == [
        (3, "sampled", "errors"), (0, "sampled", "errors"), (1, "sampled", "errors")
    ]  # fmt: skip
    late = _decide(state, log_items([Log(TRACES[1], 6)]))
    assert (late.passed, late.counts["logs_sampled"]) == (1, 1)


def test_logs_of_a_trace_that_is_not_sampled_are_skipped_and_counted() -> None:
    state = followed(policies(DROP), ROOMY)
    _decide(state, log_items([Log(TRACES[1], 0)]))
    gone = _decide(state, items([Span(TRACES[1], 3, frozenset(CONDITIONS[:1]))]), log_items([Log(TRACES[1], 4)]))
    assert gone.reasons == {"not_sampled": 1, "logs_not_sampled": 2}
    assert (gone.skipped, gone.dropped, gone.waiting) == (2, 1, 0)


def test_logs_refresh_no_trace_and_evict_none() -> None:
    """A flood of logs of traces that never come takes no place of a trace that waits, and none of its logs either."""
    limits = SamplerLimits(primary=2, secondary=None, sampled=2, not_sampled=2)
    state = followed(policies(ERRORS), limits)
    _decide(state, items([Span(TRACES[1], 0), Span(TRACES[2], 1)]), log_items([Log(TRACES[1], 2)]))
    flood = [Log(n.to_bytes(16, "big"), 3 + n) for n in range(1, 40)]
    flooded = _decide(state, log_items([*flood, Log(TRACES[1], 100)]))
    assert flooded.levels["primary_size"] == 2
    assert set(flooded.reasons) == {"logs_evicted"}
    # The oldest trace is still the oldest, whatever logs it got.
    evicts = _decide(state, items([Span(TRACES[3], 120)]))
    assert evicts.reasons == {"evicted_primary": 1, "logs_not_sampled": 2}


def test_logs_that_were_evicted_decide_nothing_on_their_trace() -> None:
    limits = SamplerLimits(primary=1, secondary=None, sampled=9, not_sampled=9)
    state = followed(policies(ERRORS), limits)
    _decide(state, log_items([Log(trace, place) for place, trace in enumerate(TRACES[:6])]))
    sampled = _decide(state, items([Span(TRACES[0], 30, frozenset(CONDITIONS[:1]))]))
    assert (sampled.passed, sampled.let_go) == (1, 0)


def test_logs_that_wait_go_on_as_they_are_when_nothing_follows_any_more() -> None:
    before = followed(policies(ERRORS), ROOMY)
    change = _decide(before, items([Span(TRACES[1], 0)]), log_items([Log(TRACES[1], 1), Log(TRACES[2], 2)])).change
    after = followed(policies(ERRORS), ROOMY, follows=False)
    for blob in change.append:
        after.apply(blob)
    goes = _decide(after, items([]))
    assert (goes.let_go, goes.waiting, goes.released["bits"].tolist()) == (2, 1, [1 << 31] * 2)
    assert _decide(after, items([])).let_go == 0


def test_a_state_without_logs_is_what_the_sampler_writes() -> None:
    plain = Sampler(program_of(policies(ERRORS)), ROOMY, 1, SECRET)
    state = followed(policies(ERRORS), ROOMY)
    spans = items([Span(TRACES[1], 0)])
    assert list(_decide(state, spans).change.append) == list(plain.decide(spans).change.append)
