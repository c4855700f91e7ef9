"""Counts what became of the bundles of a batch, by source and kind. The ledger adds it up with the batch.

In the ledger and not in the database: it is counted also while the database is away, together with what the batch
commits, and a batch that is written again counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from penstock.conflation import tally
from penstock.conflation.bundle import Bundle
from penstock.conflation.unit_state import Work
from penstock.destinations.state.receipt import Settled
from penstock.destinations.state.waiting_bundles import group_name
from penstock.destinations.state.writing.write_ends import WriteEnd, Written


def bundle_tallies(settled: Settled, is_new: bool) -> Mapping[str, Mapping[str, int]]:
    """By group. ``is_new``: the bundles were not counted as received before, because they have not waited."""
    found: dict[str, Counter[str]] = {}

    def counts(bundle: Bundle) -> Counter[str]:
        return found.setdefault(group_name(bundle.source, bundle.kind), Counter())

    for (source, kind), left_out in settled.staged.conflated.items():
        found.setdefault(group_name(source, kind), Counter())[tally.CONFLATED] += left_out
        if is_new:
            found[group_name(source, kind)][tally.RECEIVED] += left_out
    for bundle in settled.staged.bundles if is_new else ():
        counts(bundle)[tally.RECEIVED] += 1
    for bundle in settled.conflated:
        counts(bundle)[tally.CONFLATED] += 1
    for bundle in settled.written:
        counts(bundle)[tally.WRITTEN] += 1
    for bundle, _ in settled.given_up:
        counts(bundle)[tally.FAILED] += 1
    for work, end in settled.ended:
        _count_write(counts(work.bundles[-1]), settled, work, end)
    return found


def _count_write(counts: Counter[str], settled: Settled, work: Work, end: WriteEnd) -> None:
    if not isinstance(end, Written):
        return
    rows = end.rows
    counts.update(
        {
            tally.COMPARED: rows.compared,
            tally.INSERTED: rows.inserted,
            tally.UPDATED: rows.updated,
            tally.DELETED: rows.deleted,
        }
    )
    counts.update(tally.delay_name(end.at - settled.staged.received(bundle)) for bundle in work.bundles)
