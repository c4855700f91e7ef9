"""The policies of tail sampling, as users of the collector write them.

A policy has a ``name``, a ``type``, and its options under a key that is called like the type. Options that stand beside
``type`` are understood too: ``{name: slow, type: latency, threshold_ms: 5000}``.

What a policy says by itself is in the description of its class; how policies are put together, in ``ask_policies.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from penstock.config.choices import complaint, refuse
from penstock.config.component import ComponentConfig, ReadingContext
from penstock.config.problems import suggestion

FROM_LEDGER = "ledger"
"""The ``rate_from`` of a policy whose percentage operators set."""
DEFAULT_SALT = "default-hash-seed"
MOST_PER_SECOND = 10**11
MOST_POLICIES = 1000


class Status(StrEnum):
    UNSET = "UNSET"
    OK = "OK"
    ERROR = "ERROR"


class Answer(StrEnum):
    """What a policy says of a trace."""

    PENDING = "Pending"
    SAMPLED = "Sampled"
    NOT_SAMPLED = "NotSampled"
    LOW_PRIORITY = "LowPriority"


class ErrorMode(StrEnum):
    """What a condition does for a span that it cannot be evaluated for."""

    IGNORE = "ignore"
    SILENT = "silent"
    PROPAGATE = "propagate"


class PolicyConfig(ComponentConfig):
    """What every policy has."""

    name: str = Field(min_length=1, description="Names the policy, once in the whole tree of policies.")
    type: str = Field(description="Which policy this is.")
    emit_single_span_for_not_sampled: bool = Field(
        default=False,
        description="When this policy says NotSampled, one placeholder span named `TRACE NOT SAMPLED` leaves in place"
        " of the trace. So it does for a policy that this one is a part of.",
    )
    sticky: bool = Field(
        default=False,
        description="A condition that spans of an earlier arrival have met stays met, so that several conditions can be"
        " met one after the other. Holds for all parts of the policy, too.",
    )

    @model_validator(mode="before")
    @classmethod
    def _options_read(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict) and isinstance(info.context, ReadingContext):
            info.context.readers.append((value.get(value.get("type")), cls))
        return value

    @classmethod
    def _expanded(cls, value: Any) -> Any:
        """Take the options out of the key that is called like the type."""
        if not isinstance(value, dict) or value.get("type") not in value:
            return value
        options = value[value["type"]]
        if not isinstance(options, dict | None):
            return value
        twice = sorted(set(options or ()) & set(value))
        if twice:
            what = f"'{twice[0]}' stands beside `type` and under `{value['type']}`"
            raise refuse(complaint((twice[0],), what, "Keep one of them."))
        return {**{key: each for key, each in value.items() if key != value["type"]}, **(options or {})}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The options may stand beside the type, or under the key that is called like it: editors are told of both, and
        that an option is missing is told when the file is read."""
        schema = handler(core)
        told = handler.resolve_ref_schema(schema)
        about = told["properties"]
        name = about["type"].get("const")
        if name is not None and name not in about:
            common = PolicyConfig.model_fields
            options = {key: value for key, value in about.items() if key not in common}
            about[name] = {"type": ["object", "null"], "properties": options, "additionalProperties": False}
            told["required"] = [key for key in told["required"] if key in common]
        return schema

    @property
    def parts(self) -> tuple[Policy, ...]:
        """The policies that this one is made of."""
        return ()

    def parts_at(self) -> Iterator[tuple[tuple[str | int, ...], Policy]]:
        """The same, each with its place in the file."""
        yield from ()


class AlwaysSamplePolicy(PolicyConfig):
    """Sampled."""

    type: Literal["always_sample"]


class ProbabilisticPolicy(PolicyConfig):
    """Sampled if the hash of the trace id is among so many percent of all."""

    type: Literal["probabilistic"]
    hash_salt: str = Field(
        default=DEFAULT_SALT,
        description="Hashed before the trace id. Samplers one behind the other need different ones.",
    )
    sampling_percentage: float = Field(
        allow_inf_nan=False, description="Percent of traces. Below 0 is 0, over 100 is 100."
    )


