"""Tail sampling in plain Python, as the rules say it: one trace at a time, dictionaries, no speed.

It shares the config classes with the sampler, and nothing else.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from fractions import Fraction

from penstock.sampling.policy_config import Policy
from penstock.sampling.sampler_limits import SamplerLimits

PENDING, SAMPLED, NOT_SAMPLED, LOW = "Pending", "Sampled", "NotSampled", "LowPriority"


@dataclass(frozen=True)
class Span:
    """A span; ``at`` is its place in the log, and its name in results."""

    trace: bytes
    at: int
    conditions: frozenset[str] = frozenset()
    """The keys of the attribute policies that it matches."""
    root: bool = False
    says: bool | None = None
    """What it has decided, if it is a decision span."""
    start: int = 0
    end: int = 0
    size: int = 100
    threshold: int | None = None
    time: int = 0
    by: str | None = None
    """The policy that a decision span says has decided, and the weight that it gives to its trace."""
    weight: float = 1.0


@dataclass
class Waiting:
    """What is kept of a trace that waits."""

    arrived: int
    spans: list[Span] = field(default_factory=list)
    low_by: str | None = None

    @property
    def start(self) -> int:
        return min((span.start for span in self.spans if span.start), default=0)


@dataclass(frozen=True)
class Left:
    """A span that has left: its place, as what, by which policy, and its weight."""

    at: int
    kind: str
    policy: str | None
    weight: float


@dataclass
class Result:
    left: list[Left] = field(default_factory=list)
    made: list[tuple[bytes, bool, str | None, float]] = field(default_factory=list)
    """Decisions that were flushed: the trace, whether it is sampled, by which policy, and its weight."""
    reasons: Counter[str] = field(default_factory=Counter)
    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(frozen=True)
class Verdict:
    answer: str
    weight: float = 1.0
    emits: bool = False


class Reference:
    """One shard of so many."""

    def __init__(self, policies: tuple[Policy, ...], limits: SamplerLimits, shards: int, dry_run: bool = False) -> None:
        self.policies, self.shards, self.dry_run = policies, shards, dry_run
        self.most_primary = self.primary_limit = math.ceil(limits.primary / shards)
        self.secondary_limit = None if limits.secondary is None else math.ceil(limits.secondary / shards)
        self.sampled_limit = math.ceil(limits.sampled / shards)
        self.not_sampled_limit = math.ceil(limits.not_sampled / shards)
        self.target = None if limits.waiting_bytes is None else math.ceil(limits.waiting_bytes / shards)
        self.most_spans, self.most_bytes = limits.spans_per_trace, limits.bytes_per_trace
        self.primary: OrderedDict[bytes, Waiting] = OrderedDict()
        self.secondary: OrderedDict[bytes, Waiting] = OrderedDict()
        self.sampled: OrderedDict[bytes, tuple[str | None, float]] = OrderedDict()
        self.not_sampled: OrderedDict[bytes, str | None] = OrderedDict()
        self.rates: dict[str, float] = {}
        self.buckets: dict[str, tuple[Fraction, int]] = {}
        self.stress: float | None = None
        self.uses: dict[bytes, int] = {}
        """When each trace was last put into a cache, or looked up there."""

    # One batch

    def decide(
        self,
        spans: list[Span],
        releases: list[int] = [],  # noqa: B006
        rates: dict[str, float] = {},  # noqa: B006
        flush: bool = False,
    ) -> Result:
        self.result = Result()
        self.rates.update(rates)
        spans = sorted(spans, key=lambda span: span.at)
        if spans:
            self.regulate()
        self.shrink()
        for trace in dict.fromkeys(span.trace for span in spans):
            self.arrive(trace, [span for span in spans if span.trace == trace])
            self.shrink()
        for cache in (self.primary, self.secondary):
            for trace, waiting in list(cache.items()):
                if any(span.at <= stamp for stamp in releases for span in waiting.spans):
                    del cache[trace]
                    self.drop(waiting.spans, None, "evicted_release")
                    self.remember_not_sampled(trace, None)
        if flush:
            self.flush()
        return self.result

    def flush(self) -> None:
        for cache in (self.primary, self.secondary):
            for waiting in cache.values():
                self.leave(waiting.spans, "flushed", None, 1.0)
            cache.clear()
        made = [(trace, True, policy, weight) for trace, (policy, weight) in self.sampled.items()]
        made += [(trace, False, policy, 1.0) for trace, policy in self.not_sampled.items()]
        self.result.made += sorted(made, key=lambda each: self.uses[each[0]])
        self.sampled.clear()
        self.not_sampled.clear()

    # One trace

    def arrive(self, trace: bytes, spans: list[Span]) -> None:
        says = [span for span in spans if span.says is not None]
        spans = [span for span in spans if span.says is None]
        self.result.reasons["decision_span"] += len(says)
        if trace in self.sampled:
            self.use(trace)
            self.sampled.move_to_end(trace)
            self.leave(spans, "sampled", *self.sampled[trace])
            return
        if trace in self.not_sampled:
            self.use(trace)
            self.not_sampled.move_to_end(trace)
            self.drop(spans, self.not_sampled[trace], "late_dropped")
            return
        earlier = self.primary.get(trace) or self.secondary.get(trace) or Waiting(spans[0].time if spans else 0)
        if says:
            verdict = Verdict(SAMPLED if says[0].says else NOT_SAMPLED, says[0].weight)
            self.settle(trace, earlier, spans, verdict, says[0].by, "decided_elsewhere")
            return
        if self.stress is not None:
            kept = self.is_in(self.stress, "default-hash-seed", trace)
            verdict = Verdict(SAMPLED, weight_of(self.stress)) if kept else Verdict(NOT_SAMPLED)
            self.settle(trace, earlier, spans, verdict, None, "stress_relief")
            return
        verdict, policy = Verdict(PENDING), None
        for each in self.policies:
            verdict = self.ask(each, trace, spans, earlier.spans, each.sticky)
            if verdict.answer != PENDING:
                policy = each.name
                break
        if verdict.answer in (SAMPLED, NOT_SAMPLED):
            self.result.decisions[str(policy), verdict.answer] += 1
            self.settle(trace, earlier, spans, verdict, policy, "not_sampled")
            return
        together = earlier.spans + spans
        too_many = self.most_spans is not None and len(together) > self.most_spans
        too_large = self.most_bytes is not None and sum(span.size for span in together) > self.most_bytes
        if too_many or too_large:
            self.settle(trace, earlier, spans, Verdict(NOT_SAMPLED), None, "over_cap")
            return
        if policy is not None:
            self.result.decisions[policy, verdict.answer] += 1
        self.wait(trace, earlier, spans, policy if verdict.answer == LOW else None)

    def wait(self, trace: bytes, earlier: Waiting, spans: list[Span], low_by: str | None) -> None:
        if self.secondary_limit is None:
            low_by = None
        stays_low = trace in self.secondary and earlier.low_by == low_by
        is_new = trace not in self.primary and trace not in self.secondary
        low = low_by is not None and (is_new or stays_low)
        self.primary.pop(trace, None)
        self.secondary.pop(trace, None)
        earlier.spans += spans
        earlier.low_by = low_by if low else None
        (self.secondary if low else self.primary)[trace] = earlier

    def settle(
        self, trace: bytes, earlier: Waiting, spans: list[Span], verdict: Verdict, policy: str | None, reason: str
    ) -> None:
        self.primary.pop(trace, None)
        self.secondary.pop(trace, None)
        if verdict.answer == SAMPLED:
            self.leave(earlier.spans + spans, "sampled", policy, verdict.weight)
            self.sampled[trace] = (policy, verdict.weight)
            self.use(trace)
        else:
            self.drop(earlier.spans + spans, policy, reason, verdict.emits)
            self.remember_not_sampled(trace, policy)

    def leave(self, spans: list[Span], kind: str, policy: str | None, weight: float) -> None:
        self.result.left += [Left(span.at, kind, policy, weight) for span in spans]

    def drop(self, spans: list[Span], policy: str | None, reason: str, emits: bool = False) -> None:
        if self.dry_run:
            self.leave(spans, "not_sampled", policy, 1.0)
            return
        if emits:
            self.leave(spans[:1], "placeholder", policy, 1.0)
            spans = spans[1:]
        self.result.reasons[reason] += len(spans)

    # Caches

    def use(self, trace: bytes) -> None:
        self.uses[trace] = 1 + max(self.uses.values(), default=0)

    def remember_not_sampled(self, trace: bytes, policy: str | None) -> None:
        self.not_sampled[trace] = policy
        self.use(trace)
        while len(self.not_sampled) > self.not_sampled_limit:
            self.not_sampled.popitem(last=False)

    def shrink(self) -> None:
        secondary_limit = self.secondary_limit or 0
        for cache, limit, name in (
            (self.primary, self.primary_limit, "evicted_primary"),
            (self.secondary, secondary_limit, "evicted_secondary"),
        ):
            while len(cache) > limit:
                trace, waiting = cache.popitem(last=False)
                self.drop(waiting.spans, None, name)
                self.remember_not_sampled(trace, None)
        while len(self.sampled) > self.sampled_limit:
            self.sampled.popitem(last=False)

    def regulate(self) -> None:
        if self.target is None:
            return
        waiting = [*self.primary.values(), *self.secondary.values()]
        pressure = sum(span.size for each in waiting for span in each.spans) / self.target
        least = math.ceil(self.most_primary / 4)
        if pressure > 1.3:
            self.primary_limit = least
        elif pressure > 1.15:
            self.primary_limit = max(least, int(self.primary_limit / pressure**2))
        elif pressure > 1.0:
            self.primary_limit = max(least, int(self.primary_limit / pressure))
        elif pressure < 0.85:
            more = max(1, self.primary_limit // 50)
            self.primary_limit = min(self.most_primary, self.primary_limit + more)

    # Policies

    def ask(self, policy: Policy, trace: bytes, new: list[Span], earlier: list[Span], sticky: bool) -> Verdict:
        """What a policy says; ``sticky`` if it, or one that it is a part of, is so."""
        sticky = sticky or policy.sticky
        emits = policy.emit_single_span_for_not_sampled
        spans, seen = earlier + new, (earlier + new if sticky else new)

        def says(met: bool, weight: float = 1.0) -> Verdict:
            return Verdict(SAMPLED if met else PENDING, weight)

        match policy.type:
            case "always_sample":
                return says(True)
            case "probabilistic":
                p = policy.sampling_percentage
                return says(self.is_in(p, policy.hash_salt, trace), weight_of(p))
            case "remote_probabilistic":
                p = self.rates.get(policy.name, policy.default_rate)
                return says(self.is_in(p, policy.hash_salt, trace), weight_of(p))
            case "span_count":
                return says(len(spans) >= policy.min_spans and (not policy.max_spans or len(spans) <= policy.max_spans))
            case "latency":
                starts, ends = [span.start for span in spans if span.start], [span.end for span in spans]
                if not starts or max(ends) < min(starts):
                    return says(False)
                lasted = (max(ends) - min(starts)) // 10**6
                if policy.upper_threshold_ms:
                    return says(policy.threshold_ms < lasted <= policy.upper_threshold_ms)
                return says(lasted >= policy.threshold_ms)
            case "string_attribute":
                met = any(policy.key in span.conditions for span in seen)
                if policy.invert_match:
                    return Verdict(NOT_SAMPLED, emits=emits) if met else Verdict(SAMPLED)
                return says(met)
            case "threshold":
                thresholds = [span.threshold for span in seen if span.threshold is not None]
                if not thresholds or int.from_bytes(trace[-7:]) < min(thresholds):
                    return says(False)
                return says(True, 2.0**56 / float(2**56 - min(thresholds)))
            case "rate_limiting":
                return says(self.take(policy.name, len(spans), policy.spans_per_second, policy.burst_capacity, new))
            case "bytes_limiting":
                size = sum(span.size for span in spans)
                return says(self.take(policy.name, size, policy.bytes_per_second, policy.burst_capacity, new))
            case "and":
                weight = 1.0
                for part in policy.parts:
                    verdict = self.ask(part, trace, new, earlier, sticky)
                    if verdict.answer != SAMPLED:
                        return Verdict(verdict.answer, emits=verdict.emits or emits)
                    weight = max(weight, verdict.weight)
                return Verdict(SAMPLED, weight)
            case "or":
                first = Verdict(PENDING)
                for part in policy.parts:
                    verdict = self.ask(part, trace, new, earlier, sticky)
                    if verdict.answer == SAMPLED:
                        return verdict
                    if first.answer == PENDING:
                        first = verdict
                return Verdict(first.answer, emits=first.emits or emits)
            case "not":
                verdict = self.ask(policy.parts[0], trace, new, earlier, sticky)
                return Verdict(PENDING if verdict.answer == SAMPLED else SAMPLED)
            case "root_spans":
                verdict = self.ask(policy.parts[0], trace, new, earlier, sticky)
                lone_root = len(spans) == 1 and new[0].root
                return Verdict(LOW if verdict.answer != SAMPLED and lone_root else PENDING)
            case "downgrader":
                verdict = self.ask(policy.parts[0], trace, new, earlier, sticky)
                if verdict.answer == SAMPLED:
                    return Verdict(policy.downgrade_to, emits=emits)
                return Verdict(verdict.answer, emits=verdict.emits or emits)
        raise AssertionError(policy.type)

    def is_in(self, percentage: float, salt: str, trace: bytes) -> bool:
        value = 14695981039346656037
        for byte in (salt or "default-hash-seed").encode() + trace:
            value = (value ^ byte) * 1099511628211 % 2**64
        rate = min(Fraction(str(percentage)), Fraction(100))
        return rate > 0 and value <= math.floor((2**64 - 1) * rate / 100)

    def take(self, name: str, amount: int, per_second: int, burst: int, new: list[Span]) -> bool:
        burst, now = burst or 2 * per_second, new[0].time
        full = Fraction(burst, self.shards)
        tokens, filled = self.buckets.get(name, (full, now))
        if now > filled:
            tokens = min(full, tokens + Fraction((now - filled) * per_second, 10**6 * self.shards))
            filled = now
        passes = amount <= burst and tokens >= min(amount, full)
        self.buckets[name] = (tokens - amount if passes else tokens, filled)
        return passes


def weight_of(percentage: float) -> float:
    return 100.0 / percentage if 0 < percentage < 100 else 1.0
