"""The pipeline under attack, as the hazards see it, and what a hazard is."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.loading import load
from penstock.engine.operate.status import route_status
from penstock.engine.pipeline import Pipeline
from penstock.testing.waiting import eventually
from tests.chaos.client import Poster
from tests.chaos.project import ROUTE, Project

PATIENCE = 1500.0
"""Seconds for routes to come up and to catch up: where all is busy, Spark's processes take many tries to start."""
EVENT_ID = r'"event_id": ?"(?P<id>[^"]+)"'


@dataclass
class Scene:
    """The pipeline under attack, who posts to it, and what the attack itself did to the books."""

    project: Project
    poster: Poster
    rng: random.Random
    forgotten: Counter[str] = field(default_factory=Counter)
    """Per route the rows at its target that the ledger no longer counts: it was put back to a time before them."""
    failed_before: set[str] = field(default_factory=set)
    """Events whose failure was noted in a copy of the data that was thrown away."""

    def wait_until_it_delivers(self) -> None:
        """Returns once every route has committed something that it had not when this was called."""
        before = self.items()

        def delivers() -> bool:
            self.project.keep_up()
            return all(items > before[route] for route, items in self.items().items())

        eventually(delivers, f"the routes deliver again (see {self.project.log})", PATIENCE, every=0.5)

    def wait_until_all_is_delivered(self) -> None:
        """But for what steps keep back."""

        def caught_up() -> bool:
            self.project.keep_up()
            with self.opened() as pipeline:
                found = [route_status(pipeline, route) for route in self.project.routes]
            return all(status.to_go == status.held_by_steps for status in found)

        eventually(caught_up, f"the routes have caught up (see {self.project.log})", PATIENCE, every=0.5)

    def items(self) -> dict[str, int]:
        with self.opened() as pipeline:
            return {route: pipeline.ledger.totals(route).items for route in self.project.routes}

    def logged(self) -> Counter[str]:
        """The ids of all events in the log."""
        with self.opened() as pipeline:
            batches = [rows for p in pipeline.log.partitions() for rows in pipeline.log.read(p, 0)]
        found = pc.extract_regex(pa.chunked_array([rows.column("data").cast("utf8") for rows in batches]), EVENT_ID)
        return Counter(pc.struct_field(found, "id").to_pylist())

    def failed(self) -> Counter[str]:
        """How often each event is in the failed store, of whichever route."""
        with self.opened() as pipeline:
            return Counter(
                str(entry.event_id)
                for route in self.project.routes
                for entry in pipeline.failed_store.read(route, pipeline.ledger.failed_extent(route))
            )

    def last_commit(self) -> float:
        """The wall time at which the engine says that it has committed its last batch."""
        with self.opened() as pipeline:
            return pipeline.ledger.batches(ROUTE, last=1)[0].committed_at

    @contextmanager
    def opened(self) -> Iterator[Pipeline]:
        pipeline = Pipeline.open(load(self.project.config))
        try:
            yield pipeline
        finally:
            pipeline.ledger.close()


class Hazard(ABC):
    """What can happen to a pipeline. It strikes, lasts a while, and is over when ``strike`` returns; the pipeline must
    then go on by itself."""

    name: str
    lasts = False
    """Whether others may strike while it lasts."""
    alone = False
    """Whether it ends everything itself, so that nothing else can last meanwhile."""

    @abstractmethod
    def strike(self, scene: Scene) -> str:
        """Returns what was seen of it. Fails if it had no effect."""
