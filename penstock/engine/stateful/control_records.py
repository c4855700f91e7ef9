"""The control records of a route: what its holding step is told beside the data.

A *tick* says what time it is. A *release* says that nothing that stands at or before a point in the order of the log
waits any longer. They are records of a partition that only the route reads, so a replayed batch sees the same ones.
"""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.stateful.shards import RELEASE, TICK
from penstock.holding.item import ITEM, Items
from penstock.record import EPOCH, Op, Record, int64_values

TICK_NAMESPACE = "tick"
RELEASE_NAMESPACE = "release"
_POINT = "up_to"


def tick_record(now: int) -> Record:
    """``now`` in µs."""
    return Record(None, TICK_NAMESPACE, Op.COMMAND, timestamp=EPOCH + timedelta(microseconds=now))


def release_record(up_to: int, now: int) -> Record:
    """``up_to`` is a stamp: the point in the order of the log."""
    data = json.dumps({_POINT: up_to}).encode()
    return Record(data, RELEASE_NAMESPACE, Op.COMMAND, timestamp=EPOCH + timedelta(microseconds=now))


def control_items(records: pa.RecordBatch) -> Items:
    """Control records as items that every shard is given. Other kinds, of a later Penstock, mean nothing here."""
    items = np.zeros(records.num_rows, ITEM)
    items["time"] = int64_values(records.column("timestamp"))
    items["bits"][_are(records, TICK_NAMESPACE)] = TICK
    for row in released_rows(records):
        items["bits"][row] = RELEASE
        items["order"][row] = json.loads(records.column("data")[row].as_py())[_POINT]
    known: Items = items[items["bits"] != 0]
    return known


def released_rows(records: pa.RecordBatch) -> list[int]:
    """Which of the control records are releases."""
    found: list[int] = np.flatnonzero(_are(records, RELEASE_NAMESPACE)).tolist()
    return found


def _are(records: pa.RecordBatch, namespace: str) -> np.ndarray:
    return np.asarray(pc.equal(records.column("namespace"), namespace).to_numpy(zero_copy_only=False))
