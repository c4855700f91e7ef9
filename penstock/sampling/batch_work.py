"""A batch at work on a shard's state: what is counted, and how spans leave or are dropped."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import borrowing
from penstock.holding.item_chains import FIRST, NONE, Chains, drop_items, take_first, take_items
from penstock.sampling.ask_policies import Asking
from penstock.sampling.fold_units import Units
from penstock.sampling.journal import Journal
from penstock.sampling.policy_program import Numbers
from penstock.sampling.span_item import NOT_SAMPLED, PLACEHOLDER
from penstock.sampling.trace_homes import TRACE, Homes, Rows


class Tally(IntEnum):
    """What is counted: first what becomes of spans."""

    PASSED = 0
    LET_GO = auto()
    HELD = auto()
    SKIPPED = auto()
    DROPPED = auto()

    NOT_SAMPLED = auto()
    """From here on why spans were skipped and dropped."""
    LATE_DROPPED = auto()
    EVICTED_PRIMARY = auto()
    EVICTED_SECONDARY = auto()
    EVICTED_RELEASE = auto()
    OVER_CAP = auto()
    STRESS_RELIEF = auto()
    DECIDED_ELSEWHERE = auto()
    DECISION_SPAN = auto()

    TRACES_IN = auto()
    """From here on what else is told: first the traces that came and were not known."""
    TRACES_SAMPLED = auto()
    TRACES_NOT_SAMPLED = auto()
    """Those that policies, or others who decide, dropped; not those that were evicted."""
    TRACES_EVICTED_PRIMARY = auto()
    TRACES_EVICTED_SECONDARY = auto()
    TRACES_EVICTED_RELEASE = auto()
    TRACES_OVER_CAP = auto()
    TRACES_PENDING = auto()
    TRACES_DECIDED_ELSEWHERE = auto()
    STRESS_SAMPLED = auto()
    STRESS_NOT_SAMPLED = auto()
    LATE_SAMPLED = auto()
    LATE_NOT_SAMPLED = auto()
    DECIDED_AFTER_WAITING = auto()
    WAITED_US = auto()


ANSWERS_AT = len(Tally)
"""Behind what is tallied by name stands how many traces got which answer, policy by policy, and for each where they
are from."""


class Rules(NamedTuple):
    """What holds for all traces of a batch."""

    dry_run: bool
    has_secondary: bool
    most_spans: int
    """Of a trace that waits; as ``most_bytes``."""
    most_bytes: int
    sticky_bits: np.uint64
    stressed: bool
    stress_rate: float
    stress_bound: np.uint64
    stress_salted: np.uint64
    id_keys: tuple[np.uint64, ...]
    """For the ids of traces."""
    origins: int
    """How many answers there are to where a trace is from."""


GROUP = np.dtype([("end", "<i8"), ("bits", "<u4"), ("weight", "<f8")])
"""Items that leave alike: where their places end, and as what they leave (``LEAVING_SPAN``)."""


class Leaving(NamedTuple):
    """What leaves, in its order: the places of items, in groups that leave alike."""

    places: Numbers
    groups: npt.NDArray[np.void]
    """Rows of ``GROUP``."""
    used: Numbers
    """How many places, and how many groups."""


class Decided(NamedTuple):
    """The traces of which a batch has known the decision, for those who follow it; a later row counts more."""

    rows: Rows
    """No room at all if nobody follows."""
    used: Numbers
    """One number: how many rows there are."""


class Work(NamedTuple):
    """A batch and the state that it meets."""

    homes: Homes
    chains: Chains
    units: Units
    place: int
    """Where the items of the batch begin. What stands before has waited."""
    ask: Asking
    rules: Rules
    journal: Journal
    leaving: Leaving
    tally: Numbers
    """By ``Tally``; then how many traces, by policy, where they are from, and answer."""
    decided: Decided


def new_leaving(spans: int, waiting: int, traces: int) -> Leaving:
    """Room for all that may leave. What is not used takes no memory."""
    groups = 2 * (traces + spans) + 2
    return Leaving(np.empty(spans + waiting, np.int64), np.empty(groups, GROUP), np.zeros(2, np.int64))


def new_decided(units: int, known: int, followed: bool) -> Decided:
    """Room for all traces that may be decided. What is not used takes no memory."""
    return Decided(np.empty(2 * units + known if followed else 0, TRACE), np.zeros(1, np.int64))


@borrowing
def note_decision(work: Work, number: int) -> None:
    """Tell those who follow what is decided on a trace."""
    decided = work.decided
    if len(decided.rows) > 0:
        decided.rows[decided.used[0]] = work.homes.traces[number]
        decided.used[0] += 1


@borrowing
def let_go(work: Work, number: int) -> None:
    """All items of a trace that wait leave, oldest first."""
    leaving, tally = work.leaving, work.tally
    start = leaving.used[0]
    leaving.used[0] = take_items(work.chains, number, leaving.places, start)
    fresh = 0
    for place in leaving.places[start : leaving.used[0]]:
        fresh += place >= work.place
    tally[Tally.LET_GO.value] += leaving.used[0] - start - fresh
    tally[Tally.PASSED.value] += fresh
    tally[Tally.HELD.value] -= fresh


@borrowing
def end_wait(work: Work, number: int, policy: int, reason: int, emits: bool) -> None:
    """The items of a trace that wait are dropped: but for the placeholder, and in a dry run none is."""
    leaving, tally = work.leaving, work.tally
    if work.chains.ends[number, FIRST] == NONE:
        return
    if work.rules.dry_run:
        let_go(work, number)
        end_group(leaving, np.uint32(policy) | NOT_SAMPLED, 1.0)
        return
    if emits:
        # Of this batch it cannot be: only what is decided later than it came was ever in a chain.
        leaving.places[leaving.used[0]] = take_first(work.chains, number)
        leaving.used[0] += 1
        tally[Tally.LET_GO.value] += 1
        end_group(leaving, np.uint32(policy) | PLACEHOLDER, 1.0)
    dropped, fresh = drop_items(work.chains, number, work.place)
    tally[Tally.DROPPED.value] += dropped
    tally[Tally.HELD.value] -= fresh
    tally[Tally.SKIPPED.value] += fresh
    tally[reason] += dropped + fresh


@borrowing
def skip_unit(work: Work, unit: np.void, policy: int, reason: int, emits: bool) -> None:
    """The new spans of a unit are dropped: but for the placeholder, and in a dry run none is."""
    count = unit["count"]
    if work.rules.dry_run:
        pass_unit(work, unit, count)
        end_group(work.leaving, np.uint32(policy) | NOT_SAMPLED, 1.0)
        return
    if emits and count > 0:
        pass_unit(work, unit, 1)
        end_group(work.leaving, np.uint32(policy) | PLACEHOLDER, 1.0)
        count -= 1
    work.tally[Tally.SKIPPED.value] += count
    work.tally[reason] += count


@borrowing
def pass_unit(work: Work, unit: np.void, count: int) -> None:
    """So many of the new spans of a unit leave, from the first on."""
    leaving = work.leaving
    for at in range(count):
        leaving.places[leaving.used[0] + at] = work.place + work.units.rows[unit["begin"] + at]
    leaving.used[0] += count
    work.tally[Tally.PASSED.value] += count


@borrowing
def end_group(leaving: Leaving, bits: np.uint32, weight: float) -> None:
    """All that left since the last group leaves like this."""
    group = leaving.used[1]
    if leaving.used[0] > (leaving.groups[group - 1]["end"] if group > 0 else 0):
        leaving.groups[group]["end"] = leaving.used[0]
        leaving.groups[group]["bits"] = bits
        leaving.groups[group]["weight"] = weight
        leaving.used[1] += 1
