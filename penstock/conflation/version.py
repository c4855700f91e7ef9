"""The version of a bundle: the incarnation of its source, and how many bundles of its kind that has sent before."""

from __future__ import annotations

import re
from typing import NamedTuple

VERSION_PATTERN = r"^(?P<incarnation>[0-9]{1,18})\.(?P<generation>[0-9]{1,18})$"
"""Eighteen digits, so that every number is one of 64 bits."""

_VERSION = re.compile(VERSION_PATTERN, re.ASCII)


class Version(NamedTuple):
    """The higher incarnation is newer, and within one the higher generation."""

    incarnation: int
    generation: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.generation}"


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


def parse_version(text: str) -> Version:
    """Raises ``ValueError`` for what is no version."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text[:40]}' is no version; it is incarnation.generation, such as 0.7")
    return Version(int(found["incarnation"]), int(found["generation"]))
