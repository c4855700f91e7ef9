"""The policies of a sampler as a program: flat arrays that compiled code runs over, and what is known of them outside.

A policy's place in the arrays is its number (``all_policies``): each stands before its parts, and ``after`` says where
those end. What changes while a sampler runs (rates that are set by a command, how much of a limit is left) is in
registers, which belong to one shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from penstock.sampling.policy_config import (
    DEFAULT_SALT,
    AlwaysSamplePolicy,
    AndPolicy,
    Answer,
    AttributePolicy,
    BytesLimitingPolicy,
    DowngraderPolicy,
    LatencyPolicy,
    NotPolicy,
    OrPolicy,
    Policy,
    ProbabilisticPolicy,
    RateLimitingPolicy,
    RemoteProbabilisticPolicy,
    RootSpansPolicy,
    SpanCountPolicy,
    ThresholdPolicy,
    all_policies,
)
from penstock.sampling.span_item import NO_POLICY

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

PENDING, SAMPLED, NOT_SAMPLED, LOW_PRIORITY = range(4)
"""What a policy says, as compiled code knows it."""
ANSWERS = (Answer.PENDING, Answer.SAMPLED, Answer.NOT_SAMPLED, Answer.LOW_PRIORITY)

ALWAYS, CONDITION, INVERTED, PROBABILISTIC, SPAN_COUNT, LATENCY, THRESHOLD, SPANS_LIMIT, BYTES_LIMIT = range(9)
AND, OR, NOT, ROOT_SPANS, DOWNGRADER = range(9, 14)
"""Kinds of policies. From ``AND`` on they have parts."""

TOKENS_EACH = 10**6
"""Limits are counted in millionths, so that what comes in a microsecond is a whole number."""


NODE = np.dtype(
    [
        ("kind", "<i8"),
        ("after", "<i8"),
        ("emits", "?"),
        ("sticky", "?"),
        ("bit", "<u8"),
        ("low", "<i8"),
        ("high", "<i8"),
        ("salted", "<u8"),
    ]
)
"""A policy: its kind, the number of the first one that is not a part of it, its flags, the bit of its condition in a
span's ``mask``, and the state of the hash after its salt. ``low`` is the lower bound of a count or of milliseconds,
what a limit grants per second, or what a downgrader says; ``high`` is the upper bound, 0 for none, or how much a limit
grants at once. What does not belong to its kind is 0."""

REGISTER = np.dtype([("rate", "<f8"), ("bound", "<u8"), ("tokens", "<i8"), ("filled", "<i8")])
"""What changes of a policy while a sampler runs: its rate (percent) and the largest hash that it samples; what is left
of its limit, and when it was last added to (µs)."""

# Rows and not columns: compiled code passes few arrays on faster than many.
Nodes = npt.NDArray[np.void]
"""Rows of ``NODE``."""
Registers = npt.NDArray[np.void]
"""Rows of ``REGISTER``."""

NEVER_FILLED = -(2**62)


@dataclass(frozen=True)
class PolicyProgram:
    nodes: Nodes
    names: tuple[str, ...]
    """By number."""
    rates: tuple[float, ...]
    """The rates to begin with, by number."""
    remote: frozenset[int]
    """The numbers of those whose rate a command may set."""
    depth: int
    sticky_bits: int
    """The conditions that are kept for later arrivals."""
    conditions: tuple[str, ...]
    """By bit, what each condition is, in words that mean the same in every config."""

    @classmethod
    def of(cls, policies: Sequence[Policy], bits: Mapping[str, int], conditions: Sequence[str] = ()) -> PolicyProgram:
        """``bits`` gives the bit of each policy that has a condition on spans, by its name."""
        every = list(all_policies(tuple(policies)))
        if len(every) >= NO_POLICY:
            raise ValueError(f"{len(every)} policies are too many: at most {NO_POLICY - 1}")
        sticky = [name for policy in policies for name in _sticky_names(policy, False)]
        rows = [_row(policy, number, bits, policy.name in sticky) for number, policy in enumerate(every)]
        return cls(
            nodes=np.array(rows, NODE),
            names=tuple(policy.name for policy in every),
            rates=tuple(_first_rate(policy) for policy in every),
            remote=frozenset(n for n, policy in enumerate(every) if isinstance(policy, RemoteProbabilisticPolicy)),
            depth=max(map(_depth, policies), default=0),
            sticky_bits=sum({1 << bits[name] for name in sticky if name in bits}),
            conditions=tuple(conditions),
        )

    def new_registers(self) -> Registers:
        """As they are before the first batch: all limits are full."""
        registers = np.zeros(len(self.names), REGISTER)
        registers["rate"] = self.rates
        registers["bound"] = [hash_bound(rate) for rate in self.rates]
        registers["tokens"] = np.where(self.is_limit, self.nodes["high"] * TOKENS_EACH, 0)
        registers["filled"] = NEVER_FILLED
        return registers

    @property
    def is_limit(self) -> Flags:
        """By number."""
        return np.isin(self.nodes["kind"], (SPANS_LIMIT, BYTES_LIMIT))


def hash_bound(percentage: float) -> int:
    """The largest hash that is sampled at so many percent, as they are written in decimals: no bit is lost."""
    return int((2**64 - 1) * min(max(Fraction(str(percentage)), Fraction(0)), Fraction(100)) / 100)


def salted_hash(salt: str) -> int:
    """The state of FNV-1a with 64 bits after the salt."""
    state = 0xCBF29CE484222325
    for byte in (salt or DEFAULT_SALT).encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def _row(policy: Policy, number: int, bits: Mapping[str, int], sticky: bool) -> tuple[object, ...]:
    kind, low, high, salt = _kind(policy), 0, 0, np.uint64(0)
    match policy:
        case ProbabilisticPolicy() | RemoteProbabilisticPolicy():
            salt = np.uint64(salted_hash(policy.hash_salt))
        case SpanCountPolicy():
            low, high = policy.min_spans, policy.max_spans
        case LatencyPolicy():
            low, high = policy.threshold_ms, policy.upper_threshold_ms
        case RateLimitingPolicy():
            low, high = policy.spans_per_second, policy.burst_capacity or 2 * policy.spans_per_second
        case BytesLimitingPolicy():
            low, high = policy.bytes_per_second, policy.burst_capacity or 2 * policy.bytes_per_second
        case DowngraderPolicy():
            low = ANSWERS.index(Answer(policy.downgrade_to))
    bit = np.uint64(1 << bits[policy.name] if kind in (CONDITION, INVERTED) else 0)
    after = number + sum(1 for _ in all_policies((policy,)))
    return kind, after, policy.emit_single_span_for_not_sampled, sticky, bit, low, high, salt


_KINDS: dict[type, int] = {
    AlwaysSamplePolicy: ALWAYS,
    ProbabilisticPolicy: PROBABILISTIC,
    RemoteProbabilisticPolicy: PROBABILISTIC,
    SpanCountPolicy: SPAN_COUNT,
    LatencyPolicy: LATENCY,
    ThresholdPolicy: THRESHOLD,
    RateLimitingPolicy: SPANS_LIMIT,
    BytesLimitingPolicy: BYTES_LIMIT,
    AndPolicy: AND,
    OrPolicy: OR,
    NotPolicy: NOT,
    RootSpansPolicy: ROOT_SPANS,
    DowngraderPolicy: DOWNGRADER,
}


def _kind(policy: Policy) -> int:
    inverted = isinstance(policy, AttributePolicy) and policy.invert_match
    return _KINDS.get(type(policy), INVERTED if inverted else CONDITION)


def _first_rate(policy: Policy) -> float:
    match policy:
        case ProbabilisticPolicy():
            return policy.sampling_percentage
        case RemoteProbabilisticPolicy():
            return policy.default_rate
    return 0.0


def _sticky_names(policy: Policy, inherited: bool) -> Iterator[str]:
    sticky = inherited or policy.sticky
    if sticky:
        yield policy.name
    for part in policy.parts:
        yield from _sticky_names(part, sticky)


def _depth(policy: Policy) -> int:
    return 1 + max(map(_depth, policy.parts), default=0)
