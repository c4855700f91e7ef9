"""Spans of the reference as the sampler takes them, and what it says in the reference's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from penstock.holding.decision import Decision
from penstock.holding.item import Items
from penstock.sampling.commands import Place, flush_command, rate_command, stress_command
from penstock.sampling.policy_config import Policies, Policy, all_policies
from penstock.sampling.policy_program import PolicyProgram
from penstock.sampling.sampler import Sampler
from penstock.sampling.sampler_limits import SamplerLimits
from penstock.sampling.span_item import (
    DECIDED_NOT_SAMPLED,
    DECIDED_SAMPLED,
    DECISION,
    FLUSHED,
    NO_POLICY,
    NO_THRESHOLD,
    NOT_SAMPLED,
    PLACEHOLDER,
    ROOT,
    SPAN_ITEM,
)
from penstock.sampling.trace_keys import round_keys, scramble, unscramble
from tests.sampling.reference import Left, Span

SECRET = bytes(range(16))
KEYS = round_keys(SECRET)
CONDITIONS = ("k0", "k1", "k2", "k3")
"""The keys of attribute policies, by bit."""
COMMAND_AT = 10**9
"""Where commands stand in the log: far away from spans."""

_POLICIES: TypeAdapter[tuple[Policy, ...]] = TypeAdapter(Policies)


def policies(*configs: dict[str, Any]) -> tuple[Policy, ...]:
    return _POLICIES.validate_python(list(configs))


def attribute(name: str, key: str = "k0", **more: Any) -> dict[str, Any]:
    """A policy for the spans that meet the condition of this key."""
    return {"name": name, "type": "string_attribute", "key": key, "values": ["x"], **more}


def program_of(chosen: Sequence[Policy]) -> PolicyProgram:
    bits = {each.name: CONDITIONS.index(each.key) for each in all_policies(tuple(chosen)) if hasattr(each, "key")}
    return PolicyProgram.of(chosen, bits, CONDITIONS)


def sampler_of(chosen: Sequence[Policy], limits: SamplerLimits, shards: int = 1, dry_run: bool = False) -> Sampler:
    return Sampler(program_of(chosen), limits, shards, SECRET, dry_run)


def items(spans: Sequence[Span], chosen: Sequence[Policy] = ()) -> Items:
    """``chosen`` are the policies that decision spans may name."""
    names = [policy.name for policy in all_policies(tuple(chosen))]
    rows = np.zeros(len(spans), SPAN_ITEM)
    high = np.array([int.from_bytes(span.trace[:8]) for span in spans], np.uint64)
    low = np.array([int.from_bytes(span.trace[8:]) for span in spans], np.uint64)
    rows["high"], rows["low"] = scramble(high, low, KEYS)
    for row, span in zip(rows, spans, strict=True):
        # Several spans are in one record, as in requests.
        row["order"], row["offset"], row["item"], row["partition"] = span.at // 3, span.at // 3, 1 + span.at % 3, 7
        row["mask"] = sum(1 << bit for bit, key in enumerate(CONDITIONS) if key in span.conditions)
        row["mask"] |= ROOT if span.root else np.uint64(0)
        if span.says is not None:
            row["mask"] |= DECIDED_SAMPLED if span.says else DECIDED_NOT_SAMPLED
        row["start"], row["end"], row["size"], row["time"] = span.start, span.end, span.size, span.time
        if span.says is not None:
            row["start"] = np.float64(span.weight).view(np.uint64)
            row["end"] = NO_POLICY if span.by is None else names.index(span.by)
        row["threshold"] = NO_THRESHOLD if span.threshold is None else span.threshold
    return rows


def stamps(releases: Sequence[int]) -> list[int]:
    """Points behind these spans, which must be the last ones of their records."""
    return [at // 3 for at in releases]


def shard_of(trace: bytes, shards: int) -> int:
    high, _ = scramble(_word(trace[:8]), _word(trace[8:]), KEYS)
    return int(high[0] % np.uint64(shards))


def commands(
    chosen: Sequence[Policy],
    rates: Mapping[str, float] | None = None,
    stress: float | None = None,
    flush: bool = False,
) -> Items:
    names = [policy.name for policy in all_policies(tuple(chosen))]
    place = Place(partition=1, offset=COMMAND_AT, order=COMMAND_AT, time=5)
    rows = [rate_command(names.index(name), rate, place) for name, rate in (rates or {}).items()]
    rows += [] if stress is None else [stress_command(stress, place)]
    rows += [flush_command(place)] if flush else []
    return np.concatenate([np.empty(0, SPAN_ITEM), *rows])


def left(chosen: Sequence[Policy], decision: Decision) -> list[Left]:
    """What has left, of spans."""
    found = []
    for row in decision.released[: len(decision.released) - decision.made]:
        bits = int(row["bits"])
        flags = {"flushed": FLUSHED, "placeholder": PLACEHOLDER, "not_sampled": NOT_SAMPLED}
        (kind,) = [name for name, flag in flags.items() if bits & int(flag)] or ["sampled"]
        at = int(row["offset"]) * 3 + int(row["item"]) - 1
        found.append(Left(at, kind, _policy(chosen, bits), float(row["weight"])))
    return found


def made(chosen: Sequence[Policy], decision: Decision) -> list[tuple[bytes, bool, str | None, float]]:
    """The decisions that have left."""
    rows = decision.released[len(decision.released) - decision.made :]
    assert all(int(row["bits"]) & int(DECISION) for row in rows)
    return [
        (_trace(row), not int(row["bits"]) & int(NOT_SAMPLED), _policy(chosen, int(row["bits"])), float(row["weight"]))
        for row in rows
    ]


def _policy(chosen: Sequence[Policy], bits: int) -> str | None:
    number = bits & NO_POLICY
    return None if number == NO_POLICY else [each.name for each in all_policies(tuple(chosen))][number]


def _trace(row: np.void) -> bytes:
    high, low = unscramble(np.array([row["high"]]), np.array([row["low"]]), KEYS)
    return int(high[0]).to_bytes(8) + int(low[0]).to_bytes(8)


def _word(half: bytes) -> np.ndarray:
    return np.array([int.from_bytes(half)], np.uint64)
