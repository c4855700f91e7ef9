"""The names of the log's partitions that only one route reads."""

from __future__ import annotations


def replay_source(route: str) -> str:
    """For failed records that were put through the route again."""
    return f"replay:{route}"


def control_source(route: str) -> str:
    """For what its holding step is told: ticks and releases."""
    return f"control:{route}"


def own_sources(route: str) -> tuple[str, ...]:
    """All of them: an operator who names no partition does not mean these."""
    return replay_source(route), control_source(route)
