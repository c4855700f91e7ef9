"""Options of the step ``sample``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from penstock.config.component import ComponentConfig, StepConfig
from penstock.otlp.row_times import Times
from penstock.sampling.decision_names import MOST_ORIGINS, OTHER
from penstock.sampling.policy_config import Policies


class Names(StrEnum):
    """What the attributes are called by which samplers talk to each other."""

    PENSTOCK = "penstock"
    ATLASSIAN = "atlassiansampling"


class Follower(StrEnum):
    """What follows the decision on its trace."""

    LOGS = "logs"


class DecisionCacheConfig(ComponentConfig):
    """How many decisions are remembered, so that spans that come later follow them."""

    sampled_cache_size: int = Field(default=100_000, ge=1, description="Traces that were sampled.")
    non_sampled_cache_size: int = Field(default=100_000, ge=1, description="Traces that were not.")


class StressReliefConfig(ComponentConfig):
    """While the route is far behind, no policy is asked: a share of the traces is sampled by their ids."""

    above: int = Field(ge=1, description="Begins when the route has so many requests that it has not read.")
    below: int | None = Field(
        default=None, ge=0, description="Ends when it has no more than so many; half of `above` without it."
    )
    sampling_percentage: float = Field(ge=0, le=100, description="Percent of traces that are sampled meanwhile.")

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.below is not None and self.below >= self.above:
            raise ValueError("below must be less than above, or it would begin and end at once")
        return self


class DecisionFromConfig(ComponentConfig):
    """Where traces are from, as metrics of decisions say it: by an attribute of the resource of the first span that
    came when a policy decided."""

    resource_attribute: str = Field(min_length=1, description="The attribute; its value is text.")
    values: dict[str, str] = Field(
        min_length=1, max_length=MOST_ORIGINS - 1,
        description="Names for what is counted, each with a regular expression (RE2); the first that is found in the"
        f" value counts, and where none is, the name is `{OTHER}`. Few names: each is a time series per policy.",
    )  # fmt: skip

    @field_validator("values")
    @classmethod
    def _can_be_matched(cls, values: dict[str, str]) -> dict[str, str]:
        # Imported here: only pipelines that sample need Arrow for it.
        from penstock.sampling.conditions.distinct_texts import check_pattern

        for name, pattern in values.items():
            if not name:
                raise ValueError("a name is empty")
            check_pattern(pattern)
        return values


class SampleConfig(StepConfig):
    """Policies, and how much may wait for them."""

    holds: ClassVar[bool] = True
    must_be_first: ClassVar[bool] = True

    policies: Policies = Field(
        description="Asked in their order, for all spans of a trace that arrive together; the first that does not say"
        " Pending decides.",
    )
    primary_cache_size: int = Field(
        default=100_000, ge=1, description="Traces that may wait for a decision. When there are more, the one that got"
        " no span for the longest time is not sampled.",
    )  # fmt: skip
    secondary_cache_size: int | None = Field(
        default=None, ge=1, description="Traces of low priority that may wait, beside the others. At most half of"
        " `primary_cache_size`. Without it, low priority is as good as any.",
    )  # fmt: skip
    decision_cache: DecisionCacheConfig = Field(
        default_factory=DecisionCacheConfig, description="How many decisions are remembered."
    )
    memory_limit_mib: float | None = Field(
        default=None, gt=0, description="MiB of spans that may wait. When there are more, fewer traces may wait.",
    )  # fmt: skip
    target_heap_bytes: int | None = Field(
        default=None, gt=0, description="The same in bytes, as the collector's sampler calls it."
    )
    max_spans_per_trace: int | None = Field(
        default=None, ge=1, description="A trace with more spans that wait is not sampled."
    )
    max_bytes_per_trace: int | None = Field(
        default=None, ge=1, description="A trace with more bytes that wait is not sampled."
    )
    follow: tuple[Follower, ...] = Field(
        default=(),
        description="`[logs]`: log records with a trace id wait for their trace, go on when it is sampled, and are"
        " skipped when it is not. Without it, requests of logs go on as they are.",
    )
    stress_relief: StressReliefConfig | None = Field(
        default=None, description="What to do while the route is far behind. Without it, policies are always asked."
    )
    dry_run: bool = Field(
        default=False,
        description="Let every span go on, once it is decided: with the attributes `penstock.sampled`, and"
        " `penstock.policy` where a policy has decided.",
    )
    flush_on_shutdown: bool = Field(
        default=False,
        description="When the pipeline is stopped, let everything that waits go on, and the decisions as decision"
        " spans, for another pipeline.",
    )
    decision_from: DecisionFromConfig | None = Field(
        default=None, description="Count decisions also by where traces are from."
    )
    times: Times = Field(
        default=Times.MICROSECONDS,
        description="How fine `start_time` and `end_time` are in tables and files: `microseconds`, or `nanoseconds` for"
        " destinations that have a type `timestamp_ns` or no types.",
    )
    names: Names = Field(
        default=Names.PENSTOCK,
        description="The prefix of the attributes `.decision` and `.flushes` on what leaves. Both are understood.",
    )

    def types_asked(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        if self.times is Times.NANOSECONDS:
            yield ("times",), "timestamp_ns"

    @model_validator(mode="after")
    def _is_small_enough(self) -> Self:
        secondary = self.secondary_cache_size
        if secondary is not None and 2 * secondary > self.primary_cache_size:
            raise ValueError(
                f"secondary_cache_size is {secondary}, and may be at most half of primary_cache_size, which is"
                f" {self.primary_cache_size}"
            )
        # Imported here: only pipelines that sample need the languages of conditions.
        from penstock.sampling.conditions_of_policies import ConditionBits

        ConditionBits.of(self.policies)
        if self.memory_limit_mib is not None and self.target_heap_bytes is not None:
            raise ValueError("memory_limit_mib and target_heap_bytes are the same limit: give one of them")
        return self
