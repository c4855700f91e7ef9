"""A bundle as conflation sees it: whose it is, its versions, and where its bytes are. Never the bytes themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from penstock.conflation.version import Version

LONGEST_NAME = 256
"""In characters: it is part of keys in databases, which have their limits."""
NOT_IN_NAMES = r"[\x00-\x1f\x7f]"
"""Control characters are in no name: some databases cannot keep them, and we put one between two names."""
NAME_RULE = f"a name has 1 to {LONGEST_NAME} characters, none of them a control character"

_NOT_IN_NAMES = re.compile(NOT_IN_NAMES)


def is_name(text: str) -> bool:
    """Whether a source or a kind may be called so."""
    return 1 <= len(text) <= LONGEST_NAME and _NOT_IN_NAMES.search(text) is None


class Place(NamedTuple):
    """Where in the log a bundle is."""

    partition: int
    offset: int
    item: int = 0


@dataclass(frozen=True, slots=True)
class Bundle:
    source: str
    kind: str
    version: Version
    place: Place
    depends_on: Version | None = None
    base: Version | None = None

    @property
    def needs(self) -> Version | None:
        """The version of the kind it depends on that must be there before it."""
        return self.base if self.depends_on is None else self.depends_on

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"


class Processed(NamedTuple):
    """What was written last of a kind of a source."""

    version: Version
    place: Place | None = None
    """The bundle that it came from, if that is known: the same bundle is not another one of the same version."""
    is_there: bool = True
    """Whether its rows are; those of a source that fell silent may have gone. Nothing can rest on what is not there."""


class Unit(NamedTuple):
    """What one writer at a time may write: a source, or a group of its kinds."""

    source: str
    group: str = ""