class RemoteProbabilisticPolicy(PolicyConfig):
    """As `probabilistic`, with a percentage that changes while the pipeline runs."""

    type: Literal["remote_probabilistic"]
    hash_salt: str = Field(
        default=DEFAULT_SALT,
        description="Hashed before the trace id. Samplers one behind the other need different ones.",
    )
    rate_from: str = Field(
        min_length=1,
        description="Where the percentage is: a file, or an http or https URL, which are read every ten seconds; a"
        " relative path starts at the config file's folder. `ledger`: it is what `penstock sample rate` has set last.",
    )
    default_rate: float = Field(allow_inf_nan=False, description="Percent of traces, until another one was read.")

    @field_validator("rate_from")
    @classmethod
    def _from_the_config(cls, value: str, info: ValidationInfo) -> str:
        if value == FROM_LEDGER:
            return value
        if "://" in value:
            if not value.startswith(("http://", "https://")):
                raise ValueError(f"a rate is read from a file, an http URL or the `ledger`, and not from {value}")
            return value
        folder = info.context.folder if isinstance(info.context, ReadingContext) else Path()
        return str(folder / Path(value).expanduser())


class SpanCountPolicy(PolicyConfig):
    """Sampled if so many spans of the trace have come so far."""

    type: Literal["span_count"]
    min_spans: int = Field(ge=0, description="So many or more.")
    max_spans: int = Field(default=0, ge=0, description="So many or fewer; 0 is no limit.")

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if 0 < self.max_spans < self.min_spans:
            raise ValueError(f"no trace has {self.min_spans} spans or more and {self.max_spans} or fewer")
        return self


class LatencyPolicy(PolicyConfig):
    """Sampled if the trace lasts so long, from the earliest start to the latest end that were seen."""

    type: Literal["latency"]
    threshold_ms: int = Field(ge=0, le=10**12, description="So many whole milliseconds or more.")
    upper_threshold_ms: int = Field(
        default=0,
        ge=0,
        le=10**12,
        description="So many milliseconds or fewer; 0 is no limit. With it the trace must last longer than"
        " `threshold_ms`, not just as long.",
    )

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if 0 < self.upper_threshold_ms <= self.threshold_ms:
            raise ValueError(f"no trace lasts longer than {self.threshold_ms} ms and {self.upper_threshold_ms} or less")
        return self


class StatusCodePolicy(PolicyConfig):
    """Sampled if a new span has one of these codes."""

    type: Literal["status_code"]
    status_codes: tuple[Status, ...] = Field(min_length=1, description="Of `OK`, `ERROR` and `UNSET`.")


class OttlConditionPolicy(PolicyConfig):
    """Sampled if a new span, or an event of it, meets one of the conditions."""

    type: Literal["ottl_condition"]
    span: tuple[str, ...] = Field(default=(), description="Conditions on spans.")
    spanevent: tuple[str, ...] = Field(default=(), description="Conditions on the events of spans.")
    error_mode: ErrorMode = Field(
        default=ErrorMode.IGNORE, description="What becomes of a span that a condition cannot be evaluated for."
    )

    @model_validator(mode="after")
    def _has_conditions(self) -> OttlConditionPolicy:
        if not self.span and not self.spanevent:
            raise ValueError("needs a condition in 'span' or in 'spanevent'")
        return self


class AttributePolicy(PolicyConfig):
    key: str = Field(min_length=1, description="An attribute of the span or of its resource.")
    invert_match: bool = Field(
        default=False,
        validation_alias=AliasChoices("invert_match", "invert"),
        description="Turn it round: NotSampled if a new span matches, else Sampled.",
    )


class StringAttributePolicy(AttributePolicy):
    """Sampled if the attribute of a new span is one of these texts."""

    type: Literal["string_attribute"]
    values: tuple[str, ...] = Field(min_length=1, description="Texts, or regular expressions (unanchored).")
    enabled_regex_matching: bool = Field(
        default=False,
        validation_alias=AliasChoices("enabled_regex_matching", "regex"),
        description="Whether `values` are regular expressions.",
    )
    cache_max_size: int = Field(default=0, ge=0, description="Understood, and of no effect.")

    @model_validator(mode="after")
    def _compiles(self) -> StringAttributePolicy:
        for value in self.values if self.enabled_regex_matching else ():
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"'{value}' is not a regular expression: {error}") from error
        return self


