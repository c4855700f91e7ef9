"""How fine the times of rows are that spans become."""

from __future__ import annotations

from enum import StrEnum


class Times(StrEnum):
    """How fine the start and the end of a span are."""

    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"
