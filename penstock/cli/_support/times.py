"""Times on the command line: how long ago, or when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.config.value_types.quantities import seconds


def time_since(text: str) -> datetime:
    """``90s``, ``1h``, ``7d`` ago, or an ISO time (UTC if it names no zone). Raises ``ValueError``."""
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds(text))
    except (ValueError, OverflowError):
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is neither a duration such as 90s, 1h or 7d nor a time such as 2026-01-31T12:00"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
