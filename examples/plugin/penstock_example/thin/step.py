"""Keeps the records whose field has one of the chosen values. The value's hash decides, so a replay keeps the same."""

from __future__ import annotations

import json
from hashlib import sha256

import pyarrow as pa

from penstock.outcome import FAILURE_SCHEMA, PLACE_COLUMNS, Outcome
from penstock.steps.contract import ArrowStep
from penstock_example.thin.config import ThinConfig


class Thin(ArrowStep[ThinConfig]):
    def apply(self, batch: pa.RecordBatch) -> Outcome:
        kept, failures = [], []
        # A loop over records is easy to read and slow; steps that matter work on whole columns.
        for row, data in enumerate(batch.column("data").to_pylist()):
            try:
                kept.append(self._wants(data))
            except ValueError as error:
                kept.append(False)
                place = {name: batch.column(name)[row].as_py() for name in PLACE_COLUMNS}
                # A record that cannot be treated is named, with a stable code: it is never dropped, and never raises.
                failures.append({**place, "code": "not_json", "message": str(error)})
        remaining = batch.filter(pa.array(kept, pa.bool_()))
        skipped = batch.num_rows - remaining.num_rows - len(failures)
        return Outcome(remaining, skipped, pa.RecordBatch.from_pylist(failures, schema=FAILURE_SCHEMA))

    def _wants(self, data: bytes | None) -> bool:
        event = json.loads((data or b"").decode(), parse_constant=_refuse)
        if not isinstance(event, dict):
            raise ValueError("not a JSON object")
        if self.config.by not in event:
            return True
        value = json.dumps(event[self.config.by], sort_keys=True)
        chosen = int.from_bytes(sha256(value.encode("utf-8", "surrogatepass")).digest()[:8])
        return chosen < self.config.share * 2**64


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
