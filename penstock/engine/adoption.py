"""What a route takes over from a history that the destination remembers: pure arithmetic over origins.

Batches of a history follow each other, so whatever lies before its newest batch was settled there: loaded, skipped,
failed or acknowledged. Of the newest one, some tables may be missing. What a batch has beyond the point where its log
and ours part is not ours, and what our log has there is not delivered yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.destinations.contract import Loaded
from penstock.engine.ledger import AdoptedBatch, Adoption
from penstock.engine.origin import Origin
from penstock.errors import PenstockError
from penstock.log.lineage import Lineage
from penstock.steps.contract import NO_FAILURES


@dataclass(frozen=True)
class LogPart:
    """A partition as this log has it."""

    identity: str
    oldest: int
    end: int
    lineage: Lineage


def plan_adoption(
    loads: Sequence[Loaded],
    log: Mapping[int, LogPart],
    positions: Mapping[int, int],
    starts: Mapping[int, int],
    others: Sequence[Loaded] = (),
) -> Adoption:
    """What a route that stands at ``positions`` takes over of ``loads``, one history, oldest first. Before that it goes
    back to ``starts``. ``others``: what further histories have, which may have loaded tables of the newest batch."""
    unknown = next((load for load in loads if Origin.from_text(load.batch.origin) is None), None)
    if unknown is not None and all(Origin.from_text(load.batch.origin) is None for load in loads):
        raise PenstockError(
            "PEN-ENG-070",
            f"what the destination has of route '{unknown.batch.route}' was written by an older Penstock, which did not"
            " note of which records its batches were made.",
            "Find out how far it has come, then acknowledge that and go on behind it:"
            f" penstock offset ack {unknown.batch.route} 0..OFFSET --partition P",
        )
    reached = {**positions, **starts}
    newest = max((load.batch.number for load in loads), default=0)
    batches: list[AdoptedBatch] = []
    for (number, text), tables in _by_batch(loads).items():
        origin = Origin.from_text(text)
        if origin is None:
            continue
        shared = {p: stretch for p, stretch in shared_ranges(origin, log).items() if stretch[1] > reached.get(p, 0)}
        before = {p: (reached.get(p, 0), start) for p, (start, _) in shared.items() if start > reached.get(p, 0)}
        if before:
            batches.append(AdoptedBatch(before))
        ranges = {p: (max(start, reached.get(p, 0)), end) for p, (start, end) in shared.items()}
        if ranges:
            there = tables if number < newest else {**_covering(others, ranges, log), **tables}
            batches.append(AdoptedBatch(ranges, there, settled=number < newest))
        reached |= {p: end for p, (_, end) in ranges.items()}
    return Adoption(batches, newest, starts)


def _covering(
    loads: Sequence[Loaded], ranges: Mapping[int, tuple[int, int]], log: Mapping[int, LogPart]
) -> dict[str, str]:
    """The tables that have all of these ranges by one of the loads, each with the rows that it refused."""
    found = []
    for load in loads:
        origin = Origin.from_text(load.batch.origin)
        shared = {} if origin is None else shared_ranges(origin, log)
        if all(p in shared and shared[p][0] <= start and end <= shared[p][1] for p, (start, end) in ranges.items()):
            found.append(load)
    return {table: text for tables in _by_batch(found).values() for table, text in tables.items()}


def _by_batch(loads: Sequence[Loaded]) -> dict[tuple[int, str], dict[str, str]]:
    """The tables of each batch, each with its refused rows; batches in order of their numbers."""
    found: dict[tuple[int, str], dict[str, str]] = {}
    for load in sorted(loads, key=lambda load: load.batch.number):
        refused = (load.failures if load.failures is not None else NO_FAILURES).to_pylist()
        rows = [[row["partition"], row["offset"], row["code"], row["message"]] for row in refused]
        tables = found.setdefault((load.batch.number, load.batch.origin), {})
        # A mirror's table may be named several times.
        earlier = json.loads(tables.get(load.table, "[]"))
        tables[load.table] = json.dumps([*earlier, *rows])
    return found


def shared_ranges(origin: Origin, log: Mapping[int, LogPart]) -> dict[int, tuple[int, int]]:
    """What of a batch is in this log: the same offsets, given by the same writers."""
    found = {}
    for partition, stretch in origin.stretches.items():
        ours = log.get(partition)
        if ours is None or ours.identity != stretch.identity:
            continue
        end = min(stretch.end, ours.end)
        start = max(stretch.start, ours.oldest)
        if start < end:
            end = stretch.lineage.agreed(ours.lineage, start, end)
        if stretch.start < end:
            found[partition] = (stretch.start, end)
    return found
