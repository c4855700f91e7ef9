"""What a server says about when to come back."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST = 3_600.0
"""Seconds. A server that asks for more is asked again after this."""


def retry_after(value: str | None, now: float) -> float | None:
    """The seconds to wait that the header ``Retry-After`` asks for, as a number or as a date; ``None`` if it says
    nothing that can be read. ``now``: the time of day, in seconds since 1970."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), LONGEST)
    try:
        at = parsedate_to_datetime(text)
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), LONGEST)
