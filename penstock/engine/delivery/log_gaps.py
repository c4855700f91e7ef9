"""Whether the log still has everything that a route has not read.

Retention and compaction keep that, so what is missing went another way: somebody removed a file, for example. A reader
passes over what is gone; a route must not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.delivery.batch_pieces import Range, joined, subtract
from penstock.errors import RouteError
from penstock.log.local_log import LocalLog

if TYPE_CHECKING:
    # Tasks import this module and need no database.
    from penstock.engine.ledger import Ledger, Position, WaitingPart


@dataclass(frozen=True)
class Gap:
    """Offsets ``first..last`` of a partition that a route still needs and the log no longer has."""

    route: str
    partition: int
    first: int
    last: int
    table: str = ""
    """The table that waits for them, if the route itself is past them."""

    @property
    def what(self) -> str:
        places = f"offset {self.first}" if self.first == self.last else f"offsets {self.first}..{self.last}"
        if self.table:
            return (
                f"table '{self.table}' of route '{self.route}' waits for {places} of partition {self.partition}, and"
                " the log no longer has them"
            )
        return (
            f"route '{self.route}' has not read {places} of partition {self.partition}, and the log no longer has them"
        )

    @property
    def fix(self) -> str:
        return (
            "Put the missing segments back. Or give these records up for good: stop the pipeline, then run"
            f" penstock offset ack {self.route} {self.first}..{self.last} --partition {self.partition}"
        )


def gaps(log: LocalLog, ledger: Ledger, route: str, sources: Sequence[str]) -> list[Gap]:
    """The gaps of a route. Safe to call while the pipeline runs."""
    # The log first: a route that moves on meanwhile, and retention behind it, must not look like a gap.
    all_oldest = {partition: log.bounds(partition).oldest for partition in log.partitions()}
    oldest = {partition: all_oldest[partition] for partition in log.partitions(sources) if partition in all_oldest}
    account = ledger.account(route)
    standing = account.standing
    steps_hold = account.totals.waiting > sum(table.rows for table in account.waiting.values())
    needed = {
        partition: _first_unacknowledged(
            position.hold if steps_hold else position.committed, standing.acknowledged.get(partition, ())
        )
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
    """The gaps in a part that a table waits for. ``oldest``: the oldest offset of each partition."""
    return [
        Gap(part.route, partition, start, min(end, oldest[partition]) - 1, part.table)
        for partition, stretch in part.batch.ranges.items()
        for start, end in subtract(
            stretch, [*part.passed_over.get(partition, ()), *part.acknowledged.get(partition, ())]
        )
        if start < oldest.get(partition, 0)
    ]


def _first_unacknowledged(offset: int, acknowledged: Iterable[Range]) -> int:
    """The first offset, from this one on, that no operator has acknowledged."""
    for start, end in joined(acknowledged):
        if start <= offset < end:
            offset = end
    return offset


def gap_error(gap: Gap) -> RouteError:
    return RouteError("PEN-RTE-005", f"{gap.what}.", gap.fix)


def open_route(log: LocalLog, ledger: Ledger, route: str, sources: Sequence[str]) -> dict[int, Position]:
    """Return where a route continues in each partition of its sources; in a new one, at its oldest record.

    Raises ``RouteError`` if the log does not have all records from there on: the route would silently skip some.
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
        raise gap_error(gap)
    return {partition: known[partition] for partition in bounds}
