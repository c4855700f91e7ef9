"""Conflation over a whole batch: what to write in which order, what waits and why, what nobody needs.

``plan_batch`` takes every write for a success. Who writes for real asks the ``UnitState`` of each unit, one write after
the other; both are made by ``gather_units``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.conflation.bundle import Bundle, Processed, Unit
from penstock.conflation.fair_queue import FairQueue
from penstock.conflation.kinds import Kinds
from penstock.conflation.unit_state import UnitState, Waiting, Work
from penstock.conflation.unmet_dependency import Parked


@dataclass(frozen=True)
class Known:
    """What is known of sources before a batch: each mapping by source and kind."""

    processed: Mapping[tuple[str, str], Processed] = field(default_factory=dict)
    parked: Mapping[tuple[str, str], Parked] = field(default_factory=dict)
    held: Collection[tuple[str, str]] = ()
    """Kinds of sources of which older bundles wait elsewhere."""


@dataclass(frozen=True)
class BatchPlan:
    writes: list[Work]
    """In their order."""
    waiting: list[Waiting]
    conflated: list[Bundle]
    repeated: list[Bundle]


def plan_batch(kinds: Kinds, bundles: Iterable[Bundle], known: Known | None = None) -> BatchPlan:
    """What becomes of bundles, of those that have waited and of new ones, if every write succeeds."""
    units = gather_units(kinds, bundles, known or Known())
    queue: FairQueue[UnitState] = FairQueue(units.values())
    writes = []
    while (state := queue.take()) is not None:
        if (work := state.begin_next()) is not None:
            writes.append(work)
            state.note_written()
            queue.put_back(state)
    found = units.values()
    return BatchPlan(
        writes,
        [each for state in found for each in state.waiting()],
        [each for state in found for each in state.conflated],
        [each for state in found for each in state.repeated],
    )


def gather_units(kinds: Kinds, bundles: Iterable[Bundle], known: Known) -> dict[Unit, UnitState]:
    """The units of bundles, in the order of their first one, which have taken them in."""
    units: dict[Unit, UnitState] = {}
    held: dict[str, set[str]] = {}
    for source, kind in known.held:
        held.setdefault(source, set()).add(kind)
    for bundle in bundles:
        unit = Unit(bundle.source, kinds[bundle.kind].group)
        if unit not in units:
            units[unit] = UnitState(
                unit,
                kinds,
                {kind: known.processed[unit.source, kind] for kind in kinds if (unit.source, kind) in known.processed},
                {kind: known.parked[unit.source, kind] for kind in kinds if (unit.source, kind) in known.parked},
                held.get(unit.source, ()),
            )
        units[unit].insert(bundle)
    return units
