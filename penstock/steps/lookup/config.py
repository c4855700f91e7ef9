"""Options of the step ``lookup``: rules that are checked one by one, and refused by their number."""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict, Field, field_validator, model_validator

from penstock.config.component import ComponentConfig, StepConfig
from penstock.config.value_types.config_paths import LocalPath
from penstock.json.paths import Path
from penstock.steps.fields import FieldPath, field_path


class LookupName(StrEnum):
    """What can be looked up."""

    IP_LOOKUP = "ip_lookup"
    USER_AGENT_PARSE = "user_agent_parse"


class LookupRule(ComponentConfig):
    """One rule: look up the text of a field, and put what is known about it into an object."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    name: LookupName = Field(description="What to look up: `ip_lookup` or `user_agent_parse`.")
    source: FieldPath = Field(alias="from", description="The field with the address or the user agent, as text.")
    to: FieldPath = Field(description="The object that takes the answer; made if it is missing.")

    @property
    def source_path(self) -> Path:
        return field_path(self.source)

    @property
    def target_path(self) -> Path:
        return field_path(self.to)


IMPLICIT_RULES = (
    LookupRule(name=LookupName.IP_LOOKUP, source="/source_ip", to="/eventn_ctx/location"),
    LookupRule(name=LookupName.USER_AGENT_PARSE, source="/eventn_ctx/user_agent", to="/eventn_ctx/parsed_ua"),
)
"""The rules for events of browsers (JS endpoint, pixel) that need not be written."""


class LookupConfig(StepConfig):
    """Rules, and the databases that they read."""

    rules: tuple[LookupRule, ...] = Field(
        default=(), description="Rules for all records, run in order; each sees what those before it added."
    )
    databases: tuple[LocalPath, ...] = Field(
        default=(),
        description="MaxMind files (`.mmdb`: City, Country, ASN, ISP ...) that `ip_lookup` reads; of two that know "
        "the same thing the first one counts.",
    )
    implicit: bool = Field(
        default=True,
        description="Whether events of the JS endpoint and the pixel have `/source_ip` looked up to"
        " `/eventn_ctx/location` and `/eventn_ctx/user_agent` to `/eventn_ctx/parsed_ua`. A rule with the same `to`"
        " replaces that one.",
    )

    @field_validator("rules")
    @classmethod
    def _sound_rules(cls, value: tuple[LookupRule, ...]) -> tuple[LookupRule, ...]:
        taken: dict[tuple[LookupName, Path], int] = {}
        for number, rule in enumerate(value):
            source, target = rule.source_path, rule.target_path
            if target[: len(source)] == source:
                raise ValueError(f"rule {number}: '{rule.to}' is no place for the answer: it is, or is inside, `from`")
            other = taken.setdefault((rule.name, target), number)
            if other != number:
                raise ValueError(f"rule {number}: rule {other} has the same name and the same `to`, '{rule.to}'")
        return value

    @model_validator(mode="after")
    def _something_to_do(self) -> LookupConfig:
        if not self.rules and not self.implicit:
            raise ValueError("there is nothing to look up: write `rules`, or leave `implicit` on")
        return self

    @property
    def implicit_rules(self) -> tuple[LookupRule, ...]:
        """The implicit rules that are in force."""
        if not self.implicit:
            return ()
        taken = {rule.target_path for rule in self.rules}
        return tuple(rule for rule in IMPLICIT_RULES if rule.target_path not in taken)
