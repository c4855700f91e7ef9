"""What became of each bundle of a batch, as the engine wants to know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.conflation.bundle import Bundle, Unit
from penstock.conflation.kinds import Kinds
from penstock.conflation.tally import CONFLATED
from penstock.conflation.unit_state import UnitState, Waiting, Work
from penstock.destinations.contract import Superseded, TableReceipt, WaitingRows
from penstock.destinations.state.staged_bundles import TABLE, StagedBundles
from penstock.destinations.state.waiting_bundles import Elsewhere, SourceKind, WaitingPack, group_name
from penstock.destinations.state.writing.write_ends import GivenUp, NotTaken, WriteEnd, Written
from penstock.destinations.state.writing.writer_pool import BUSY, PoolResult
from penstock.outcome import PLACE_SCHEMA, failure_batch

SOON = 1.0
DEPENDENCY_DUE = 60.0
"""Seconds after which a bundle that waits for another is looked at again, if nothing wakes it before."""
BEHIND_DUE = 10.0
"""The same for one that waits behind a write that goes on by itself: to look more often would take turns from others,
and after a restart nobody knows when such a write has ended."""


@dataclass(frozen=True)
class Settled:
    """All that is known once the units of a batch are written as far as possible."""

    kinds: Kinds
    staged: StagedBundles
    elsewhere: Elsewhere
    units: Mapping[Unit, UnitState]
    result: PoolResult
    late: Sequence[tuple[Work, WriteEnd]] = ()
    """Writes that an earlier batch had let go, and that have ended since."""
    due_if_away: float = SOON

    @property
    def ended(self) -> list[tuple[Work, WriteEnd]]:
        """How writes have ended, as far as that is sure: a database that went away may be another one when it is back,
        and lack what it had just taken."""
        return [(work, end) for work, end in self.result.ended if not (self.result.away and isinstance(end, Written))]

    @property
    def written(self) -> list[Bundle]:
        """Also by an earlier attempt."""
        return [] if self.result.away else self._taken

    @property
    def _taken(self) -> list[Bundle]:
        now = [bundle for work, end in self.result.ended if isinstance(end, Written) for bundle in work.bundles]
        return [*now, *(bundle for state in self.units.values() for bundle in state.repeated)]

    @property
    def conflated(self) -> list[Bundle]:
        """Without those that were left out when the newest were chosen."""
        return [*self.elsewhere.conflated, *(each for state in self.units.values() for each in state.conflated)]

    @property
    def given_up(self) -> list[tuple[Bundle, GivenUp]]:
        ends = [(work, end) for work, end in self.result.ended if isinstance(end, GivenUp)]
        return [(bundle, end) for work, end in ends for bundle in work.bundles]

    @property
    def waiting(self) -> list[Waiting]:
        found = [each for state in self.units.values() for each in state.waiting()]
        found += [Waiting(each, BUSY) for work in self.result.let_go.values() for each in work.bundles]
        # Whether the database has it is looked up when it is back.
        return [*(Waiting(each, self.result.away) for each in self._taken if self.result.away), *found]


def table_receipt(settled: Settled, waiting_groups: Iterable[str]) -> TableReceipt:
    failures = [(*bundle.place, end.code, _told(bundle, end.why)) for bundle, end in settled.given_up]
    conflated = sum(settled.staged.conflated.values()) + len(settled.conflated)
    return TableReceipt(
        TABLE,
        len(settled.written),
        failure_batch(failures) if failures else None,
        skipped={CONFLATED: conflated} if conflated else {},
        waiting=_waiting_rows(settled),
        superseded=[Superseded(pack.group, pack.about, CONFLATED) for pack in settled.elsewhere.superseded],
        wakes=_wakes(settled, set(waiting_groups)),
    )


def _waiting_rows(settled: Settled) -> list[WaitingRows]:
    packs: dict[SourceKind, list[Waiting]] = {}
    for each in settled.waiting:
        packs.setdefault((each.bundle.source, each.bundle.kind), []).append(each)
    pauses = {(work.unit.source, work.kind.name): end.due for work, end in settled.ended if isinstance(end, NotTaken)}
    rows = []
    for key, waiting in packs.items():
        unit = Unit(key[0], settled.kinds[key[1]].group)
        reason, due = waiting[0].reason, pauses.get(key, DEPENDENCY_DUE)
        if unit in settled.result.left:
            reason = settled.result.left[unit]
            due = settled.due_if_away if settled.result.away else BEHIND_DUE if reason == BUSY else SOON
        elif reason == settled.result.away:
            due = settled.due_if_away
        bundles = [each.bundle for each in waiting]
        rows.append(WaitingRows(group_name(*key), _places(bundles), reason, due, WaitingPack.of(bundles).about))
    return rows


def groups_behind(kinds: Kinds, late: Iterable[tuple[Work, WriteEnd]]) -> set[str]:
    """All that may wait behind writes that nobody waited for, and that have ended: whatever is of their units, which is
    also where all that depends on them is."""
    return {
        group_name(work.unit.source, kind.name)
        for work, _ in late
        for kind in kinds.values()
        if kind.group == work.unit.group
    }


def _wakes(settled: Settled, waiting_groups: set[str]) -> list[str]:
    """What waits for a bundle that was written or given up now, or behind a write that has ended."""
    there = {(bundle.source, bundle.kind) for bundle in settled.written}
    there |= {(bundle.source, bundle.kind) for bundle, _ in settled.given_up}
    found = {group_name(source, kind.name) for source, name in there for kind in settled.kinds.dependents[name]}
    return sorted((found | groups_behind(settled.kinds, settled.late)) & waiting_groups)


def _places(bundles: Sequence[Bundle]) -> pa.RecordBatch:
    columns = zip(*(bundle.place for bundle in bundles), strict=True)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, PLACE_SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PLACE_SCHEMA)


def _told(bundle: Bundle, why: str) -> str:
    return f"{bundle} of source '{bundle.source}' was given up: {why}"
