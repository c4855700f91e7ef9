"""A route, ready to run: its steps are split into those that run where the log is read and those behind them.

A plan holds configs only, so it is small, it pickles, and every task builds its own steps and stager from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.config.component import DestinationConfig, StepConfig
from penstock.config.pipeline_config import OnError
from penstock.config.secrets import secrets_in_options
from penstock.destinations.contract import AnyDestination
from penstock.engine.layout import set_aside_mark
from penstock.engine.lost_workers.deadly_records import DeadlyRecord
from penstock.errors import RouteError
from penstock.redaction import add_secrets
from penstock.registry import Kind, component
from penstock.steps.contract import ArrowStep, HoldingStep, Leaving, SparkStep, namespace_pattern

if TYPE_CHECKING:
    from penstock.steps.chain import Chain, Link


STATE_LAYOUT = 6
"""Of the state of holding steps. State of another layout counts as lost."""

StepClass: TypeAlias = type[ArrowStep[Any]] | type[SparkStep[Any]] | type[HoldingStep[Any]]


@dataclass(frozen=True)
class PlannedStep:
    """A step's config with the label it is counted under: its name, numbered from the second one of a kind on."""

    label: str
    name: str
    config: StepConfig

    @property
    def implementation(self) -> StepClass:
        found: StepClass = component(Kind.STEP, self.name).implementation_class()
        return found

    @property
    def is_arrow(self) -> bool:
        return issubclass(self.implementation, ArrowStep)


@dataclass(frozen=True)
class RoutePlan:
    name: str
    sources: tuple[str, ...]
    namespace: str
    steps: tuple[PlannedStep, ...]
    destination_name: str
    destination_config: DestinationConfig
    stage_dir: Path
    only_keys: tuple[str, ...] = ()
    on_error: OnError = OnError.DEAD_LETTER
    step_timeout: float | None = None
    """Seconds that the steps may take for one batch of records."""
    max_hold_bytes: int | None = None
    """How much of the log may be kept for what waits in the holding step."""
    log_dir: Path | None = None
    """Where the log is, for the ids of its records."""
    key_secret: bytes = b""
    """For the keys of a holding step: 16 bytes that nobody outside knows."""
    deadly_records: tuple[DeadlyRecord, ...] = ()
    """What no step before the holding step is given."""

    @cached_property
    def head(self) -> tuple[PlannedStep, ...]:
        """The Arrow steps before the first Spark or holding step: they run where the log is read."""
        for place, step in enumerate(self.steps):
            if not step.is_arrow:
                return self.steps[:place]
        return self.steps

    @cached_property
    def rest(self) -> tuple[PlannedStep, ...]:
        """The steps from the first Spark or holding step on; empty for a route that runs where the log is read."""
        return self.steps[len(self.head) :]

    @cached_property
    def holding(self) -> PlannedStep | None:
        """The step that keeps records back, if there is one: then all steps behind it are Arrow steps."""
        return next((step for step in self.steps if step.config.holds), None)

    @property
    def state_name(self) -> str | None:
        """What a checkpoint of this route has state of: the holding step, and how it writes its state. Empty if there
        is no state; ``None`` if only Spark knows."""
        if self.holding is not None:
            return f"{self.holding.name}{STATE_LAYOUT}"
        return None if self.rest else ""

    @property
    def set_aside_mark(self) -> Path:
        """A file that is there while what the current batch releases is only written down, to be processed in pieces
        later, because a worker was lost over it. It outlives the engine: the batch may have been begun that way."""
        return set_aside_mark(self.stage_dir)

    def check_steps(self) -> None:
        """Refuse steps that cannot run beside each other, or before this destination."""
        in_spark = next((step for step in self.steps if not step.is_arrow and step is not self.holding), None)
        if in_spark is not None and self.destination().capabilities.leaves_waiting:
            raise RouteError(
                "PEN-STP-005",
                f"route '{self.name}' has the step '{in_spark.label}', which runs in Spark, and a destination that"
                " takes some records later than others: what the step made of them could not be found again.",
                "Let the step have a route of its own, to another destination.",
            )
        if self.holding is None:
            return
        other = next((step for step in self.steps if step is not self.holding and not step.is_arrow), None)
        if other is not None:
            raise RouteError(
                "PEN-STP-004",
                f"route '{self.name}' has the steps '{self.holding.label}', which keeps records back, and"
                f" '{other.label}', which runs in Spark.",
                "Let each of them have a route of its own.",
            )

    def holding_step(self) -> HoldingStep[Any]:
        """Builds that step."""
        assert self.holding is not None
        built = self.holding.implementation(self.holding.config)
        assert isinstance(built, HoldingStep)
        return built

    @property
    def leaving(self) -> Leaving:
        """What that step must know of those who get what it releases."""
        return Leaving(self.key_secret, self.destination_config.takes_otlp)

    def head_chain(self) -> Chain:
        # Imported here: verbs that only ask for a route's position need no Arrow functions.
        from penstock.steps.chain import Chain

        return Chain(links(self.head), namespace_pattern(self.namespace), self.only_keys)

    def destination(self) -> AnyDestination:
        # In a task the plan is all that is known of the config.
        add_secrets(secrets_in_options(self.destination_config))
        built: AnyDestination = component(Kind.DESTINATION, self.destination_name).implementation_class()(
            self.destination_config
        )
        return built

    @property
    def mirrors(self) -> bool:
        """Whether the destination follows the tables of a source, change by change (``load: mirror``)."""
        return self.destination_config.mirrors

    @property
    def last_record_wins(self) -> bool:
        """Whether the order in which records are delivered decides the final value of a row."""
        return self.destination_config.last_record_wins

    @cached_property
    def casts(self) -> Mapping[str, str]:
        """The SQL types that the steps ask for; a later step wins."""
        asked: dict[str, str] = {}
        for step in self.steps:
            asked.update(step.implementation(step.config).casts)
        return asked


def links(steps: Sequence[PlannedStep]) -> list[Link]:
    """Builds steps for a chain. All of them must be Arrow steps."""
    from penstock.steps.chain import Link

    return [
        Link(
            step.label,
            step.implementation(step.config),  # type: ignore[arg-type]
            namespace_pattern(step.config.namespace) if step.config.namespace else None,
        )
        for step in steps
    ]


def plan_steps(steps: Sequence[tuple[str, StepConfig]]) -> tuple[PlannedStep, ...]:
    """Give every step its label: ``where``, then ``where#2``."""
    seen: Counter[str] = Counter()
    result = []
    for name, config in steps:
        seen[name] += 1
        label = name if seen[name] == 1 else f"{name}#{seen[name]}"
        result.append(PlannedStep(label, name, config))
    return tuple(result)
