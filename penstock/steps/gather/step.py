"""Keeps the records of a key back until one of them closes it, or for so long."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.holding.field_keys import FieldKeys
from penstock.holding.waiting_groups import CLOSES, WaitingGroups
from penstock.json.find import find
from penstock.steps.condition import Condition
from penstock.steps.contract import HoldingStep, Scan, Shard
from penstock.steps.expression.parse import parse
from penstock.steps.fields import field_path
from penstock.steps.gather.config import GatherConfig

SLOWEST_TICK = 30.0
FASTEST_TICK = 0.1


class Gather(HoldingStep[GatherConfig]):
    def __init__(self, config: GatherConfig) -> None:
        super().__init__(config)
        self._until = Condition(parse(config.until))
        self.tick_every = min(max(config.at_most / 10, FASTEST_TICK), SLOWEST_TICK)

    def scan(self, batch: pa.RecordBatch, secret: bytes) -> Scan:
        paths = [field_path(text) for text in self.config.key]
        found = find(batch.column("data"), [*paths, *self._until.paths])
        high, low, keyed = FieldKeys(paths, secret).hash_found(found)
        closes = self._until.judge(batch, found.paths_from(len(paths))).true
        return Scan(high, low, keyed, np.where(closes, np.uint32(CLOSES), np.uint32(0)))

    def new_state(self, shard: Shard) -> WaitingGroups:
        return WaitingGroups(round(self.config.at_most * 1e6))
