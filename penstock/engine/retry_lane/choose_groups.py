"""Which of the groups that wait at the destination are tried next, together.

What was begun comes first, with all that it had: it may be at the destination. No group of a name is tried without the
older ones, nor beside a retry that has some of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.destinations.contract import GROUP_SEPARATOR
from penstock.engine.ledger import QueuedGroup

MOST_ITEMS = 100_000
"""How much a retry takes at most, but for a single source."""
MOST_GROUPS_IN_TURN = 5_000
MOST_ITEMS_IN_TURN = 20_000
"""The same where groups of a name are tried one behind the other, but for a single group. With few groups the queue,
which may have hundreds of thousands after an hour, would be read again for little; with many items, batches would wait
long for their turn."""

REFUSED_BATCH = ""
"""The group of what a batch had staged that was refused as a whole."""


def choose_groups(queue: Sequence[QueuedGroup], put_off: Collection[int], conflates: bool) -> Sequence[QueuedGroup]:
    """Of the groups in ``queue``, the oldest first: all of a retry that was begun, or those of a new one, or nothing.
    ``put_off``: the ids of groups that are not tried now, though they may be due. ``conflates``: whether the
    destination gets all groups of a name together."""
    due = [group for group in queue if group.is_due and group.id not in put_off]
    begun = [group.number for group in due if group.number is not None]
    if begun:
        return [group for group in queue if group.number == min(begun)]
    # A record may be in a refused batch and, after its route went back, in another group.
    refused = [group for group in due if group.group == REFUSED_BATCH]
    if refused:
        return refused[:1]
    busy = {group.group for group in queue if group.number is not None}
    if conflates:
        # What was left a moment ago comes with what else there is of its name, or not at all.
        busy |= {group.group for group in queue if group.id in put_off}
        names = {group.group for group in due} - busy
        return _whole_sources([group for group in queue if group.group in names])
    return _oldest_of_each([group for group in queue if group.group not in busy], {group.id for group in due})


def _oldest_of_each(queue: Sequence[QueuedGroup], due: Collection[int]) -> list[QueuedGroup]:
    """Of each name whose oldest group is due the oldest ones, as many as fit: those behind wait for it alone."""
    chosen: list[QueuedGroup] = []
    goes_on: dict[str, bool] = {}
    items = 0
    for group in queue:
        fits = not chosen or (len(chosen) < MOST_GROUPS_IN_TURN and items + group.rows <= MOST_ITEMS_IN_TURN)
        goes_on[group.group] = goes_on.get(group.group, group.id in due) and fits
        if goes_on[group.group]:
            chosen.append(group)
            items += group.rows
    return chosen


def _whole_sources(groups: Sequence[QueuedGroup]) -> list[QueuedGroup]:
    """As many sources as fit, those that wait longest first."""
    sources: dict[str, list[QueuedGroup]] = {}
    for group in groups:
        sources.setdefault(group.group.partition(GROUP_SEPARATOR)[0], []).append(group)
    chosen: list[QueuedGroup] = []
    items = 0
    for own in sources.values():
        items += sum(group.rows for group in own)
        if chosen and items > MOST_ITEMS:
            break
        chosen += own
    return chosen
