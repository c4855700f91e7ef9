"""The records that a batch is made of, as a text that the destination keeps with the batch.

Per partition it names the log's identity, the offsets and the writers that assigned them (``penstock.log.lineage``).
Two batches of the same origin are the same batch, whatever ledgers and copies of the log were restored in between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.log.lineage import Incarnation, Lineage
from penstock.log.local_log import LocalLog

MAX_INCARNATIONS = 100
"""How many writers of a stretch are named: some engines keep no long texts. Further ones share a digest."""


@dataclass(frozen=True)
class OriginStretch:
    """The offsets ``[start, end)`` of a partition, and who wrote them."""

    identity: str
    start: int
    end: int
    lineage: Lineage


@dataclass(frozen=True)
class Origin:
    """What a batch covers, by partition."""

    stretches: Mapping[int, OriginStretch]

    @classmethod
    def of(cls, log: LocalLog, ranges: Mapping[int, tuple[int, int]]) -> Origin:
        owners = log.partitions()
        return cls(
            {
                partition: OriginStretch(
                    owners[partition].identity, start, end, log.lineage(partition).within(start, end)
                )
                for partition, (start, end) in sorted(ranges.items())
            }
        )

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        return {partition: (each.start, each.end) for partition, each in self.stretches.items()}

    def to_text(self) -> str:
        content = {
            str(partition): [each.identity, each.start, each.end, [list(one) for one in _bounded(each.lineage)]]
            for partition, each in self.stretches.items()
        }
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Origin | None:
        """``None`` for an empty text, or one whose format this release does not know."""
        try:
            return cls(
                {
                    int(partition): OriginStretch(
                        str(identity),
                        int(start),
                        int(end),
                        Lineage(tuple(Incarnation(int(first), str(writer)) for first, writer in incarnations)),
                    )
                    for partition, (identity, start, end, incarnations) in json.loads(text).items()
                }
            )
        except (ValueError, TypeError, AttributeError):
            return None


def _bounded(lineage: Lineage) -> tuple[Incarnation, ...]:
    found = lineage.incarnations
    if len(found) <= MAX_INCARNATIONS:
        return found
    kept, rest = found[: MAX_INCARNATIONS - 1], found[MAX_INCARNATIONS - 1 :]
    digest = hashlib.sha256(json.dumps(rest).encode()).hexdigest()[:16]
    return (*kept, Incarnation(rest[0].first, f"={digest}"))
