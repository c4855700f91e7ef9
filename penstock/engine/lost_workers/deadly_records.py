"""Records that end the process which runs them in a step before a holding step.

On such a route a batch is not cut into pieces: what it holds and releases depends on state. Instead the batch runs
again without these records, which fail. They are written down in the checkpoint, because Spark may run the batch once
more after a crash, and must find it as it was.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.engine.lost_workers.lost_worker import LostCode, WorkerLost
from penstock.log.format.log_files import replace_durably

_FILE = "deadly-records.json"


@dataclass(frozen=True)
class DeadlyRecord:
    partition: int
    offset: int
    step: str
    code: LostCode
    what: str

    @property
    def lost(self) -> WorkerLost:
        return WorkerLost(self.step, self.code, self.what)


def keep_deadly_records(checkpoint: Path, batch: int, records: Sequence[DeadlyRecord]) -> None:
    """Write down what Spark's batch is run without, in place of what was known of earlier batches."""
    content = {"batch": batch, "records": [asdict(record) for record in records]}
    replace_durably(checkpoint / _FILE, json.dumps(content).encode())


def kept_deadly_records(checkpoint: Path, batch: int) -> tuple[DeadlyRecord, ...]:
    """What Spark's batch is run without, as far as is known."""
    file = checkpoint / _FILE
    if not file.exists():
        return ()
    content = json.loads(file.read_text())
    found = [DeadlyRecord(**{**record, "code": LostCode(record["code"])}) for record in content["records"]]
    return tuple(found) if content["batch"] == batch else ()
