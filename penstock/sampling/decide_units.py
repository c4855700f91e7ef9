"""Decides on the traces of a batch, one after the other, in compiled code.

One after the other, because each may evict another: one that comes later in the same batch is then not sampled.
What was decided before counts first, then what a decision span says, then stress relief, then the policies.
"""

from __future__ import annotations

import numpy as np

from penstock.compiled import borrowing
from penstock.holding.item_chains import FIRST, NONE, chain_items
from penstock.sampling.ask_policies import Asking, Trace, evaluate, hash_id, weight_of_rate
from penstock.sampling.batch_work import (
    ANSWERS_AT,
    Rules,
    Tally,
    Work,
    end_group,
    end_wait,
    let_go,
    note_decision,
    pass_unit,
    skip_unit,
)
from penstock.sampling.fold_units import NOT_DECIDED, SAYS_SAMPLED
from penstock.sampling.journal import EVICT, REFRESH, RELEASE, record, record_key, record_move
from penstock.sampling.policy_program import LOW_PRIORITY, NOT_SAMPLED, PENDING, SAMPLED, Numbers
from penstock.sampling.span_item import FLUSHED, NO_POLICY
from penstock.sampling.trace_homes import (
    LIMIT,
    NOT_SAMPLED_HOME,
    NOWHERE,
    OLDEST,
    PRIMARY,
    SAMPLED_HOME,
    SECONDARY,
    SIZE,
    find_trace,
    forget,
    move_to_newest,
    new_trace,
    put_newest,
    settle,
    take_out,
)
from penstock.sampling.trace_keys import unscramble_one


@borrowing
def decide_all(work: Work) -> None:
    """Bring the homes to their limits, which may have changed, and decide on all units."""
    if not work.rules.has_secondary:
        _leave_secondary(work)
    for home in (PRIMARY, SECONDARY, SAMPLED_HOME, NOT_SAMPLED_HOME):
        _shrink(work, home)
    homes, units, tally, rules = work.homes, work.units.units, work.tally, work.rules
    for n in range(len(units)):
        unit = units[n]
        tally[Tally.SKIPPED.value] += unit["decisions"]
        tally[Tally.DECISION_SPAN.value] += unit["decisions"]
        number = find_trace(homes, unit["high"], unit["low"])
        if number >= 0 and homes.traces[number]["home"] >= SAMPLED_HOME:
            _follow(work, unit, number)
            continue
        if number < 0:
            number = new_trace(homes, unit["high"], unit["low"])
            tally[Tally.TRACES_IN.value] += 1
        known = homes.traces[number]
        answer, policy, weight, emits, reason = _judge(unit, known, work.ask, rules, tally)
        if answer == SAMPLED or answer == NOT_SAMPLED:
            _settle(work, unit, number, answer, policy, weight, emits, reason)
            continue
        home = _home_to_wait_in(known, answer, policy, rules.has_secondary)
        take_out(homes, number)
        _add_to(known, unit, policy if home == SECONDARY else NO_POLICY, rules.sticky_bits)
        put_newest(homes, number, home)
        unit["move"] = record_move(work.journal, homes.traces, number)
        rows = work.units.rows[unit["begin"] : unit["begin"] + unit["count"]]
        chain_items(work.chains, number, rows, work.place)
        tally[Tally.HELD.value] += unit["count"]
        if homes.ends[home, SIZE] > homes.ends[home, LIMIT]:
            _shrink(work, home)


@borrowing
def _leave_secondary(work: Work) -> None:
    """Where there is no secondary home any more, its traces wait with the others, as the newest of them."""
    homes = work.homes
    while homes.ends[SECONDARY, SIZE] > 0:
        number = homes.ends[SECONDARY, OLDEST]
        take_out(homes, number)
        homes.traces[number]["policy"] = NO_POLICY
        put_newest(homes, number, PRIMARY)
        record_move(work.journal, homes.traces, number)


