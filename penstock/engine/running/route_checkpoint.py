"""The checkpoint of a route, in which Spark keeps how far it is, and what it says beside the ledger."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.delivery.batch_pieces import Ranges, remaining
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger
from penstock.engine.lost_workers.deadly_records import DeadlyRecord, keep_deadly_records, kept_deadly_records
from penstock.engine.route_plan import RoutePlan
from penstock.engine.running.route_pace import Pace
from penstock.engine.spark.spark_checkpoints import batch_end, keep_start, newest_batch
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import offsets_to_json


@dataclass(frozen=True)
class RouteCheckpoint:
    plan: RoutePlan
    layout: Layout
    log: LocalLog
    ledger: Ledger

    def select(self) -> Path:
        """Return the current checkpoint; remove those from before the route was moved back: their offsets are void."""
        route, scope = self.plan.name, self.ledger.scope
        generation = self.ledger.generation(route)
        for earlier in range(generation):
            shutil.rmtree(self.layout.checkpoint(route, scope, earlier), ignore_errors=True)
        return self.layout.checkpoint(route, scope, generation)

    def requested_ranges(self, number: int) -> Ranges:
        """The part of Spark's batch that is not committed. It ends where the checkpoint says: Spark fixed that before
        the batch began."""
        end = batch_end(self.select(), number)
        committed = {p: position.committed for p, position in self.ledger.offsets(self.plan.name).items()}
        return remaining({p: (0, stop) for p, stop in end.items()}, committed)

    def deadly_records(self) -> tuple[DeadlyRecord, ...]:
        """What the batch that Spark begins with is run without."""
        checkpoint = self.select()
        batch = newest_batch(checkpoint)
        return () if batch is None else kept_deadly_records(checkpoint, batch)

    def keep_deadly_records(self, number: int, found: Sequence[DeadlyRecord]) -> None:
        """Note what a batch of Spark is to be run without."""
        keep_deadly_records(self.select(), number, found)

    def read_options(self, pace: Pace) -> dict[str, str]:
        """What the route's source is told: where it begins, and how much it takes at a time."""
        plan = self.plan
        positions = open_route(self.log, self.ledger, plan.name, plan.sources)
        starts = {partition: position.committed for partition, position in positions.items()}
        first = keep_start(self.select(), starts) if plan.holding else starts
        options = {
            "path": str(self.layout.log),
            "sources": ",".join(plan.sources),
            "consumer": plan.name,
            "startingOffsets": json.dumps(offsets_to_json(first)),
            "maxRecordsPerTrigger": str(pace.max_records),
            "maxBytesPerTrigger": str(pace.max_bytes),
        }
        pending = self.ledger.standing(plan.name).pending
        if pending is not None:
            # The checkpoint fixes ranges too, but may be gone; what the ledger says must hold without it.
            # Spark does not see the sources that the route no longer reads.
            fixed = {p: stretch for p, stretch in pending.ranges.items() if p in starts}
            begun = {**starts, **{p: start for p, (start, _) in fixed.items()}}
            ended = {**begun, **{p: end for p, (_, end) in fixed.items()}}
            options["fixedRange"] = json.dumps({"start": offsets_to_json(begun), "end": offsets_to_json(ended)})
        return options
