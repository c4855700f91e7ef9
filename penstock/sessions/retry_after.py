"""What a server says about when to come back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST = 3_600.0
"""Seconds. A server that asks for more is asked again after this."""


def asked_pause(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds to wait that an answer asks for, by its headers (names in lower case). A date counts from the time
    that the server says it is, if it does: its clock and ours need not agree."""
    return retry_after(headers.get("retry-after"), _seconds(headers.get("date", "")) or now)


def retry_after(value: str | None, now: float) -> float | None:
    """The seconds to wait that the header ``Retry-After`` asks for, as a number or as a date; ``None`` if it says
    nothing that can be read. ``now``: the time of day, in seconds since 1970."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), LONGEST)
    at = _seconds(text)
    return None if at is None else min(max(0.0, at - now), LONGEST)


def _seconds(text: str) -> float | None:
    """A date of HTTP, in seconds since 1970."""
    try:
        at = parsedate_to_datetime(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