@borrowing
def release_up_to(work: Work, stamp: int) -> None:
    """Evict every trace of which an item waits at or before a point in the order of the log: those of the primary home
    first, each home from its oldest on."""
    homes = work.homes
    for home in (PRIMARY, SECONDARY):
        number = homes.ends[home, OLDEST]
        while number != NONE:
            trace = homes.traces[number]
            newer = trace["newer"]
            if trace["oldest"] <= stamp:
                record_key(work.journal, RELEASE, trace["high"], trace["low"])
                work.tally[Tally.TRACES_EVICTED_RELEASE.value] += 1
                end_wait(work, number, NO_POLICY, Tally.EVICTED_RELEASE.value, False)
                settle(homes, number, NOT_SAMPLED_HOME, NO_POLICY, 1.0)
                note_decision(work, number)
                _shrink(work, NOT_SAMPLED_HOME)
            number = newer


@borrowing
def flush_waiting(work: Work) -> None:
    """Let all leave that waits, undecided: the primary home first, each from its oldest trace on."""
    for home in (PRIMARY, SECONDARY):
        number = work.homes.ends[home, OLDEST]
        while number != NONE:
            let_go(work, number)
            end_group(work.leaving, np.uint32(NO_POLICY) | FLUSHED, 1.0)
            number = work.homes.traces[number]["newer"]


@borrowing
def _judge(
    unit: np.void, known: np.void, ask: Asking, rules: Rules, tally: Numbers
) -> tuple[int, int, float, bool, int]:
    """The answer on a unit whose trace is not decided, the policy, the weight, whether a placeholder leaves, and the
    reason if it is not sampled."""
    if unit["decided"] != NOT_DECIDED:
        tally[Tally.TRACES_DECIDED_ELSEWHERE.value] += 1
        policy = unit["decided_by"]
        if unit["decided"] == SAYS_SAMPLED:
            return SAMPLED, policy, unit["decided_weight"], False, Tally.DECIDED_ELSEWHERE.value
        return NOT_SAMPLED, policy, 1.0, False, Tally.DECIDED_ELSEWHERE.value
    high, low = unscramble_one(unit["high"], unit["low"], rules.id_keys)
    if rules.stressed:
        if rules.stress_rate > 0 and hash_id(rules.stress_salted, high, low) <= rules.stress_bound:
            tally[Tally.STRESS_SAMPLED.value] += 1
            return SAMPLED, NO_POLICY, weight_of_rate(rules.stress_rate), False, Tally.STRESS_RELIEF.value
        tally[Tally.STRESS_NOT_SAMPLED.value] += 1
        return NOT_SAMPLED, NO_POLICY, 1.0, False, Tally.STRESS_RELIEF.value
    trace = Trace(
        high,
        low,
        unit["mask"],
        known["kept_mask"],
        unit["threshold"],
        known["threshold"] if known["count"] > 0 else unit["threshold"],
        known["count"] + unit["count"],
        known["bytes"] + unit["bytes"],
        _earlier(known["start"], unit["start"]),
        max(known["end"], unit["end"]),
        unit["time"],
    )
    answer, policy, weight, emits = evaluate(ask, trace)
    too_much = trace.spans > rules.most_spans or trace.bytes > rules.most_bytes
    if too_much and answer != SAMPLED and answer != NOT_SAMPLED:
        tally[Tally.TRACES_OVER_CAP.value] += 1
        return NOT_SAMPLED, NO_POLICY, 1.0, False, Tally.OVER_CAP.value
    if answer == PENDING:
        tally[Tally.TRACES_PENDING.value] += 1
    else:
        origin = min(unit["origin"], rules.origins - 1)
        tally[ANSWERS_AT + 4 * (policy * rules.origins + origin) + answer] += 1
    return answer, policy, weight, emits, Tally.NOT_SAMPLED.value


@borrowing
def _home_to_wait_in(known: np.void, answer: int, policy: int, has_secondary: bool) -> int:
    """A trace is low as long as one policy says so again and again. Else it is in the primary home, and stays there."""
    if answer != LOW_PRIORITY or not has_secondary:
        return PRIMARY
    if known["home"] == NOWHERE or (known["home"] == SECONDARY and known["policy"] == policy):
        return SECONDARY
    return PRIMARY