class NumericAttributePolicy(AttributePolicy):
    """Sampled if the attribute of a new span is a number in this range, bounds included."""

    type: Literal["numeric_attribute"]
    min_value: int | None = Field(
        default=None,
        ge=-(2**63),
        lt=2**63,
        validation_alias=AliasChoices("min_value", "min"),
        description="The least value.",
    )
    max_value: int | None = Field(
        default=None,
        ge=-(2**63),
        lt=2**63,
        validation_alias=AliasChoices("max_value", "max"),
        description="The largest value.",
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> NumericAttributePolicy:
        if self.min_value is None and self.max_value is None:
            raise ValueError("needs 'min_value' or 'max_value'")
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ValueError(f"'min_value' {self.min_value} is above 'max_value' {self.max_value}")
        return self


class BooleanAttributePolicy(AttributePolicy):
    """Sampled if the attribute of a new span is this truth value."""

    type: Literal["boolean_attribute"]
    value: bool = Field(description="`true` or `false`.")


class TraceStatePolicy(PolicyConfig):
    """Sampled if the trace state of a new span has the key with one of these values."""

    type: Literal["trace_state"]
    key: str = Field(min_length=1, description="A key of the trace state.")
    values: tuple[str, ...] = Field(min_length=1, description="Its values.")


class TraceFlagsPolicy(PolicyConfig):
    """Sampled if a new span has the flag `sampled`."""

    type: Literal["trace_flags"]


class RateLimitingPolicy(PolicyConfig):
    """Sampled while the limit lasts: every trace that it samples takes its spans from it. Pending past it."""

    type: Literal["rate_limiting"]
    spans_per_second: int = Field(ge=1, le=MOST_PER_SECOND, description="Spans per second, over the whole route.")
    burst_capacity: int = Field(
        default=0, ge=0, le=MOST_PER_SECOND, description="Spans at once; 0 is twice `spans_per_second`."
    )


class BytesLimitingPolicy(PolicyConfig):
    """Sampled while the limit lasts: every trace that it samples takes its bytes from it. Pending past it."""

    type: Literal["bytes_limiting"]
    bytes_per_second: int = Field(ge=1, le=MOST_PER_SECOND, description="Bytes per second, over the whole route.")
    burst_capacity: int = Field(
        default=0, ge=0, le=MOST_PER_SECOND, description="Bytes at once; 0 is twice `bytes_per_second`."
    )


class ThresholdPolicy(PolicyConfig):
    """Sampled if the randomness of the trace id (its last 7 bytes) is at least the smallest attribute
    `sampling.tail.threshold` of the new spans."""

    type: Literal["threshold"]


class AndPolicy(PolicyConfig):
    """What its first part says that does not say Sampled; Sampled if all do."""

    type: Literal["and"]
    and_sub_policy: tuple[Policy, ...] = Field(min_length=1, description="Its parts.")

    @property
    def parts(self) -> tuple[Policy, ...]:
        return self.and_sub_policy

    def parts_at(self) -> Iterator[tuple[tuple[str | int, ...], Policy]]:
        yield from (((self.type, "and_sub_policy", n), part) for n, part in enumerate(self.and_sub_policy))


class OrPolicy(PolicyConfig):
    """Sampled if a part says so; else what its first part says that does not say Pending; else Pending."""

    type: Literal["or"]
    or_sub_policy: tuple[Policy, ...] = Field(min_length=1, description="Its parts.")

    @property
    def parts(self) -> tuple[Policy, ...]:
        return self.or_sub_policy

    def parts_at(self) -> Iterator[tuple[tuple[str | int, ...], Policy]]:
        yield from (((self.type, "or_sub_policy", n), part) for n, part in enumerate(self.or_sub_policy))


class NotPolicy(PolicyConfig):
    """Pending if its part says Sampled, else Sampled."""

    type: Literal["not"]
    not_sub_policy: Policy = Field(description="Its part.")

    @property
    def parts(self) -> tuple[Policy, ...]:
        return (self.not_sub_policy,)

    def parts_at(self) -> Iterator[tuple[tuple[str | int, ...], Policy]]:
        yield (self.type, "not_sub_policy"), self.not_sub_policy


class _OverOnePolicy(PolicyConfig):
    sub_policy: Policy = Field(description="Its part.")

    @property
    def parts(self) -> tuple[Policy, ...]:
        return (self.sub_policy,)

    def parts_at(self) -> Iterator[tuple[tuple[str | int, ...], Policy]]:
        yield (self.type, "sub_policy"), self.sub_policy


class RootSpansPolicy(_OverOnePolicy):
    """LowPriority for a trace of which nothing but a root span has come, unless its part says Sampled; else Pending."""

    type: Literal["root_spans"]


class DowngraderPolicy(_OverOnePolicy):
    """What its part says, but something less in place of Sampled."""

    type: Literal["downgrader"]
    downgrade_to: Literal["Pending", "NotSampled", "LowPriority"] = Field(description="What it says instead.")


_AnyPolicy = (
    AlwaysSamplePolicy
    | ProbabilisticPolicy
    | RemoteProbabilisticPolicy
    | SpanCountPolicy
    | LatencyPolicy
    | StatusCodePolicy
    | OttlConditionPolicy
    | StringAttributePolicy
    | NumericAttributePolicy
    | BooleanAttributePolicy
    | TraceStatePolicy
    | TraceFlagsPolicy
    | RateLimitingPolicy
    | BytesLimitingPolicy
    | ThresholdPolicy
    | AndPolicy
    | OrPolicy
    | NotPolicy
    | RootSpansPolicy
    | DowngraderPolicy
)

POLICY_TYPES: tuple[str, ...] = tuple(
    get_args(each.model_fields["type"].annotation)[0] for each in get_args(_AnyPolicy)
)


def _of_known_type(value: Any) -> Any:
    if isinstance(value, PolicyConfig):
        return value
    if not isinstance(value, dict):
        raise refuse(complaint((), "expected a policy", "Write, for example: {name: all, type: always_sample}."))
    if "type" not in value:
        fix = f"Add it; one of: {', '.join(sorted(POLICY_TYPES))}."
        raise refuse(complaint(("type",), "missing key 'type', which says what policy this is", fix))
    if value["type"] not in POLICY_TYPES:
        fix = suggestion(str(value["type"]), POLICY_TYPES, "policies")
        raise refuse(complaint(("type",), f"there is no policy of type '{value['type']}'", fix))
    return value


Policy = Annotated[_AnyPolicy, Field(discriminator="type"), BeforeValidator(_of_known_type)]
"""A policy of any type; its ``type`` says which."""


def _with_different_names(policies: tuple[Policy, ...]) -> tuple[Policy, ...]:
    seen: set[str] = set()
    complaints = []
    for place, policy in _all_places(((n,), policy) for n, policy in enumerate(policies)):
        if policy.name in seen:
            fix = "Policies are told apart by their names, parts of others too. Give it another one."
            complaints.append(complaint((*place, "name"), f"there is a policy '{policy.name}' already", fix))
        seen.add(policy.name)
    if complaints:
        raise refuse(*complaints)
    return policies


def _all_places(
    places: Iterator[tuple[tuple[str | int, ...], Policy]],
) -> Iterator[tuple[tuple[str | int, ...], Policy]]:
    for place, policy in places:
        yield place, policy
        yield from _all_places(((*place, *below), part) for below, part in policy.parts_at())


Policies = Annotated[
    tuple[Policy, ...], Field(min_length=1, max_length=MOST_POLICIES), AfterValidator(_with_different_names)
]
"""The policies of a sampler, in their order. Their names differ, those of parts too."""


def all_policies(policies: tuple[Policy, ...]) -> Iterator[Policy]:
    """These and what they are made of, each before its parts. The place of a policy in this row is its number."""
    for policy in policies:
        yield policy
        yield from all_policies(policy.parts)


for _each in (AndPolicy, OrPolicy, NotPolicy, RootSpansPolicy, DowngraderPolicy):
    _each.model_rebuild()
