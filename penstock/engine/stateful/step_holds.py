"""From where on the log is kept for what waits."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.log.local_log import LocalLog
from penstock.log.record_order import LogOrder, Ranges


def holds_in_order(log: LocalLog, lowest: Mapping[int, int], ranges: Ranges) -> dict[int, int]:
    """The offsets to read from again if the state is lost: in every partition, what the log's order has from the oldest
    record on that waits. Where nothing waits there may be what closed a group meanwhile.

    ``lowest``: by partition, the lowest offset that waits. ``ranges``: of each partition what the route has read, and
    may read again.
    """
    if not lowest:
        return {}
    oldest = min(lowest.items(), key=lambda place: (log.reader(place[0]).stamp_at(place[1]), *place))
    before = LogOrder(log).before(ranges, oldest)
    starts = {p: before[p][1] if p in before else start for p, (start, _) in ranges.items()}
    return {p: start for p, start in starts.items() if start < ranges[p][1]}
