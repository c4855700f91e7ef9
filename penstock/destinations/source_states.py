"""What a database that keeps the state of sources tells of it, to whom it does not matter which database it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from penstock.conflation.version import Version


class KindState(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def version(self) -> Version: ...
    @property
    def updated_at(self) -> datetime: ...


class SourceState(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def active(self) -> bool: ...
    @property
    def updated_at(self) -> datetime: ...
    @property
    def kinds(self) -> Sequence[KindState]: ...


class SourceStates(Protocol):
    def sources(self) -> Sequence[SourceState]:
        """All sources, by name."""

    def forget(self, source: str) -> int:
        """Delete all that there is of a source. Returns how many rows went."""

    def positions(self, route: str) -> Mapping[int, int]:
        """Where a route stands in each partition of the log, as far as it was noted."""
