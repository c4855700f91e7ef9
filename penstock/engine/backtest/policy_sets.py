"""The two sets of policies that a backtest compares: that of a route, and another one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from penstock.config.pipeline_config import PipelineConfig
from penstock.engine.pipeline import sources_of
from penstock.engine.route_plan import RoutePlan
from penstock.errors import PenstockError
from penstock.sampling.policy_config import all_policies
from penstock.steps.sample.config import SampleConfig
from penstock.steps.sample.step import Sample

_STEP = "sample"


class PolicySet(StrEnum):
    """Their order is their number in the rows of a backtest."""

    LIVE = "live"
    """The options of the route's own step."""
    CANDIDATE = "candidate"


SETS = tuple(PolicySet)


@dataclass(frozen=True)
class ComparedSets:
    """The options of each set, by number. Small, and travels to tasks."""

    configs: tuple[SampleConfig, ...]

    @classmethod
    def of(cls, plan: RoutePlan, candidate: SampleConfig) -> ComparedSets:
        """Of a route that has the step."""
        assert plan.holding is not None
        return cls((cast(SampleConfig, plan.holding.config), candidate))

    def build_steps(self) -> list[Sample]:
        """The step of each set. In a dry run every span leaves once it is decided, and says how: decisions are the
        same, and nothing is dropped that a report has to count."""
        return [Sample(config.model_copy(update={"dry_run": True})) for config in self.configs]

    def policy_names(self, number: int) -> list[str]:
        """By the number of the policy."""
        return [policy.name for policy in all_policies(self.configs[number].policies)]

    def asked_policies(self, number: int) -> list[str]:
        """Those that decide, in their order; they may have parts."""
        return [policy.name for policy in self.configs[number].policies]


def sampled_route(config: PipelineConfig, route: str | None) -> str:
    """The route that is meant: by default the only one that has a step ``sample``."""
    having = [name for name, each in config.routes.items() if any(step == _STEP for step, _ in each.step_configs)]
    if route is not None:
        sources_of(config, route)
    if route is None and len(having) > 1:
        raise PenstockError(
            "PEN-ENG-082", "several routes have a step 'sample'.", f"Choose one with --route: {', '.join(having)}."
        )
    chosen = next((name for name in having if route in (None, name)), None)
    if chosen is None:
        whose = "no route has" if route is None else f"route '{route}' does not have"
        raise PenstockError(
            "PEN-ENG-082",
            f"there is no live set of policies to compare with: {whose} a step 'sample'.",
            f"Name a route that has one: {', '.join(having)}." if having else "Add the step to the route of the spans.",
        )
    return chosen
