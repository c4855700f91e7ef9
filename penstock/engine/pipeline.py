"""A pipeline with its config, folders, log, ledger and failed store. Opening it starts nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.config.pipeline_config import PipelineConfig
from penstock.engine.data_dir import require_writable
from penstock.engine.failed.failed_store import FailedStore
from penstock.engine.history.route_history import History
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, RouteState, sqlite_url
from penstock.engine.route_plan import RoutePlan, plan_steps
from penstock.engine.route_sources import control_source, replay_source
from penstock.errors import PenstockError
from penstock.log.local_log import LocalLog, PartitionOwner


@dataclass(frozen=True)
class Pipeline:
    config: PipelineConfig
    layout: Layout
    log: LocalLog
    ledger: Ledger
    failed_store: FailedStore

    @classmethod
    def open(cls, config: PipelineConfig, create: bool = True) -> Pipeline:
        """With ``create=False`` a pipeline that never ran is an error, and nothing is created on disk."""
        layout = Layout(config.data_dir)
        if not create and config.ledger.url is None and not layout.ledger.exists():
            raise _no_ledger(config.name, layout)
        if create:
            require_writable(layout.root)
        else:
            layout.root.mkdir(parents=True, exist_ok=True)
        url = config.ledger.url
        ledger = Ledger.open(sqlite_url(layout.ledger) if url is None else url.get_secret_value(), config.name)
        return cls(config, layout, LocalLog(layout.log, config.log), ledger, FailedStore(layout.failed))

    def check_log(self) -> None:
        """Refuse a log other than the one whose offsets the ledger keeps."""
        self.ledger.check_log_identity({p: owner.identity for p, owner in self.log.partitions().items()})

    def history(self) -> History:
        return History(self.log, self.ledger, tuple(self.config.routes), self.layout.checkpoints)

    def sources_of(self, route: str) -> tuple[str, ...]:
        """The names under which the log has the route's records: those of its sources and its replays."""
        return sources_of(self.config, route)

    def plan(self, route: str) -> RoutePlan:
        return replace(route_plan(self.config, route), key_secret=bytes.fromhex(self.ledger.scope))

    def needed_offsets(self) -> dict[str, dict[int, int]]:
        """The first offset that each route needs in each partition that it reads.

        A route needs what it has not committed, what it waits on, and what Spark may still ask for again: the log's
        holds release that when Spark says so. A route that has committed nothing needs everything. A route that left
        the config needs what it has not read, until an operator drops it. Where the log has other records than those
        that a route has delivered, the route needs them too: it waits for an operator there. One that is halted because
        its destination and its ledger tell different stories needs all that is left: it may be rewound to any of it.
        """
        released = self.log.holds.get()
        sources = sorted({owner.source for owner in self.log.partitions().values()})
        needs: dict[str, dict[int, int]] = {}
        for route in (*self.config.routes, *self.left_routes()):
            holds = {partition: position.hold for partition, position in self.ledger.offsets(route).items()}
            checkpoint = self.layout.checkpoint(route, self.ledger.scope, self.ledger.generation(route))
            asked = released.get(route, {}) if checkpoint.exists() else holds
            needs[route] = {
                partition: min(holds.get(partition, 0), asked.get(partition, 0))
                for partition in self.partitions_of(route)
            }
            # Also of a source that the route no longer reads: pending batches are settled, waiting rows are loaded.
            pending = self.ledger.standing(route).pending
            unsettled = {*self.ledger.waiting_partitions(route), *(() if pending is None else pending.ranges)}
            for partition in unsettled:
                needs[route].setdefault(partition, holds.get(partition, 0))
            for partition, (fork, _) in self.history().forks(route, sources).items():
                needs[route][partition] = min(fork, needs[route].get(partition, fork))
            if self._is_in_doubt(route):
                needs[route] = dict.fromkeys(needs[route], 0)
        return needs

    def _is_in_doubt(self, route: str) -> bool:
        """Whether the route waits for an operator to decide about its past, and not about a record that failed."""
        activity = self.ledger.activity(route)
        halted = activity is not None and activity.state is RouteState.HALTED
        return halted and self.ledger.standing(route).halt is None

    def partitions_of(self, route: str) -> dict[int, PartitionOwner]:
        """The partitions that a route reads; for one that left the config, those that it has read."""
        if route in self.config.routes or route not in self.ledger.routes():
            return self.log.partitions(self.sources_of(route))
        known = self.ledger.offsets(route)
        return {partition: owner for partition, owner in self.log.partitions().items() if partition in known}

    def left_routes(self) -> list[str]:
        """Routes that the ledger knows and the config no longer has. They keep their offsets until they are dropped."""
        return [route for route in self.ledger.routes() if route not in self.config.routes]

    def floors(self) -> dict[int, int]:
        """The offset of each partition below which no route needs the log any more."""
        # Listed first: a partition that appears meanwhile must not look like one that no route reads.
        known = self.log.partitions()
        floors: dict[int, int] = {}
        for needed in self.needed_offsets().values():
            for partition, offset in needed.items():
                floors[partition] = min(floors.get(partition, offset), offset)
        for partition in known:
            floors.setdefault(partition, self.log.bounds(partition).end)
        return floors


def _no_ledger(name: str, layout: Layout) -> PenstockError:
    if any(layout.checkpoints.glob("*")):
        return PenstockError(
            "PEN-ENG-025", f"the pipeline '{name}' has run, but its ledger {layout.ledger} is gone.",
            "Put it back, or restore everything with `penstock restore`. Without it, `penstock run` delivers nothing"
            " twice: each route says what its destination has, and how to go on.",
        )  # fmt: skip
    return PenstockError(
        "PEN-ENG-004", f"the pipeline '{name}' has not run yet: {layout.root} has no ledger.",
        "Start it with: penstock run",
    )  # fmt: skip


def sources_of(config: PipelineConfig, route: str) -> tuple[str, ...]:
    if route not in config.routes:
        raise PenstockError("PEN-ENG-005", f"there is no route '{route}'.", f"Routes: {', '.join(config.routes)}.")
    chosen = config.routes[route]
    followed = chosen.to.replays_of()
    own = [replay_source(name) for name in (followed, route) if name is not None]
    if any(config.holds for _, config in chosen.step_configs):
        own.append(control_source(route))
    return tuple(dict.fromkeys((*chosen.from_, *own)))


def route_plan(config: PipelineConfig, route: str) -> RoutePlan:
    """The plan of a route from the config alone: it opens nothing, and nothing needs to have run."""
    sources = sources_of(config, route)
    chosen = config.routes[route]
    others = [other.to for name, other in config.routes.items() if name != route]
    beside = [other.named_by_config for other in others if other.place and other.place == chosen.to.place]
    named = frozenset[str]().union(*beside)
    return RoutePlan(
        name=route,
        sources=sources,
        namespace=chosen.namespace,
        steps=plan_steps(chosen.step_configs),
        destination_name=chosen.to.type,
        destination_config=chosen.to.without_tables(named) if named else chosen.to,
        stage_dir=Layout(config.data_dir).stage(route),
        only_keys=tuple(chosen.only_keys),
        on_error=chosen.on_error,
        step_timeout=chosen.step_timeout,
        max_hold_bytes=chosen.max_hold_bytes,
        log_dir=Layout(config.data_dir).log,
    )
