"""State as blobs: what a changed config makes of it, how much is written, and what cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.sampling import sampler as sampler_module
from penstock.sampling.policy_program import PolicyProgram
from penstock.sampling.sampler import Sampler
from penstock.sampling.sampler_limits import SamplerLimits
from tests.sampling.reference import Left, Span
from tests.sampling.support import SECRET, attribute, commands, items, left, policies, sampler_of

LIMITS = SamplerLimits(100, 50, 100, 100)
A, B, C = (bytes([n]) * 16 for n in range(1, 4))
ERROR = frozenset({"k0"})


def restored(blobs: list[bytes], *configs: dict[str, Any], limits: SamplerLimits = LIMITS) -> Sampler:
    sampler = sampler_of(policies(*configs), limits)
    for blob in blobs:
        sampler.apply(blob)
    return sampler


def test_a_blob_of_another_version_is_refused() -> None:
    sampler = sampler_of(policies(attribute("errors")), LIMITS)
    (blob,) = sampler.decide(items([Span(A, 0)])).change.append
    with pytest.raises(ValueError, match="version 77, and this release reads version 3"):
        sampler.apply(b"\x4d" + blob[1:])


def test_a_decision_keeps_its_policy_when_policies_are_added_before_it() -> None:
    sampler = sampler_of(policies(attribute("errors")), LIMITS)
    blobs = list(sampler.decide(items([Span(A, 0, ERROR)])).change.append)
    chosen = policies(attribute("first", "k1"), attribute("errors"))
    again = restored(blobs, attribute("first", "k1"), attribute("errors"))
    assert left(chosen, again.decide(items([Span(A, 3)]))) == [Left(3, "sampled", "errors", 1.0)]


def test_a_decision_of_a_policy_that_is_gone_stays_and_names_none() -> None:
    sampler = sampler_of(policies(attribute("errors")), LIMITS)
    blobs = list(sampler.decide(items([Span(A, 0, ERROR)])).change.append)
    again = restored(blobs, attribute("others", "k1"))
    assert left(policies(attribute("others", "k1")), again.decide(items([Span(A, 3)]))) == [
        Left(3, "sampled", None, 1.0)
    ]


def test_a_sticky_condition_is_found_again_under_another_bit() -> None:
    both = {"name": "both", "type": "and", "and_sub_policy": [attribute("x", "k0", sticky=True), attribute("y", "k1")]}
    chosen = policies(both)
    before = PolicyProgram.of(chosen, {"x": 0, "y": 1}, ["X", "Y"])
    after = PolicyProgram.of(chosen, {"x": 5, "y": 3}, ["a", "b", "c", "Y", "e", "X"])
    sampler = Sampler(before, LIMITS, 1, SECRET)
    blobs = sampler.decide(items([Span(A, 0, frozenset({"k0"})), Span(B, 1)])).change.append
    again = Sampler(after, LIMITS, 1, SECRET)
    for blob in blobs:
        again.apply(blob)
    rows = items([Span(A, 3), Span(B, 4)])
    rows["mask"] = 1 << 3
    assert [each.at for each in left(chosen, again.decide(rows))] == [0, 3]


def test_a_sticky_condition_that_is_gone_is_forgotten() -> None:
    chosen = policies(attribute("x", "k0", sticky=True))
    sampler = Sampler(PolicyProgram.of(chosen, {"x": 0}, ["X"]), SamplerLimits(9, None, 9, 9), 1, SECRET)
    low = {"name": "x", "type": "and", "and_sub_policy": [attribute("z", "k0", sticky=True), attribute("y", "k1")]}
    blobs = sampler.decide(items([Span(A, 0)])).change.append
    again = Sampler(PolicyProgram.of(policies(low), {"z": 0, "y": 1}, ["Z", "Y"]), LIMITS, 1, SECRET)
    for blob in blobs:
        again.apply(blob)
    assert left(policies(low), again.decide(items([Span(A, 3, frozenset({"k1"}))]))) == []


def test_a_changed_policy_changes_no_decision_that_was_made() -> None:
    sampler = sampler_of(policies(attribute("errors")), LIMITS)
    blobs = list(sampler.decide(items([Span(A, 0, ERROR), Span(B, 1)])).change.append)
    again = restored(blobs, attribute("errors", invert_match=True))
    assert again.snapshot() == sampler.snapshot()


def test_smaller_caches_evict_at_the_next_batch() -> None:
    sampler = sampler_of(policies(attribute("errors")), LIMITS)
    blobs = list(sampler.decide(items([Span(A, 0), Span(B, 1), Span(C, 2)])).change.append)
    again = restored(blobs, attribute("errors"), limits=SamplerLimits(1, None, 100, 100))
    assert len(again) == 3
    decision = again.decide(items([]))
    assert (decision.dropped, decision.waiting) == (2, 1)


def test_a_larger_primary_cache_counts_at_once() -> None:
    sampler = sampler_of(policies(attribute("errors")), SamplerLimits(1, None, 9, 9))
    blobs = list(sampler.decide(items([Span(A, 0)])).change.append)
    again = restored(blobs, attribute("errors"), limits=SamplerLimits(2, None, 9, 9))
    assert again.decide(items([Span(B, 3)])).waiting == 2


def test_rates_limits_and_stress_outlive_a_restart() -> None:
    remote = {"name": "remote", "type": "remote_probabilistic", "rate_from": "f", "default_rate": 0}
    limit = {"name": "limit", "type": "rate_limiting", "spans_per_second": 1, "burst_capacity": 1}
    chosen = policies({"name": "both", "type": "and", "and_sub_policy": [remote, limit]})
    sampler = sampler_of(chosen, LIMITS)
    blobs = list(sampler.decide(items([]), commands=commands(chosen, {"remote": 100.0})).change.append)
    blobs += sampler.decide(items([Span(A, 0)])).change.append
    again = sampler_of(chosen, LIMITS)
    for blob in blobs:
        again.apply(blob)
    assert len(again.decide(items([Span(B, 3)])).released) == 0
    assert len(again.decide(items([Span(C, 6, time=10**6)])).released) == 1
    (blob,) = again.decide(items([]), commands=commands(chosen, stress=100.0)).change.append
    sampler.apply(blob)
    assert len(sampler.decide(items([Span(bytes(16), 9)])).released) == 1


def test_all_is_written_anew_once_the_moves_outweigh_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "LEAST_BYTES", 2000)
    chosen = policies(attribute("errors"))
    sampler = sampler_of(chosen, SamplerLimits(5, None, 5, 5))
    blobs: list[bytes] = []
    anew = most = 0
    for batch in range(60):
        rows = items([Span(bytes([batch, n] * 8), 30 * batch + n) for n in range(10)])
        change = sampler.decide(rows).change
        del blobs[: change.drop]
        blobs += change.append
        anew += change.drop > 0
        most = max(most, sum(map(len, blobs)))
    assert anew >= 3
    assert most < 12_000
    assert restored(blobs, attribute("errors"), limits=SamplerLimits(5, None, 5, 5)).snapshot() == sampler.snapshot()


def test_a_large_state_is_written_in_several_blobs_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of(policies(attribute("errors")), SamplerLimits(10**6, None, 10**6, 10**6))
    count = 150_000
    rows = np.repeat(items([Span(A, 0)]), count)
    numbers = np.arange(count)
    rows["high"], rows["low"] = numbers // 2 * 7919, numbers // 2
    rows["order"] = rows["offset"] = numbers
    rows["mask"] = numbers // 2 % 5 == 0
    sampler.decide(rows)
    blobs = sampler.snapshot()
    assert len(blobs) > 2
    again = restored(blobs, attribute("errors"), limits=SamplerLimits(10**6, None, 10**6, 10**6))
    assert again.snapshot() == blobs
    assert len(again) == len(sampler) == count * 4 // 5


def test_blobs_that_were_dropped_are_not_counted() -> None:
    chosen = policies(attribute("errors"))
    sampler = sampler_of(chosen, LIMITS)
    for n in range(3):
        sampler.decide(items([Span(A, 3 * n)]))
    sampler.drop(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler_module, "MOST_BLOBS", 1)
        assert sampler.decide(items([Span(A, 30)])).change.drop == 1
