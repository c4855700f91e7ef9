"""Replays failed records through their route.

A replayed record is appended to a partition that only its route reads, so other routes never see it twice. The ledger
notes the place of the append before it happens; after a crash the log's end shows whether it did, so each entry is
replayed exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.failed.failed_store import FailedEntry
from penstock.engine.ledger import Ledger
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries

CHUNK = 5_000
"""Entries per append."""


def replay_source(route: str) -> str:
    """The name of the log's partition for a route's replayed records."""
    return f"replay:{route}"


def replay(route: str, chosen: Sequence[FailedEntry], log: LocalLog, ledger: Ledger) -> int:
    """Append the entries to the log for their route; returns how many. Entries replayed before are left out."""
    writer = log.writer(replay_source(route))
    try:
        under_way = ledger.replay_under_way(route)
        if under_way is not None:
            ledger.finish_replay(route, appended=writer.next_offset > under_way[1])
        settled = ledger.settled_entries(route)
        open_entries = [entry for entry in chosen if entry.id not in settled]
        for first in range(0, len(open_entries), CHUNK):
            chunk = open_entries[first : first + CHUNK]
            ledger.begin_replay(route, writer.partition, writer.next_offset, [entry.id for entry in chunk])
            writer.append(entries(_replayed_record(entry) for entry in chunk))
            ledger.finish_replay(route, appended=True)
        return len(open_entries)
    finally:
        writer.close()


def _replayed_record(entry: FailedEntry) -> Record:
    r = entry.record
    headers = {**r.headers, "replay_of": f"{r.partition}:{r.offset}"}
    return Record(r.data, r.namespace, r.op, r.mode, r.key, headers, r.timestamp)
