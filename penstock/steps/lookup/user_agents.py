"""What ua-parser's rules say about a user agent, found by its resolver in Rust."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from ua_parser.core import OS, Domain, UserAgent
from ua_parser.loaders import load_lazy_builtins
from ua_parser.regex import Resolver

from penstock.steps.lookup.answer_memory import Fact

SPIDER = "Spider"
"""The device family that ua-parser gives to bots."""

_BOT_WORDS = re.compile(r"(?<!cu)bot|crawl|spider|slurp|scrap(?:er|ing|y)|headless", re.IGNORECASE)
# Cubot makes telephones.


class AgentFacts:
    keys = (
        "ua_family", "ua_version", "os_family", "os_version", "device_family", "device_brand", "device_model", "bot",
    )  # fmt: skip
    longest = 2048

    @cached_property
    def _resolver(self) -> Resolver:
        """Made when first needed: it takes a tenth of a second."""
        return Resolver(load_lazy_builtins())

    def about(self, text: str) -> Mapping[str, Fact]:
        parsed = self._resolver(text, Domain.ALL)
        agent, system, device = parsed.user_agent, parsed.os, parsed.device
        facts = {
            "ua_family": agent and agent.family,
            "ua_version": _version(agent),
            "os_family": system and system.family,
            "os_version": _version(system),
            "device_family": device and device.family,
            "device_brand": device and device.brand,
            "device_model": device and device.model,
        }
        known: dict[str, Fact] = {key: fact for key, fact in facts.items() if fact}
        bot = known.get("device_family") == SPIDER or _BOT_WORDS.search(text) is not None
        return {**known, "bot": bot} if known or bot else {}


def _version(of: UserAgent | OS | None) -> str | None:
    """Its numbers up to the first that is missing: ``120.0.6099``."""
    if of is None:
        return None
    numbers: list[str] = []
    for number in (of.major, of.minor, of.patch, of.patch_minor):
        if not number:
            break
        numbers.append(number)
    return ".".join(numbers)
