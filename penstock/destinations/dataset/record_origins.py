"""What stands before partition and offset in the ids of records: who wrote them.

A batch has one such origin per partition, or a few. They are asked for at the ends of stretches and not record by
record: a partition is written by one writer after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def find_origins(record_id: Callable[[int, int], str], partitions: Int64s, offsets: Int64s) -> tuple[Int64s, list[str]]:
    """Of each record the number of its origin, and the origins: the id of a record is its origin and
    ``<partition>-<offset>``."""
    numbers, known = np.zeros(len(offsets), np.int64), dict[str, int]()

    def origin(row: int) -> int:
        partition, offset = int(partitions[row]), int(offsets[row])
        return known.setdefault(record_id(partition, offset).removesuffix(f"{partition}-{offset}"), len(known))

    in_order = np.lexsort((offsets, partitions))
    stretches = np.split(in_order, np.flatnonzero(np.diff(partitions[in_order])) + 1) if len(offsets) else []
    while stretches:
        rows = stretches.pop()
        first = origin(int(rows[0]))
        if first == origin(int(rows[-1])):
            numbers[rows] = first
        else:
            stretches += np.array_split(rows, 2)
    return numbers, list(known)