@borrowing
def _add_to(known: np.void, unit: np.void, low_policy: int, sticky_bits: np.uint64) -> None:
    """Add to what is known of a trace that waits what its new spans say."""
    waits = known["count"] > 0
    known["arrived"] = known["arrived"] if waits else unit["time"]
    known["oldest"] = min(known["oldest"], unit["oldest"]) if waits else unit["oldest"]
    known["threshold"] = min(known["threshold"], unit["threshold"]) if waits else unit["threshold"]
    known["kept_mask"] |= unit["mask"] & sticky_bits
    known["start"] = _earlier(known["start"], unit["start"])
    known["end"] = max(known["end"], unit["end"])
    known["count"] += unit["count"]
    known["bytes"] += unit["bytes"]
    known["policy"] = low_policy


@borrowing
def _earlier(one: np.uint64, other: np.uint64) -> np.uint64:
    """The earlier start; 0 is none."""
    if one == np.uint64(0):
        return other
    return one if other == np.uint64(0) else min(one, other)


@borrowing
def _settle(
    work: Work, unit: np.void, number: int, answer: int, policy: int, weight: float, emits: bool, reason: int
) -> None:
    """Decide: what waits and what has come leaves, or is dropped."""
    known, tally = work.homes.traces[number], work.tally
    if known["count"] > 0:
        tally[Tally.DECIDED_AFTER_WAITING.value] += 1
        tally[Tally.WAITED_US.value] += max(unit["time"] - known["arrived"], 0) if unit["count"] > 0 else 0
    tally[Tally.TRACES_SAMPLED.value if answer == SAMPLED else Tally.TRACES_NOT_SAMPLED.value] += 1
    if answer == SAMPLED:
        let_go(work, number)
        pass_unit(work, unit, unit["count"])
        end_group(work.leaving, np.uint32(policy), weight)
    else:
        waited = work.chains.ends[number, FIRST] != NONE
        end_wait(work, number, policy, reason, emits)
        skip_unit(work, unit, policy, reason, emits and not waited)
    home = SAMPLED_HOME if answer == SAMPLED else NOT_SAMPLED_HOME
    settle(work.homes, number, home, policy, weight)
    note_decision(work, number)
    record_move(work.journal, work.homes.traces, number)
    _shrink(work, home)


@borrowing
def _follow(work: Work, unit: np.void, number: int) -> None:
    """Treat a unit as its trace was treated."""
    trace = work.homes.traces[number]
    record_key(work.journal, REFRESH, unit["high"], unit["low"])
    move_to_newest(work.homes, number, trace["home"])
    note_decision(work, number)
    if trace["home"] == SAMPLED_HOME:
        work.tally[Tally.LATE_SAMPLED.value] += unit["count"]
        pass_unit(work, unit, unit["count"])
        end_group(work.leaving, np.uint32(trace["policy"]), trace["weight"])
    else:
        work.tally[Tally.LATE_NOT_SAMPLED.value] += unit["count"]
        skip_unit(work, unit, trace["policy"], Tally.LATE_DROPPED.value, False)


@borrowing
def _shrink(work: Work, home: int) -> None:
    """Evict the oldest traces of a home until it has no more than it may."""
    homes, ends = work.homes, work.homes.ends
    while ends[home, SIZE] > ends[home, LIMIT]:
        number = ends[home, OLDEST]
        record(work.journal, EVICT + home)
        if home >= SAMPLED_HOME:
            forget(homes, number)
            continue
        work.tally[Tally.TRACES_EVICTED_PRIMARY.value - PRIMARY + home] += 1
        end_wait(work, number, NO_POLICY, Tally.EVICTED_PRIMARY.value - PRIMARY + home, False)
        settle(homes, number, NOT_SAMPLED_HOME, NO_POLICY, 1.0)
        note_decision(work, number)
        while ends[NOT_SAMPLED_HOME, SIZE] > ends[NOT_SAMPLED_HOME, LIMIT]:
            record(work.journal, EVICT + NOT_SAMPLED_HOME)
            forget(homes, ends[NOT_SAMPLED_HOME, OLDEST])
