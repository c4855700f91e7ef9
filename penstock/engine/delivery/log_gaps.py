"""Whether the log still has everything that a route has not read.

Retention and compaction leave that alone, so what is missing was taken away by other means: a file that somebody
removed, say. A reader passes over what is gone; a route must not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.delivery.batch_pieces import Range, between, joined
from penstock.errors import RouteError
from penstock.log.local import LocalLog

if TYPE_CHECKING:
    # Tasks import this module, and have no use for a database.
    from penstock.engine.ledger import Ledger, Position, WaitingPart


@dataclass(frozen=True)
class Gap:
    """Offsets ``first..last`` of a partition that a route still needs and the log no longer has."""

    route: str
    partition: int
    first: int
    last: int
    table: str = ""
    """The table that waits for them, of a route that is past them."""

    @property
    def what(self) -> str:
        places = f"offset {self.first}" if self.first == self.last else f"offsets {self.first}..{self.last}"
        if self.table:
            return (
                f"table '{self.table}' of route '{self.route}' waits for {places} of partition {self.partition}, and"
                " the log has them no more"
            )
        return f"route '{self.route}' has not read {places} of partition {self.partition}, and the log has them no more"

    @property
    def fix(self) -> str:
        return (
            "Put the missing segments back. Or give these records up for good: stop the pipeline, then run"
            f" penstock offset ack {self.route} {self.first}..{self.last} --partition {self.partition}"
        )


def gaps(log: LocalLog, ledger: Ledger, route: str, sources: Sequence[str]) -> list[Gap]:
    """What is missing for a route. Safe while the pipeline runs."""
    # The log first: a route that moves on meanwhile, and retention behind it, must not look like a gap.
    all_oldest = {partition: log.bounds(partition).oldest for partition in log.partitions()}
    oldest = {partition: all_oldest[partition] for partition in log.partitions(sources) if partition in all_oldest}
    account = ledger.account(route)
    standing = account.standing
    steps_hold = account.totals.waiting > sum(table.rows for table in account.waiting.values())
    needed = {
        partition: _past(position.hold if steps_hold else position.committed, standing.acknowledged.get(partition, ()))
        for partition, position in standing.positions.items()
    }
    found = [
        Gap(route, partition, needed[partition], first - 1)
        for partition, first in oldest.items()
        if partition in needed and needed[partition] < first
    ]
    waiting = ledger.waiting_parts(route) if account.waiting else ()
    return [*(gap for part in waiting for gap in gaps_of_waiting(all_oldest, part)), *found]


def gaps_of_waiting(oldest: Mapping[int, int], part: WaitingPart) -> list[Gap]:
    """What is missing of a part that a table waits for, where these are the ``oldest`` offsets of the log."""
    return [
        Gap(part.route, partition, start, min(end, oldest[partition]) - 1, part.table)
        for partition, stretch in part.batch.ranges.items()
        for start, end in between(
            stretch, [*part.passed_over.get(partition, ()), *part.acknowledged.get(partition, ())]
        )
        if start < oldest.get(partition, 0)
    ]


def _past(offset: int, acknowledged: Iterable[Range]) -> int:
    """The first offset, from this one on, that no operator has given up."""
    for start, end in joined(acknowledged):
        if start <= offset < end:
            offset = end
    return offset


def refused(gap: Gap) -> RouteError:
    return RouteError("PEN-RTE-005", f"{gap.what}.", gap.fix)


def open_route(log: LocalLog, ledger: Ledger, route: str, sources: Sequence[str]) -> dict[int, Position]:
    """Where a route goes on in every partition of its sources; in one that is new to it, at its oldest record.

    Raises ``RouteError`` if the log does not reach from there to its end: the route would pass over records in silence.
    """
    bounds = {partition: log.bounds(partition) for partition in log.partitions(sources)}
    known = ledger.open_route(route, {partition: each.oldest for partition, each in bounds.items()})
    for partition, each in bounds.items():
        done = known[partition].committed
        if done > each.end:
            raise RouteError(
                "PEN-RTE-001",
                f"route '{route}' has delivered partition {partition} up to {done}, but the log ends at {each.end}.",
                "The log was replaced or lost its end. Restore it, or start with a new `data_dir`.",
            )
    for gap in gaps(log, ledger, route, sources):
        raise refused(gap)
    return {partition: known[partition] for partition in bounds}
