"""What operators ask of the samplers of a pipeline: how they are, to let everything go, and to sample more or less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.ledger import Operator
from penstock.engine.operate.offset_control import running_engine
from penstock.engine.pipeline import Pipeline
from penstock.errors import PenstockError
from penstock.sampling.decision_names import CountedDecision


@dataclass(frozen=True)
class Flushed:
    """What a flush was asked for."""

    route: str
    waiting: int
    """How many spans wait; more may come to wait before it is carried out."""
    now: bool
    """Whether a running engine does it; otherwise the next start does."""


def flush(pipeline: Pipeline, route: str, operator: Operator) -> Flushed:
    """Let everything go on that waits in the sampler of a route, undecided, and then all that it has decided, as
    decision spans."""
    command = _flush_command(pipeline, route)
    if command is None:
        raise _no_sampler(route)
    pipeline.ledger.request_command(route, command, "{}", operator)
    return Flushed(route, pipeline.ledger.totals(route).waiting, running_engine(pipeline) is not None)


@dataclass(frozen=True)
class RateSet:
    """What a rate was set to."""

    route: str
    policy: str
    percentage: float
    now: bool
    """Whether a running engine takes it over; otherwise the next start does."""


def set_rate(pipeline: Pipeline, route: str, policy: str, percentage: float, operator: Operator) -> RateSet:
    """Set how many percent a policy of type ``remote_probabilistic`` samples whose ``rate_from`` is the ledger."""
    if _flush_command(pipeline, route) is None:
        raise _no_sampler(route)
    step = pipeline.plan(route).holding_step()
    if policy not in step.settable:
        raise PenstockError(
            "PEN-ENG-083",
            f"route '{route}' has no policy '{policy}' of type `remote_probabilistic` with `rate_from: ledger`.",
            f"Those that it has: {', '.join(step.settable) or 'none'}.",
        )
    if not 0 <= percentage <= 100:
        raise PenstockError(
            "PEN-ENG-084", f"{percentage} is no percentage.", "Give a number from 0 to 100, which may have decimals."
        )
    pipeline.ledger.keep_setting(route, policy, *step.setting(policy, percentage), operator)
    return RateSet(route, policy, percentage, running_engine(pipeline) is not None)


@dataclass(frozen=True)
class SamplerStatus:
    """What a sampler has counted in all, and how much it had of what after its last batch."""

    route: str
    counts: Mapping[str, int]
    levels: Mapping[str, int]

    @property
    def decisions(self) -> dict[CountedDecision, int]:
        """How many traces each policy has decided, by its answer, and where they are from."""
        named = ((CountedDecision.named(name), traces) for name, traces in self.counts.items())
        return {decision: traces for decision, traces in named if decision is not None}

    @property
    def totals(self) -> dict[str, int]:
        """All else that it has counted, and how much it has of what beside its caches."""
        counts = {name: n for name, n in self.counts.items() if CountedDecision.named(name) is None}
        caches = tuple(f"{name}_{what}" for name in self.caches for what in ("size", "limit"))
        return counts | {name: level for name, level in self.levels.items() if name not in caches}

    @property
    def caches(self) -> dict[str, tuple[int, int]]:
        """How many traces each cache has, and may have."""
        sizes = {name.removesuffix("_size"): size for name, size in self.levels.items() if name.endswith("_size")}
        return {name: (size, self.levels.get(f"{name}_limit", 0)) for name, size in sizes.items()}


def sampler_status(pipeline: Pipeline, route: str | None) -> list[SamplerStatus]:
    """Of the samplers of all routes, or of one."""
    names = (
        [route] if route is not None else [name for name in pipeline.config.routes if _flush_command(pipeline, name)]
    )
    if route is not None and _flush_command(pipeline, route) is None:
        raise _no_sampler(route)
    return [SamplerStatus(name, *pipeline.ledger.step_counts(name)) for name in names]


def _flush_command(pipeline: Pipeline, route: str) -> str | None:
    plan = pipeline.plan(route)
    return plan.holding_step().flush_command if plan.holding is not None else None


def _no_sampler(route: str) -> PenstockError:
    return PenstockError(
        "PEN-ENG-079",
        f"route '{route}' has no step 'sample'.",
        "See the routes and their steps: penstock plan --offline",
    )
