"""Replays failed records through their route.

A replayed record is appended to a partition that only its route reads, so other routes never see it twice. The ledger
notes the place of the append before it happens; after a crash the log's end shows whether it did, so each entry is
replayed exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from penstock.engine.failed.failed_store import FailedEntry
from penstock.engine.ledger import Ledger
from penstock.engine.route_sources import replay_source
from penstock.errors import PenstockError
from penstock.log.local_log import LocalLog
from penstock.record import Header, Record, entries

CHUNK = 5_000
"""Entries per append."""


Place = tuple[int, int]


@dataclass(frozen=True)
class _Copy:
    """A record that comes again: its first original, and the item of it that is meant, 0 for all of it."""

    origin: Place
    item: int = 0


def repeated_copies(route: str, log: LocalLog, positions: Mapping[int, int]) -> dict[int, list[int]]:
    """Of the replayed records that a route at ``positions`` has before it, those whose original, or a later copy of it,
    is before it too: delivered as well, they would be there twice. By partition, their offsets."""
    copies: dict[Place, _Copy] = {}
    for partition in log.partitions([replay_source(route)]):
        for batch in log.read(partition, log.bounds(partition).oldest):
            headers = batch.column("headers")
            names, items = (
                pc.map_lookup(headers, name.value, "first").to_pylist()
                for name in (Header.REPLAY_OF, Header.REPLAY_ITEM)
            )
            for offset, name, item in zip(batch.column("offset").to_pylist(), names, items, strict=True):
                origin = _place(name) if name else (partition, offset)
                # What failed again is the copy of a copy.
                first = copies[origin].origin if origin in copies else origin
                copies[partition, offset] = _Copy(first, int(item or 0))
    ahead = {place: copy for place, copy in copies.items() if place[1] >= positions.get(place[0], 0)}
    known = log.partitions().keys() & positions.keys()
    origins = {copy.origin for copy in ahead.values()}
    there = log.fetch((p, o) for p, o in origins if p in known and o >= positions[p])
    comes = {
        _Copy(place)
        for batch in there
        for place in zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    }
    whole = comes | {copy for copy in ahead.values() if copy.item == 0}
    found: dict[int, list[int]] = {}
    for (partition, offset), copy in sorted(ahead.items(), reverse=True):
        # The copy of an item comes with any copy of its record, too.
        if copy in comes or (copy.item and _Copy(copy.origin) in whole):
            found.setdefault(partition, []).append(offset)
        comes.add(copy)
    return found


def replay(
    route: str, chosen: Sequence[FailedEntry], log: LocalLog, ledger: Ledger, not_delivered: bool = False
) -> int:
    """Append the entries to the log for their route; returns how many. Entries replayed before are left out. Raises
    ``PenstockError`` if some may be at the destination, unless an operator says that they are ``not_delivered``."""
    writer = log.writer(replay_source(route))
    try:
        under_way = ledger.replay_under_way(route)
        if under_way is not None:
            ledger.finish_replay(route, appended=writer.next_offset > under_way[1])
        settled = ledger.settled_entries(route)
        open_entries = [entry for entry in chosen if entry.id not in settled]
        doubts = {} if not_delivered else ledger.replay_doubts(route)
        doubtful = [e.id for e in open_entries if e.record.offset < doubts.get(e.record.partition, 0)]
        if doubtful:
            raise PenstockError(
                "PEN-FLD-002",
                f"{len(doubtful)} of these failed records of route '{route}' may be at the destination already (ids"
                f" {doubtful[0]} to {doubtful[-1]}): it has replayed records that this log does not have, because an"
                " older copy was put back.",
                "Look which of them the destination has, and let go of those: penstock failed drop --route"
                f" {route} ID... Then replay the others: penstock failed replay --route {route} --not-delivered",
            )
        for first in range(0, len(open_entries), CHUNK):
            chunk = open_entries[first : first + CHUNK]
            ledger.begin_replay(route, writer.partition, writer.next_offset, [entry.id for entry in chunk])
            writer.append(entries(_replayed_record(entry) for entry in chunk))
            ledger.finish_replay(route, appended=True)
        return len(open_entries)
    finally:
        writer.close()


def _place(name: str) -> tuple[int, int]:
    partition, _, offset = name.partition(":")
    return int(partition), int(offset)


def _replayed_record(entry: FailedEntry) -> Record:
    r = entry.record
    headers = {**r.headers, Header.REPLAY_OF: f"{r.partition}:{r.offset}"}
    # A record of which one item is replayed can fail in that item alone.
    if entry.item:
        headers[Header.REPLAY_ITEM] = str(entry.item)
    return Record(r.data, r.namespace, r.op, r.mode, r.key, headers, r.timestamp)
