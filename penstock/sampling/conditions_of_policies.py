"""The conditions on spans that policies have, each with its bit: what scanning looks for, and deciding asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.sampling.conditions.attribute_conditions import BooleanAttribute, NumericAttribute, StringAttribute
from penstock.sampling.conditions.field_conditions import StatusIs, TraceFlagsSampled, TraceState
from penstock.sampling.conditions.ottl_condition import OttlCondition
from penstock.sampling.conditions.span_condition import SpanCondition
from penstock.sampling.policy_config import (
    BooleanAttributePolicy,
    NumericAttributePolicy,
    OttlConditionPolicy,
    Policy,
    StatusCodePolicy,
    StringAttributePolicy,
    TraceFlagsPolicy,
    TraceStatePolicy,
    all_policies,
)
from penstock.sampling.span_item import MOST_CONDITIONS


@dataclass(frozen=True)
class ConditionBits:
    conditions: tuple[SpanCondition, ...]
    """By bit."""
    bits: Mapping[str, int]
    """By the name of the policy. Those that ask for the same share a bit."""

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> ConditionBits:
        """Raises ``ValueError`` for a condition that cannot be understood, and if there are too many."""
        bits: dict[str, int] = {}
        numbers: dict[SpanCondition, int] = {}
        for policy in all_policies(tuple(policies)):
            condition = condition_of(policy)
            if condition is not None:
                bits[policy.name] = numbers.setdefault(condition, len(numbers))
        if len(numbers) > MOST_CONDITIONS:
            raise ValueError(
                f"the policies have {len(numbers)} different conditions on spans, and there may be {MOST_CONDITIONS}"
            )
        return cls(tuple(numbers), bits)

    @property
    def described(self) -> tuple[str, ...]:
        """By bit, what each condition is, in words that mean the same in every config."""
        return tuple(map(repr, self.conditions))


def condition_of(policy: Policy) -> SpanCondition | None:
    """What a policy asks of spans; ``None`` if it asks for something else, or only what its parts ask for. Raises
    ``ValueError`` for one that cannot be understood."""
    match policy:
        case StatusCodePolicy():
            return StatusIs(tuple(str(code) for code in policy.status_codes))
        case StringAttributePolicy():
            return StringAttribute(policy.key, policy.values, policy.enabled_regex_matching)
        case NumericAttributePolicy():
            return NumericAttribute(policy.key, policy.min_value, policy.max_value)
        case BooleanAttributePolicy():
            return BooleanAttribute(policy.key, policy.value)
        case TraceStatePolicy():
            return TraceState(policy.key, policy.values)
        case TraceFlagsPolicy():
            return TraceFlagsSampled()
        case OttlConditionPolicy():
            return OttlCondition(policy.span, policy.spanevent, policy.error_mode)
        case _:
            return None
