"""What waits in a route's step of a source that the route no longer reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.errors import ContradictionError
from penstock.log.local_log import LocalLog


def check_sources_of_held(log: LocalLog, route: str, held: Mapping[int, int], read: Collection[int]) -> None:
    """Raises ``ContradictionError`` if records wait in partitions that the route does not ``read``, before it forgets
    what waits: they would not come again. ``held`` is the lowest offset that waits, by partition."""
    left = sorted({log.partitions()[p].source for p in held if p not in read and p in log.partitions()})
    if left:
        names = ", ".join(f"'{name}'" for name in left)
        raise ContradictionError(
            "PEN-RTE-027",
            f"records of {names} wait in a step of route '{route}', which no longer reads it, and what waits must be"
            " read again: it would be lost.",
            f"Put {names} back into `from` of the route until nothing of it waits. To let it go on before its time:"
            f" penstock offset release {route}",
        )
