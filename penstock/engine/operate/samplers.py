"""What operators ask of the samplers of a pipeline: how they are, and to let everything go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.ledger import Operator
from penstock.engine.operate.offset_control import running_engine
from penstock.engine.pipeline import Pipeline
from penstock.errors import PenstockError


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
class SamplerStatus:
    """What a sampler has counted in all, and how much it had of what after its last batch."""

    route: str
    counts: Mapping[str, int]
    levels: Mapping[str, int]

    @property
    def decisions(self) -> dict[tuple[str, str], int]:
        """How many traces each policy has decided, by its answer."""
        named = {tuple(name.split("/", 1)[1].rsplit("/", 1)): n for name, n in self.counts.items() if "/" in name}
        return {(policy, answer): traces for (policy, answer), traces in named.items()}

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
