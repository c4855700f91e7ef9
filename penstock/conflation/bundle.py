"""A bundle as conflation sees it: whose it is, its versions, and where its bytes are. Never the bytes themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.conflation.version import Version


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


class Unit(NamedTuple):
    """What one writer at a time may write: a source, or a group of its kinds."""

    source: str
    group: str = ""
