"""Ids of records that no other record has: neither of another log, nor of an older copy that was put back and went on.

The number of a partition and an offset come again in every new ``data_dir``, and for other records after an older copy
was restored. Who made the partition and who wrote the record (``penstock.log.lineage``) tell them apart.
"""

from __future__ import annotations

from functools import cache

from penstock.log.lineage import Lineage
from penstock.log.local_log import LocalLog

_DIGITS = 12
"""Of a partition's identity; a writer's id has as many."""


class RecordIds:
    """The ids of a log's records. Made anew for every batch: what it reads of a log is read once."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log
        self._origin = cache(self._read_origin)

    def id_of(self, partition: int, offset: int) -> str:
        """``<partition's identity><writer>-<partition>-<offset>``, the same at any time."""
        identity, lineage = self._origin(partition)
        known = identity[:_DIGITS] + lineage.writer_of(offset)
        return f"{known}-{partition}-{offset}" if known else f"{partition}-{offset}"

    def _read_origin(self, partition: int) -> tuple[str, Lineage]:
        owner = self._log.partitions().get(partition)
        # A step may have invented a record's place.
        return ("", Lineage()) if owner is None else (owner.identity, self._log.lineage(partition))
