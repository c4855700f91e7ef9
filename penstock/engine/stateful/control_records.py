"""The control records of a route: what its holding step is told beside the data.

A *tick* says what time it is. A *release* says that nothing that stands at or before a point in the order of the log
waits any longer. Others are commands that only the step understands. All are records of a partition that only the route
reads, so a replayed batch sees the same ones.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.stateful.shards import COMMAND, RELEASE, TICK
from penstock.holding.item import Items
from penstock.outcome import PLACE_COLUMNS
from penstock.record import EPOCH, Op, Record, int64_values
from penstock.steps.contract import HoldingStep

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


def command_record(name: str, data: bytes, now: int) -> Record:
    """What only the step understands. Its ``name`` is none of ours."""
    assert name not in (TICK_NAMESPACE, RELEASE_NAMESPACE)
    return Record(data, name, Op.COMMAND, timestamp=EPOCH + timedelta(microseconds=now))


def control_items(records: pa.RecordBatch, step: HoldingStep[Any]) -> Items:
    """Control records as items that every shard is given. What neither is ours nor means something to the step, as of a
    later Penstock, is left out."""
    items = np.zeros(records.num_rows, step.item_type)
    items["time"] = int64_values(records.column("timestamp"))
    ticks, releases = _are(records, TICK_NAMESPACE), _are(records, RELEASE_NAMESPACE)
    items["bits"][ticks] = TICK
    for row in np.flatnonzero(releases):
        items["bits"][row] = RELEASE
        items["order"][row] = json.loads(records.column("data")[row].as_py())[_POINT]
    return np.concatenate([items[ticks | releases], *_commands(records.filter(pa.array(~(ticks | releases))), step)])


def _commands(records: pa.RecordBatch, step: HoldingStep[Any]) -> list[Items]:
    found = []
    for row in range(records.num_rows):
        one = records.slice(row, 1)
        items = step.commands(one)
        for name in PLACE_COLUMNS:
            items[name] = one.column(name)[0].as_py()
        items["time"] = int64_values(one.column("timestamp"))
        items["bits"] |= COMMAND
        found.append(items)
    return found


def released_rows(records: pa.RecordBatch) -> list[int]:
    """Which of the control records are releases."""
    found: list[int] = np.flatnonzero(_are(records, RELEASE_NAMESPACE)).tolist()
    return found


def _are(records: pa.RecordBatch, namespace: str) -> np.ndarray:
    return np.asarray(pc.equal(records.column("namespace"), namespace).to_numpy(zero_copy_only=False))
