"""A pipeline with what it stands on: config, folders, log, ledger and failed store. Opening it starts nothing."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.pipeline import PipelineConfig
from penstock.engine.failed import FailedStore
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.engine.plan import RoutePlan, planned
from penstock.engine.replay import replay_source
from penstock.errors import PenstockError
from penstock.log.local import LocalLog


@dataclass(frozen=True)
class Pipeline:
    config: PipelineConfig
    layout: Layout
    log: LocalLog
    ledger: Ledger
    failed_store: FailedStore

    @classmethod
    def open(cls, config: PipelineConfig, create: bool = True) -> Pipeline:
        """With ``create=False`` a pipeline that never ran is an error, and nothing is made on disk."""
        layout = Layout(config.data_dir)
        if not create and config.ledger.url is None and not layout.ledger.exists():
            raise PenstockError(
                "PEN-ENG-004", f"the pipeline '{config.name}' has not run yet: {layout.root} has no ledger.",
                "Start it with: penstock run",
            )  # fmt: skip
        layout.root.mkdir(parents=True, exist_ok=True)
        ledger = Ledger.open(config.ledger.url or sqlite_url(layout.ledger), config.name)
        return cls(config, layout, LocalLog(layout.log, config.log), ledger, FailedStore(layout.failed))

    def check_log(self) -> None:
        """Refuse a log that is not the one whose offsets the ledger keeps."""
        self.ledger.recognise({p: owner.identity for p, owner in self.log.partitions().items()})

    def sources_of(self, route: str) -> tuple[str, ...]:
        """The names under which the route's records are in the log: its sources', and its replays'."""
        return sources_of(self.config, route)

    def plan(self, route: str) -> RoutePlan:
        return route_plan(self.config, route)

    def floors(self) -> dict[int, int]:
        """Per partition the offset below which no route needs the log any more.

        A route needs what it has not committed, what it waits on, and what Spark may still ask for again: that is
        released only when Spark says so, through the log's holds. A route that has committed nothing needs everything.
        """
        floors: dict[int, int] = {}
        released = self.log.holds.get()
        for route in self.config.routes:
            positions = self.ledger.offsets(route)
            for partition in self.log.partitions(self.sources_of(route)):
                position = positions.get(partition)
                spark = released.get(route, {}).get(partition, 0)
                needed = min(position.hold, spark) if position is not None else 0
                floors[partition] = min(floors.get(partition, needed), needed)
        for partition in self.log.partitions():
            floors.setdefault(partition, self.log.bounds(partition).end)
        return floors


def sources_of(config: PipelineConfig, route: str) -> tuple[str, ...]:
    if route not in config.routes:
        raise PenstockError("PEN-ENG-005", f"there is no route '{route}'.", f"Routes: {', '.join(config.routes)}.")
    return (*config.routes[route].from_, replay_source(route))


def route_plan(config: PipelineConfig, route: str) -> RoutePlan:
    """What a config alone says of a route: nothing needs to have run, and nothing is opened."""
    sources = sources_of(config, route)
    chosen = config.routes[route]
    return RoutePlan(
        name=route,
        sources=sources,
        namespace=chosen.namespace,
        steps=planned(chosen.step_configs),
        destination_name=chosen.to.type,
        destination_config=chosen.to,
        stage_dir=Layout(config.data_dir).stage(route),
        only_keys=tuple(chosen.only_keys),
    )
