"""Skips records whose key was seen a short time before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.holding.field_keys import FieldKeys
from penstock.holding.seen_keys import SeenKeys
from penstock.steps.contract import HoldingStep, Scan, Shard
from penstock.steps.dedupe.config import DedupeConfig
from penstock.steps.fields import field_path


class Dedupe(HoldingStep[DedupeConfig]):
    def scan(self, batch: pa.RecordBatch, secret: bytes) -> Scan:
        keys = FieldKeys([field_path(text) for text in self.config.key], secret)
        high, low, keyed = keys.hash(batch.column("data"))
        return Scan(high, low, keyed, np.zeros(len(keyed), np.uint32))

    def new_state(self, shard: Shard) -> SeenKeys:
        return SeenKeys(round(self.config.window * 1e6))
