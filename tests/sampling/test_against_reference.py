"""The sampler against the plain reference: any policies, any spans in any batches, with restarts from blobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sampling import sampler as sampler_module
from penstock.sampling.policy_config import Policy, all_policies
from penstock.sampling.sampler import Sampler
from penstock.sampling.sampler_limits import SamplerLimits
from tests.sampling.reference import Reference, Result, Span
from tests.sampling.support import (
    CONDITIONS,
    commands,
    items,
    left,
    made,
    policies,
    sampler_of,
    shard_of,
    stamps,
)

TRACES = [bytes([n]) * 8 + bytes([255 - 7 * n]) * 8 for n in range(14)]

flags = st.fixed_dictionaries(
    {"sticky": st.booleans(), "emit_single_span_for_not_sampled": st.sampled_from([False, False, True])}
)


def _leaf(kind: str, **options: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda own, common: {"type": kind, **own, **common}, st.fixed_dictionaries(options), flags)


percentages = st.sampled_from([-1.0, 0.0, 0.5, 10.0, 33.3, 64.9, 65.0, 100.0, 250.0])
leaves = st.one_of(
    _leaf("probabilistic", sampling_percentage=percentages, hash_salt=st.sampled_from(["", "a", "other"])),
    _leaf("remote_probabilistic", default_rate=percentages, rate_from=st.just("file")),
    _leaf("span_count", min_spans=st.integers(0, 6), max_spans=st.sampled_from([0, 0, 6])),
    _leaf("latency", threshold_ms=st.integers(0, 5), upper_threshold_ms=st.sampled_from([0, 0, 6])),
    _leaf("string_attribute", key=st.sampled_from(CONDITIONS), values=st.just(["x"]), invert_match=st.booleans()),
    _leaf("string_attribute", key=st.sampled_from(CONDITIONS), values=st.just(["x"])),
    _leaf("threshold"),
    _leaf("rate_limiting", spans_per_second=st.integers(1, 4), burst_capacity=st.sampled_from([0, 1, 9])),
    _leaf("bytes_limiting", bytes_per_second=st.integers(100, 900), burst_capacity=st.sampled_from([0, 150])),
)


def _combined(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    many = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        _leaf("and", and_sub_policy=many),
        _leaf("or", or_sub_policy=many),
        _leaf("not", not_sub_policy=parts),
        _leaf("root_spans", sub_policy=parts),
        _leaf("root_spans", sub_policy=parts),
        _leaf("downgrader", sub_policy=parts, downgrade_to=st.sampled_from(["Pending", "NotSampled", "LowPriority"])),
    )


trees = st.lists(st.recursive(leaves, _combined, max_leaves=5), min_size=1, max_size=4)


def _named(tree: list[dict[str, Any]]) -> tuple[Policy, ...]:
    count = 0

    def name(policy: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        count += 1
        named = {**policy, "name": f"p{count}"}
        for key, value in policy.items():
            if key.endswith("sub_policy"):
                named[key] = [name(part) for part in value] if isinstance(value, list) else name(value)
        return named

    return policies(*(name(policy) for policy in tree))


spans = st.builds(
    Span,
    trace=st.sampled_from(TRACES),
    at=st.just(0),
    conditions=st.frozensets(st.sampled_from(CONDITIONS), max_size=2),
    root=st.booleans(),
    says=st.sampled_from([None] * 12 + [True, False]),
    by=st.sampled_from([None, "p1"]),
    weight=st.sampled_from([1.0, 4.0]),
    start=st.sampled_from([0, 10**18, 10**18 + 10**6, 10**18 + 3 * 10**6]),
    end=st.sampled_from([0, 10**18, 10**18 + 10**6, 10**18 + 5 * 10**6 - 1, 10**18 + 6 * 10**6]),
    size=st.integers(1, 200),
    threshold=st.sampled_from([None, None, 0, 2**55, 2**56 - 1, 0xF8F8F8F8F8F8F8]),
    time=st.just(0),
)


@dataclass(frozen=True)
class Batch:
    spans: list[Span]
    seconds: float
    """How much later than the one before."""
    release: int | None
    """How many records back everything is released."""
    rates: float | None
    stress: float | None
    flush: bool
    restart: bool
    order: int
    """Draws the order in which the spans are given."""


one_batch = st.builds(
    Batch,
    spans=st.lists(spans, max_size=12),
    seconds=st.sampled_from([0.0, 0.1, 1.0, 10.0, -1.0]),
    release=st.sampled_from([None] * 6 + [0, 1, 4]),
    rates=st.sampled_from([None] * 4 + [0.0, 50.0, 100.0]),
    stress=st.sampled_from([None] * 10 + [50.0, float("nan"), float("nan")]),
    flush=st.sampled_from([False] * 9 + [True]),
    restart=st.booleans(),
    order=st.integers(0, 5),
)
batches = st.lists(one_batch, min_size=1, max_size=8)
tiny = st.builds(
    SamplerLimits,
    primary=st.integers(1, 4),
    secondary=st.sampled_from([None, 1, 2]),
    sampled=st.integers(0, 3),
    not_sampled=st.integers(0, 3),
    waiting_bytes=st.sampled_from([None, 300, 1000]),
    spans_per_trace=st.sampled_from([None, 3]),
    bytes_per_trace=st.sampled_from([None, 350]),
)
large = st.builds(
    SamplerLimits,
    primary=st.just(1000),
    secondary=st.sampled_from([None, 500]),
    sampled=st.just(1000),
    not_sampled=st.just(1000),
    spans_per_trace=st.sampled_from([None, 3]),
)


class Shard:
    """A sampler and the reference of one shard, kept in step; and the blobs that the sampler has written."""

    def __init__(self, chosen: tuple[Policy, ...], limits: SamplerLimits, shards: int, dry_run: bool) -> None:
        self.made_with = (chosen, limits, shards, dry_run)
        self.chosen = chosen
        self.sampler = sampler_of(*self.made_with)
        self.reference = Reference(*self.made_with)
        self.blobs: list[bytes] = []
        self.waiting = 0

    def restored(self) -> Sampler:
        sampler = sampler_of(*self.made_with)
        for blob in self.blobs:
            sampler.apply(blob)
        return sampler

    def decide(self, given: list[Span], batch: Batch, end: int) -> Result:
        releases = [] if batch.release is None else [end - 1 - 3 * batch.release]
        remote = [each.name for each in all_policies(self.chosen) if each.type == "remote_probabilistic"]
        rates = {} if batch.rates is None else dict.fromkeys(remote, batch.rates)
        told = commands(self.chosen, rates, batch.stress, batch.flush)
        rows = items(given, self.chosen)
        shuffled = np.random.default_rng(batch.order).permutation(len(rows)) if batch.order else np.arange(len(rows))
        decision = self.sampler.decide(rows[shuffled], [], stamps(releases), told)
        decision.check("sample", len(given))
        if batch.stress is not None:
            self.reference.stress = None if batch.stress != batch.stress else batch.stress
        expected = self.reference.decide(given, releases, rates, batch.flush)
        assert left(self.chosen, decision) == expected.left
        assert made(self.chosen, decision) == expected.made
        assert decision.reasons == +expected.reasons
        assert sum(decision.reasons.values()) == decision.skipped + decision.dropped
        told_counts = {key: n for key, n in decision.counts.items() if key.startswith("decision/")}
        assert told_counts == {f"decision/{name}/{answer}": n for (name, answer), n in expected.decisions.items()}
        self._check_state(decision.waiting, dict(decision.holds), decision.levels)
        waited = self.waiting + decision.held - decision.let_go - decision.dropped
        assert decision.waiting == waited
        self.waiting = waited
        del self.blobs[: decision.change.drop]
        self.blobs += decision.change.append
        if batch.restart:
            again = self.restored()
            assert again.snapshot() == self.sampler.snapshot()
            again.drop(0)
            self.sampler = again
        return expected

    def _check_state(self, waiting: int, holds: dict[int, int], counts: Any) -> None:
        reference = self.reference
        kept = [
            span for cache in (reference.primary, reference.secondary) for each in cache.values() for span in each.spans
        ]
        assert waiting == len(kept) == len(self.sampler)
        assert holds == ({7: min(span.at // 3 for span in kept)} if kept else {})
        assert counts["primary_size"] == len(reference.primary)
        assert counts["secondary_size"] == len(reference.secondary)
        assert counts["sampled_size"] == len(reference.sampled)
        assert counts["not_sampled_size"] == len(reference.not_sampled)
        assert counts["primary_limit"] == reference.primary_limit
        assert counts["waiting_bytes"] == sum(span.size for span in kept)


def _numbered(taken: list[Batch]) -> list[tuple[list[Span], Batch, int]]:
    """Spans with their places and times. Every batch begins a new record."""
    at, time, found = 0, 0, []
    for batch in taken:
        at += -at % 3
        time += int(batch.seconds * 10**6)
        own = []
        for span in batch.spans:
            own.append(Span(**{**vars(span), "at": at, "time": time}))
            at += 1
        found.append((own, batch, at + -at % 3))
    return found


@given(trees, tiny, batches, st.sampled_from([1, 2]), st.sampled_from([False, False, True]))
@settings(max_examples=400)
def test_a_shard_decides_as_the_reference_does(
    tree: list[dict[str, Any]], limits: SamplerLimits, taken: list[Batch], shards: int, dry_run: bool
) -> None:
    chosen = _named(tree)
    every = [Shard(chosen, limits, shards, dry_run) for _ in range(shards)]
    for own, batch, end in _numbered(taken):
        for number, shard in enumerate(every):
            shard.decide([span for span in own if shard_of(span.trace, shards) == number], batch, end)


@given(trees, tiny, batches)
@settings(max_examples=60)
def test_what_is_written_anew_is_the_same_state(
    tree: list[dict[str, Any]], limits: SamplerLimits, taken: list[Batch]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler_module, "MOST_BLOBS", 2)
        shard = Shard(_named(tree), limits, 1, False)
        for own, batch, end in _numbered(taken):
            shard.decide(own, batch, end)
            assert shard.restored().snapshot() == shard.sampler.snapshot()


unlimited = st.lists(
    st.recursive(leaves.filter(lambda leaf: "limiting" not in leaf["type"]), _combined, max_leaves=5),
    min_size=1,
    max_size=4,
)


@given(unlimited, large, batches)
@settings(max_examples=60)
def test_any_number_of_shards_decides_alike_while_nothing_overflows(
    tree: list[dict[str, Any]], limits: SamplerLimits, taken: list[Batch]
) -> None:
    chosen = _named(tree)
    outcomes = []
    for shards in (1, 2, 8):
        every = [Shard(chosen, limits, shards, False) for _ in range(shards)]
        outcome: Counter[Any] = Counter()
        for number, (own, batch, end) in enumerate(_numbered(taken)):
            for place, shard in enumerate(every):
                result = shard.decide([span for span in own if shard_of(span.trace, shards) == place], batch, end)
                outcome.update((number, each) for each in (*result.left, *result.made))
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1] == outcomes[2]
