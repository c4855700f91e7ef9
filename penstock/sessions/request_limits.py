"""What a request may have, whoever makes it."""

from __future__ import annotations

MOST_BYTES = 6_225_920
"""Of a request before compression; the service takes a little more."""
SEND_ABOVE = 5 * 2**20
"""A request of so many bytes is not filled any further."""
