"""Loads a batch that no destination should hold in memory, and says how much memory that took."""

from __future__ import annotations

import math
import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from penstock.destinations.contract import AnyDestination, Batch, Part
from penstock.record import placed
from penstock.testing.forked import make_process
from penstock.testing.memory import measure_growth

LARGE = 64 << 20
"""Bytes of the batch."""
HELD_BYTES = "penstock.destinations.sql.stage.stager.HELD_BYTES"
"""What the stager that SQL and files share may hold back; for these tests much less than the batch has."""


@dataclass(frozen=True)
class TakenMemory:
    """What a batch took, in bytes, and how many of its rows arrived."""

    to_stage: int
    to_write: int
    rows: int


def load_here(destination: AnyDestination, directory: Path, block: pa.RecordBatch) -> TakenMemory:
    """Stage and write a batch that is this block again and again."""
    pieces = math.ceil(LARGE / block.column("data").nbytes)
    # What is imported, and perhaps compiled, for the first rows is not theirs.
    _stage(destination, directory, block.slice(0, 10), 1)
    with patch(HELD_BYTES, LARGE // 32):
        with measure_growth() as staging:
            parts = _stage(destination, directory, block, pieces)
        with measure_growth() as writing:
            receipt = destination.write(Batch("ledger-a", "shop", 0, {0: (0, pieces * block.num_rows)}), parts)
    return TakenMemory(staging.bytes, writing.bytes, receipt.rows)


def _stage(destination: AnyDestination, directory: Path, block: pa.RecordBatch, pieces: int) -> list[Part]:
    stager = destination.stager(directory, {})
    for piece in range(pieces):
        stager.add(placed(block, 0, piece * block.num_rows))
    return stager.finish()


def load_elsewhere(destination: AnyDestination, directory: Path, block: pa.RecordBatch) -> TakenMemory:
    """The same in a process of its own, where nothing else takes memory or has any left, by a destination of the same
    class and config."""
    answer, told = multiprocessing.get_context("forkserver").Pipe(duplex=False)
    process = make_process(_load_and_tell, told, type(destination), destination.config, directory, block)
    process.start()
    told.close()
    try:
        taken: TakenMemory = answer.recv()
    except EOFError:
        raise AssertionError("the process that was to load a large batch died: see its last words on stderr") from None
    finally:
        process.join()
    return taken


def _load_and_tell(
    told: Connection, kind: type[AnyDestination], config: Any, directory: Path, block: pa.RecordBatch
) -> None:
    told.send(load_here(kind(config), directory, block))
