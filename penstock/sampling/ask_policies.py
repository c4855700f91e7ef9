"""What the policies say of one trace, in compiled code.

The first policy that does not say Pending decides. Parts are asked in their order and no further than needed: an
``and`` stops at the first that does not say Sampled, an ``or`` at the first that does. That matters for limits only,
which a trace takes from when they say Sampled, whatever the policies around them say then.

The weight of a sampled trace is how many it stands for: 100/p for a policy that samples p percent, 2^56/(2^56 - T) for
a threshold T, the largest of its parts for an ``and``, that of the part that said Sampled for an ``or``, and 1 for all
others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import borrowing
from penstock.sampling.policy_program import (
    ALWAYS,
    AND,
    CONDITION,
    INVERTED,
    LATENCY,
    LOW_PRIORITY,
    NEVER_FILLED,
    NOT,
    NOT_SAMPLED,
    OR,
    PENDING,
    PROBABILISTIC,
    ROOT_SPANS,
    SAMPLED,
    SPAN_COUNT,
    SPANS_LIMIT,
    THRESHOLD,
    TOKENS_EACH,
    Nodes,
    PolicyProgram,
    Registers,
)
from penstock.sampling.span_item import NO_POLICY, NO_THRESHOLD, ROOT

_PRIME = np.uint64(0x100000001B3)
_RANDOM = np.uint64(2**56 - 1)
_MILLISECOND = np.uint64(10**6)
_NONE = np.uint64(0)


class Trace(NamedTuple):
    """What is known of a trace when its policies are asked. All but ``mask``, ``threshold`` and ``time`` count what
    came earlier, too."""

    high: np.uint64
    low: np.uint64
    """The two halves of its id."""
    mask: np.uint64
    """The conditions that its new spans meet."""
    kept_mask: np.uint64
    """The conditions that earlier spans met, of sticky policies."""
    threshold: np.uint64
    kept_threshold: np.uint64
    spans: int
    bytes: int
    start: np.uint64
    """0 for none."""
    end: np.uint64
    time: int
    """When it came (µs)."""


STACKED = np.dtype([("node", "<i8"), ("said", "<i8"), ("weight", "<f8"), ("emits", "?")])
"""A policy whose parts are being asked, and what they say so far."""


class Asking(NamedTuple):
    """What evaluating needs besides the trace."""

    nodes: Nodes
    registers: Registers
    stack: npt.NDArray[np.void]
    """Rows of ``STACKED``, as many as policies are nested."""
    shards: int


def asking(program: PolicyProgram, registers: Registers, shards: int) -> Asking:
    return Asking(program.nodes, registers, np.zeros(program.depth + 1, STACKED), shards)


@borrowing
def evaluate(ask: Asking, trace: Trace) -> tuple[int, int, float, bool]:
    """The answer, the number of the policy that gave it, the trace's weight, and whether a placeholder is to leave."""
    top = 0
    while top < len(ask.nodes):
        answer, weight, emits = _ask_tree(ask, trace, top)
        if answer != PENDING:
            return answer, top, weight if answer == SAMPLED else 1.0, emits and answer == NOT_SAMPLED
        top = ask.nodes[top]["after"]
    return PENDING, NO_POLICY, 1.0, False


@borrowing
def _ask_tree(ask: Asking, trace: Trace, top: int) -> tuple[int, float, bool]:
    nodes, stack, open_ = ask.nodes, ask.stack, 0
    node = top
    while True:
        while nodes[node]["kind"] >= AND:
            stack[open_]["node"] = node
            stack[open_]["said"] = PENDING if nodes[node]["kind"] == OR else SAMPLED
            stack[open_]["weight"] = 1.0
            stack[open_]["emits"] = False
            open_ += 1
            node += 1
        answer, weight = _ask_leaf(nodes[node], ask.registers[node], trace, ask.shards)
        emits = nodes[node]["emits"]
        following = nodes[node]["after"]
        while True:
            if open_ == 0:
                return answer, weight, emits
            asked = stack[open_ - 1]
            parent = nodes[asked["node"]]
            if not _take_answer(asked, parent, trace, answer, weight, emits) and following < parent["after"]:
                break
            open_ -= 1
            answer, weight = asked["said"], asked["weight"]
            emits = asked["emits"] or parent["emits"]
            following = parent["after"]
        node = following


