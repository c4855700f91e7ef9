"""A flush hands everything to another sampler, of another number of shards: no trace that waits and no decision is
lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sampling.sampler import Sampler
from penstock.sampling.sampler_limits import SamplerLimits
from tests.sampling.reference import Span
from tests.sampling.support import attribute, commands, items, left, made, policies, sampler_of, shard_of

HALF = {"name": "half", "type": "probabilistic", "sampling_percentage": 50}
ROOTS = {"name": "roots", "type": "root_spans", "sub_policy": attribute("important", "k1")}
DROP = {"name": "drop", "type": "downgrader", "downgrade_to": "NotSampled", "sub_policy": attribute("noise", "k2")}
SAMPLED = {"name": "both", "type": "and", "and_sub_policy": [attribute("chosen", "k3"), HALF]}
CHOSEN = policies(attribute("errors", "k0"), DROP, SAMPLED, ROOTS)
AMPLE = SamplerLimits(10_000, 5_000, 10_000, 10_000)
LATER = 9_000
"""Where spans stand that come to the sampler that took over."""


class Shards:
    """A sampler of so many shards."""

    def __init__(self, count: int, limits: SamplerLimits = AMPLE) -> None:
        self.samplers: list[Sampler] = [sampler_of(CHOSEN, limits, count) for _ in range(count)]

    def give(self, spans: list[Span]) -> dict[int, tuple[str, str | None, float]]:
        """What leaves: place by place, as what, by which policy, with which weight."""
        found = {}
        for number, sampler in enumerate(self.samplers):
            own = [span for span in spans if shard_of(span.trace, len(self.samplers)) == number]
            decision = sampler.decide(items(own, CHOSEN))
            found |= {each.at: (each.kind, each.policy, each.weight) for each in left(CHOSEN, decision)}
        return found

    def flush(self) -> tuple[list[int], list[tuple[bytes, bool, str | None, float]]]:
        """The places of spans that waited, and the decisions, in the order in which they are sent on."""
        places: list[int] = []
        numbered: list[tuple[int, tuple[bytes, bool, str | None, float]]] = []
        for sampler in self.samplers:
            decision = sampler.decide(items([]), commands=commands(CHOSEN, flush=True))
            places += [each.at for each in left(CHOSEN, decision)]
            rows = decision.released[len(decision.released) - decision.made :]
            numbered += zip(rows["item"].tolist(), made(CHOSEN, decision), strict=True)
            assert len(sampler) == 0
        return sorted(places), [decision for _, decision in sorted(numbered)]

    def hand_over(self, other: Shards, given: list[Span]) -> None:
        """Everything that this one knows goes to the other one."""
        waited, decisions = self.flush()
        by_place = {span.at: span for span in given}
        # First what waited, then the decisions, each at a place of its own.
        spans = [by_place[at] for at in waited]
        told = [
            Span(trace, LATER // 2 + place, says=sampled, by=policy, weight=weight)
            for place, (trace, sampled, policy, weight) in enumerate(decisions)
        ]
        assert other.give(spans) == {}
        assert other.give(told) == {}


def later(spans: list[Span]) -> list[Span]:
    """A failed span, and a plain one, of every trace."""
    traces = list(dict.fromkeys(span.trace for span in spans))
    failed = [Span(trace, LATER + 3 * place, frozenset({"k0"})) for place, trace in enumerate(traces)]
    return [*failed, *(Span(trace, LATER + 3 * place + 1) for place, trace in enumerate(traces))]


TRACES = st.integers(1, 40).map(lambda n: (n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).to_bytes(16))
BATCHES = st.lists(
    st.lists(
        st.builds(
            Span,
            trace=TRACES,
            at=st.just(0),
            conditions=st.sampled_from(
                [frozenset(), frozenset(), frozenset({"k0"}), frozenset({"k2"}), frozenset({"k3"})]
            ),
            root=st.booleans(),
        ),
        max_size=25,
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize(("before", "after"), [(1, 8), (8, 2), (2, 1), (4, 4)])
@given(batches=BATCHES)
@settings(max_examples=40)
def test_another_number_of_shards_goes_on_as_if_nothing_had_happened(
    before: int, after: int, batches: list[list[Span]]
) -> None:
    old, undisturbed, new = Shards(before), Shards(1), Shards(after)
    given_: list[Span] = []
    for batch in batches:
        own = [replace(span, at=len(given_) + place) for place, span in enumerate(batch)]
        given_ += own
        assert old.give(own) == undisturbed.give(own)
    old.hand_over(new, given_)
    rest = later(given_)
    assert new.give(rest) == undisturbed.give(rest)


def test_all_that_waits_and_all_that_is_decided_survives_two_hand_overs() -> None:
    rng = np.random.default_rng(3)
    traces = [rng.bytes(16) for _ in range(1_000)]
    kinds = [frozenset(), frozenset({"k0"}), frozenset({"k2"})]
    given_ = [Span(trace, place, kinds[place % 3]) for place, trace in enumerate(traces)]
    first, second, third = Shards(1), Shards(8), Shards(2)
    first.give(given_)
    first.hand_over(second, given_)
    second.hand_over(third, given_)
    released = third.give([Span(trace, LATER + place, frozenset({"k0"})) for place, trace in enumerate(traces)])
    waited = {place for place in range(1_000) if place % 3 == 0}
    late = {LATER + place for place in range(1_000) if place % 3 != 2}
    assert set(released) == waited | late
    assert set(released.values()) == {("sampled", "errors", 1.0)}


def test_a_smaller_cache_forgets_the_oldest_decisions_of_the_sampler_before_it() -> None:
    rng = np.random.default_rng(4)
    traces = [rng.bytes(16) for _ in range(400)]
    given_ = [Span(trace, place, frozenset({"k0"})) for place, trace in enumerate(traces)]
    old, new = Shards(8), Shards(1, replace(AMPLE, sampled=200))
    for place in range(0, 400, 40):
        old.give(given_[place : place + 40])
    old.hand_over(new, given_)
    kept = new.give([Span(trace, LATER + place) for place, trace in enumerate(traces)])
    # Shards take turns, so the border is not sharp; the oldest and the newest are on their sides of it.
    newest = [LATER + place for place in range(300, 400)]
    assert len(kept) == 200
    assert set(newest) <= set(kept)
    assert not set(kept) & {LATER + place for place in range(100)}
