"""What policies say of a trace: a table by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.sampling.ask_policies import Trace, asking, evaluate, hash_id
from penstock.sampling.policy_config import DEFAULT_SALT
from penstock.sampling.policy_program import ANSWERS, hash_bound, salted_hash
from penstock.sampling.span_item import NO_THRESHOLD, ROOT
from tests.sampling.support import attribute, policies, program_of

T1 = "000102030405060708090a0b0c0d0e0f"
T4 = "deadbeefbaddecafdeadbeefbaddecaf"
HALF = "00000000000000000080000000000000"
"""Its randomness is half of all."""
MS = 10**6


def ask(*configs: dict[str, Any], trace: str = T1, **known: Any) -> tuple[str, str | None, float, bool]:
    """The answer, the policy that gave it, the weight, and whether a placeholder leaves."""
    chosen = policies(*configs)
    program = program_of(chosen)
    facts = {
        "mask": 0,
        "kept_mask": 0,
        "threshold": NO_THRESHOLD,
        "kept_threshold": NO_THRESHOLD,
        "spans": 1,
        "bytes": 100,
        "start": 0,
        "end": 0,
        "time": 0,
        **known,
    }
    for name in ("mask", "kept_mask", "threshold", "kept_threshold", "start", "end"):
        facts[name] = np.uint64(facts[name])
    whole = Trace(np.uint64(int(trace[:16], 16)), np.uint64(int(trace[16:], 16)), **facts)
    answer, number, weight, emits = evaluate(asking(program, program.new_registers(), 1), whole)
    return str(ANSWERS[answer]), None if number == 0xFFFF else program.names[number], weight, emits


def one(kind: str, name: str = "p", **options: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **options}


def says(answer: str, name: str = "says") -> dict[str, Any]:
    """A policy that says this, of any trace without conditions."""
    if answer == "Pending":
        return attribute(name)
    if answer == "Sampled":
        return one("always_sample", name)
    return one("downgrader", name, downgrade_to=answer, sub_policy=one("always_sample", f"{name} always"))


def percent(p: float, **more: Any) -> dict[str, Any]:
    return one("probabilistic", sampling_percentage=p, **more)


SINGLE: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("65 percent sample T1", percent(65), {}, "Sampled"),
    ("64.9 percent do not", percent(64.9), {}, "Pending"),
    ("20 percent sample T4", percent(20), {"trace": T4}, "Sampled"),
    ("19 percent do not", percent(19), {"trace": T4}, "Pending"),
    ("0 percent sample nothing", percent(0), {}, "Pending"),
    ("less than 0 is 0", percent(-5), {}, "Pending"),
    ("100 percent sample all", percent(100), {}, "Sampled"),
    ("over 100 is 100", percent(1000), {}, "Sampled"),
    ("another salt is another draw", percent(64.9, hash_salt="other"), {}, "Sampled"),
    ("an empty salt is the default", percent(64.9, hash_salt=""), {}, "Pending"),
    ("an empty salt is the default at 65", percent(65, hash_salt=""), {}, "Sampled"),
    (
        "a remote rate begins with its default",
        one("remote_probabilistic", rate_from="f", default_rate=65),
        {},
        "Sampled",
    ),
    ("a remote rate that is too low", one("remote_probabilistic", rate_from="f", default_rate=64.9), {}, "Pending"),
    ("as many spans as needed", one("span_count", min_spans=3), {"spans": 3}, "Sampled"),
    ("one span too few", one("span_count", min_spans=3), {"spans": 2}, "Pending"),
    ("no spans needed", one("span_count", min_spans=0), {"spans": 1}, "Sampled"),
    ("as many as the most", one("span_count", min_spans=1, max_spans=3), {"spans": 3}, "Sampled"),
    ("one more than the most", one("span_count", min_spans=1, max_spans=3), {"spans": 4}, "Pending"),
    ("just as slow", one("latency", threshold_ms=5000), {"start": MS, "end": 5001 * MS}, "Sampled"),
    ("4999.9 ms are no 5000", one("latency", threshold_ms=5000), {"start": MS, "end": 5001 * MS - MS // 10}, "Pending"),
    ("5000.9 ms are", one("latency", threshold_ms=5000), {"start": MS, "end": 5001 * MS + 9 * MS // 10}, "Sampled"),
    ("no start is no start at 0", one("latency", threshold_ms=1), {"start": 0, "end": 10**18}, "Pending"),
    ("no end is no duration", one("latency", threshold_ms=0), {"start": 10**18, "end": 0}, "Pending"),
    ("an end before the start", one("latency", threshold_ms=0), {"start": 10 * MS, "end": 9 * MS}, "Pending"),
    ("no time at all is 0 ms", one("latency", threshold_ms=0), {"start": MS, "end": MS}, "Sampled"),
    ("the largest times", one("latency", threshold_ms=1), {"start": 1, "end": 2**64 - 1}, "Sampled"),
    (
        "within both bounds",
        one("latency", threshold_ms=10, upper_threshold_ms=20),
        {"start": MS, "end": 21 * MS},
        "Sampled",
    ),
    (
        "above the upper bound",
        one("latency", threshold_ms=10, upper_threshold_ms=20),
        {"start": MS, "end": 22 * MS},
        "Pending",
    ),
    (
        "with an upper bound the lower one is not enough",
        one("latency", threshold_ms=10, upper_threshold_ms=20),
        {"start": MS, "end": 11 * MS},
        "Pending",
    ),
    ("a condition that a new span meets", attribute("p"), {"mask": 1}, "Sampled"),
    ("a condition that none meets", attribute("p"), {"mask": 2}, "Pending"),
    ("the condition of another bit", attribute("p", "k3"), {"mask": 8}, "Sampled"),
    ("root is no condition", attribute("p"), {"mask": ROOT}, "Pending"),
    ("met earlier is not met", attribute("p"), {"kept_mask": 1}, "Pending"),
    ("met earlier stays met if sticky", attribute("p", sticky=True), {"kept_mask": 1}, "Sampled"),
    ("sticky, and met now", attribute("p", sticky=True), {"mask": 1}, "Sampled"),
    ("inverted and met", attribute("p", invert_match=True), {"mask": 1}, "NotSampled"),
    ("inverted and not met", attribute("p", invert_match=True), {"mask": 0}, "Sampled"),
    ("inverted, sticky, met earlier", attribute("p", invert_match=True, sticky=True), {"kept_mask": 1}, "NotSampled"),
    ("inverted by its other name", attribute("p", invert=True), {"mask": 1}, "NotSampled"),
    ("always", one("always_sample"), {}, "Sampled"),
    ("no threshold", one("threshold"), {}, "Pending"),
    ("threshold 0 samples all", one("threshold"), {"threshold": 0, "trace": "0" * 32}, "Sampled"),
    ("randomness as large", one("threshold"), {"threshold": 2**55, "trace": HALF}, "Sampled"),
    ("randomness too small by one", one("threshold"), {"threshold": 2**55 + 1, "trace": HALF}, "Pending"),
    ("only 7 bytes are random", one("threshold"), {"threshold": 1, "trace": "f" * 18 + "0" * 14}, "Pending"),
    ("an earlier threshold", one("threshold"), {"kept_threshold": 0}, "Pending"),
    ("an earlier threshold, sticky", one("threshold", sticky=True), {"kept_threshold": 0}, "Sampled"),
    ("within the limit", one("rate_limiting", spans_per_second=5), {"spans": 10}, "Sampled"),
    ("more than the limit ever has", one("rate_limiting", spans_per_second=5), {"spans": 11}, "Pending"),
    ("a burst of its own", one("rate_limiting", spans_per_second=5, burst_capacity=3), {"spans": 4}, "Pending"),
    ("bytes within the limit", one("bytes_limiting", bytes_per_second=50), {"bytes": 100}, "Sampled"),
    ("bytes past the limit", one("bytes_limiting", bytes_per_second=50), {"bytes": 101}, "Pending"),
]


@pytest.mark.parametrize(("policy", "known", "answer"), [row[1:] for row in SINGLE], ids=[row[0] for row in SINGLE])
def test_a_policy(policy: dict[str, Any], known: dict[str, Any], answer: str) -> None:
    assert ask(policy, **known)[:2] == (answer, None if answer == "Pending" else "p")


def parts(*answers: str) -> list[dict[str, Any]]:
    return [says(answer, f"part {n}") for n, answer in enumerate(answers)]


P, S, N, L = "Pending", "Sampled", "NotSampled", "LowPriority"
COMBINED: list[tuple[str, tuple[str, ...], str]] = [
    ("and", (S,), S),
    ("and", (S, S), S),
    ("and", (S, P), P),
    ("and", (P, S), P),
    ("and", (S, N), N),
    ("and", (P, N), P),
    ("and", (N, P), N),
    ("and", (L, N), L),
    ("and", (S, L, N), L),
    ("or", (P,), P),
    ("or", (S,), S),
    ("or", (P, S), S),
    ("or", (N, S), S),
    ("or", (L, S), S),
    ("or", (N, L), N),
    ("or", (P, L, N), L),
    ("or", (P, P), P),
    ("not", (S,), P),
    ("not", (P,), S),
    ("not", (N,), S),
    ("not", (L,), S),
]


@pytest.mark.parametrize(("kind", "answers", "expected"), COMBINED)
def test_a_policy_made_of_others(kind: str, answers: tuple[str, ...], expected: str) -> None:
    made_of = parts(*answers)
    policy = one(kind, **{f"{kind}_sub_policy": made_of[0] if kind == "not" else made_of})
    assert ask(policy)[0] == expected


ROOTS: list[tuple[str, dict[str, Any], str]] = [
    (S, {"mask": ROOT}, P),
    (P, {"mask": ROOT}, L),
    (N, {"mask": ROOT}, L),
    (L, {"mask": ROOT}, L),
    (P, {"mask": 0}, P),
    (P, {"mask": ROOT, "spans": 2}, P),
    (P, {"mask": 0, "spans": 2}, P),
    (N, {"mask": 0}, P),
]


@pytest.mark.parametrize(("answer", "known", "expected"), ROOTS)
def test_a_lone_root_span_is_low(answer: str, known: dict[str, Any], expected: str) -> None:
    assert ask(one("root_spans", sub_policy=says(answer, "part")), **known)[0] == expected


@pytest.mark.parametrize("to", [P, N, L])
@pytest.mark.parametrize("answer", [P, S, N, L])
def test_a_downgrader_says_less_in_place_of_sampled_only(answer: str, to: str) -> None:
    policy = one("downgrader", downgrade_to=to, sub_policy=says(answer, "part"))
    assert ask(policy)[0] == (to if answer == S else answer)


def test_the_first_policy_that_does_not_say_pending_decides() -> None:
    assert ask(says(P, "a"), says(L, "b"), says(S, "c"))[:2] == (L, "b")
    assert ask(says(P, "a"), says(S, "b"), says(N, "c"))[:2] == (S, "b")
    assert ask(says(P, "a"), says(N, "b"), says(S, "c"))[:2] == (N, "b")
    assert ask(says(P, "a"))[:2] == (P, None)


def test_policies_are_nested_to_any_depth() -> None:
    policy = one("always_sample", "innermost")
    for depth in range(100):
        policy = one("not", f"n{depth}", not_sub_policy=one("not", f"m{depth}", not_sub_policy=policy))
    assert ask(policy)[0] == S
    deep = one("and", "a", and_sub_policy=[one("or", "o", or_sub_policy=[says(P, "x"), policy]), says(S, "y")])
    assert ask(deep)[:2] == (S, "a")


def test_a_nested_policy_is_named_by_the_outermost() -> None:
    assert ask(one("or", "outer", or_sub_policy=[says(S, "inner")]))[1] == "outer"


def test_a_sticky_policy_makes_its_parts_sticky() -> None:
    policy = one("and", and_sub_policy=[attribute("a", "k0"), attribute("b", "k1")])
    assert ask({**policy, "sticky": True}, mask=1, kept_mask=2)[0] == S
    assert ask(policy, mask=1, kept_mask=2)[0] == P


WEIGHTS: list[tuple[str, dict[str, Any], dict[str, Any], float]] = [
    ("always", one("always_sample"), {}, 1.0),
    ("a condition", attribute("p"), {"mask": 1}, 1.0),
    ("65 percent", percent(65), {}, 100 / 65),
    ("all", percent(100), {}, 1.0),
    ("more than all", percent(200), {}, 1.0),
    ("half by threshold", one("threshold"), {"threshold": 2**55, "trace": HALF}, 2.0),
    ("all by threshold", one("threshold"), {"threshold": 0}, 1.0),
    ("and: the smallest rate", one("and", and_sub_policy=[percent(80, name="a"), percent(65, name="b")]), {}, 100 / 65),
    ("or: that of the one that samples", one("or", or_sub_policy=[says(P, "a"), percent(80, name="b")]), {}, 100 / 80),
    ("not", one("not", not_sub_policy=percent(10, name="a")), {}, 1.0),
    ("not sampled", says(N), {}, 1.0),
]


@pytest.mark.parametrize(("policy", "known", "weight"), [row[1:] for row in WEIGHTS], ids=[row[0] for row in WEIGHTS])
def test_a_sampled_trace_stands_for_others(policy: dict[str, Any], known: dict[str, Any], weight: float) -> None:
    assert ask({**policy, "name": "p"}, **known)[2] == weight


EMIT = {"emit_single_span_for_not_sampled": True}
EMITS: list[tuple[str, dict[str, Any], bool]] = [
    ("the policy itself", {**says(N), **EMIT}, True),
    ("none", says(N), False),
    ("sampled", {**says(S), **EMIT}, False),
    ("pending", {**says(P), **EMIT}, False),
    ("low", {**says(L), **EMIT}, False),
    ("the part that says so", one("and", and_sub_policy=[says(S, "a"), {**says(N, "b"), **EMIT}]), True),
    ("another part", one("and", and_sub_policy=[{**says(S, "a"), **EMIT}, says(N, "b")]), False),
    ("the whole", one("and", and_sub_policy=[says(S, "a"), says(N, "b")], **EMIT), True),
    ("a part of an or", one("or", or_sub_policy=[{**says(N, "a"), **EMIT}, says(P, "b")]), True),
    ("what was downgraded", one("downgrader", downgrade_to=N, sub_policy={**says(S, "a"), **EMIT}), False),
    ("below a downgrader", one("downgrader", downgrade_to=P, sub_policy={**says(N, "a"), **EMIT}), True),
]


@pytest.mark.parametrize(("policy", "emits"), [row[1:] for row in EMITS], ids=[row[0] for row in EMITS])
def test_a_placeholder_is_asked_for_by_who_says_not_sampled_or_passes_it_on(
    policy: dict[str, Any], emits: bool
) -> None:
    assert ask(policy)[3] == emits


def test_the_hash_is_fnv_1a() -> None:
    hashed = hash_id(np.uint64(salted_hash(DEFAULT_SALT)), np.uint64(int(T1[:16], 16)), np.uint64(int(T1[16:], 16)))
    assert hashed == 0xA6622CFE5BFB0E0D


@pytest.mark.parametrize(
    ("percentage", "bound"),
    [(0.0, 0), (-3.0, 0), (100.0, 2**64 - 1), (500.0, 2**64 - 1), (50.0, 2**63 - 1), (0.1, (2**64 - 1) // 1000)],
)
def test_no_bit_of_a_percentage_is_lost(percentage: float, bound: int) -> None:
    assert hash_bound(percentage) == bound