@borrowing
def _take_answer(asked: np.void, node: np.void, trace: Trace, answer: int, weight: float, emits: bool) -> bool:
    """Take what the next part says; whether the others need not be asked."""
    kind = node["kind"]
    if kind == AND:
        asked["said"] = answer
        asked["weight"] = max(weight, asked["weight"])
        asked["emits"] = emits
        return answer != SAMPLED
    if kind == OR:
        if answer == SAMPLED or asked["said"] == PENDING:
            asked["said"] = answer
            asked["weight"] = weight
            asked["emits"] = emits
        return answer == SAMPLED
    if kind == NOT:
        asked["said"] = PENDING if answer == SAMPLED else SAMPLED
    elif kind == ROOT_SPANS:
        lone = answer != SAMPLED and trace.spans == 1 and trace.mask & ROOT != _NONE
        asked["said"] = LOW_PRIORITY if lone else PENDING
    elif answer == SAMPLED:
        asked["said"] = node["low"]
    else:
        asked["said"] = answer
        asked["emits"] = emits
    return True


@borrowing
def _ask_leaf(node: np.void, register: np.void, trace: Trace, shards: int) -> tuple[int, float]:
    kind, weight = node["kind"], 1.0
    if kind == CONDITION or kind == INVERTED:
        mask = trace.mask | trace.kept_mask if node["sticky"] else trace.mask
        met = mask & node["bit"] != _NONE
        if kind == INVERTED:
            return (NOT_SAMPLED if met else SAMPLED), weight
    elif kind == ALWAYS:
        met = True
    elif kind == PROBABILISTIC:
        met = register["rate"] > 0 and hash_id(node["salted"], trace.high, trace.low) <= register["bound"]
        weight = weight_of_rate(register["rate"])
    elif kind == SPAN_COUNT:
        met = trace.spans >= node["low"] and (node["high"] == 0 or trace.spans <= node["high"])
    elif kind == LATENCY:
        met = _lasts(trace, node["low"], node["high"])
    elif kind == THRESHOLD:
        threshold = min(trace.threshold, trace.kept_threshold) if node["sticky"] else trace.threshold
        met = threshold < NO_THRESHOLD and trace.low & _RANDOM >= threshold
        if met:
            weight = 2.0**56 / np.float64(NO_THRESHOLD - threshold)
    else:
        amount = trace.spans if kind == SPANS_LIMIT else trace.bytes
        met = _take_from_limit(node, register, amount, trace.time, shards)
    return (SAMPLED if met else PENDING), weight


@borrowing
def hash_id(salted: np.uint64, high: np.uint64, low: np.uint64) -> np.uint64:
    """FNV-1a of the salt and the 16 bytes of the id."""
    for word in (high, low):
        for byte in range(8):
            salted = (salted ^ (word >> np.uint64(56 - 8 * byte) & np.uint64(0xFF))) * _PRIME
    return salted


@borrowing
def weight_of_rate(rate: float) -> float:
    return 100.0 / rate if 0.0 < rate < 100.0 else 1.0


@borrowing
def _lasts(trace: Trace, least: int, most: int) -> bool:
    if trace.start == _NONE or trace.end < trace.start:
        return False
    lasted = np.int64((trace.end - trace.start) // _MILLISECOND)
    return bool(lasted >= least if most == 0 else least < lasted <= most)


@borrowing
def _take_from_limit(node: np.void, left: np.void, amount: int, now: int, shards: int) -> bool:
    """Whether a limit has so much left for a trace; if so it is taken.

    Each shard has its part of the limit: as much is added to its own, and everything costs as many times more as there
    are shards. A trace that is larger than the shard's part takes a full one and leaves a debt; otherwise more shards
    would let fewer traces through.
    """
    per_second, at_once = node["low"], node["high"]
    full = at_once * TOKENS_EACH
    passed = now - left["filled"]
    if left["filled"] == NEVER_FILLED:
        left["filled"] = now
    elif passed > 0:
        # Longer makes no difference, and might be too large a product.
        long = passed > (full - left["tokens"]) // per_second
        left["tokens"] = full if long else left["tokens"] + passed * per_second
        left["filled"] = now
    if amount > at_once:
        return False
    cost = amount * TOKENS_EACH * shards
    if left["tokens"] < min(cost, full):
        return False
    left["tokens"] -= cost
    return True
