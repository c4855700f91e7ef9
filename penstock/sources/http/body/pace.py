"""Estimates how long a body will take, before any work on it: handled at once, or in a lane."""

from __future__ import annotations

from enum import Enum, auto

from penstock.sources.http.access.endpoints import Shape

TINY_BYTES = 2048
"""Whatever is in a smaller body, it takes a few milliseconds."""
QUICK_BYTES = 65_536
"""A larger body, unpacked, is never worked on by the event loop."""
QUICK_OBJECTS = 256
"""Nor is one with more objects or lines."""
QUICK_PRODUCT = 2**20
"""Nor one whose events could grow beyond this by what they share."""
SOON_PRODUCT = 8 * 2**20
QUICK_QUERY = 2048


class Pace(Enum):
    """Where a body is worked on."""

    AT_ONCE = auto()
    """By the event loop: a few milliseconds at most."""
    SOON = auto()
    """In the lane for bodies of some size: a fraction of a second at most."""
    ALONE = auto()
    """In the lane for the largest: no other such body is in memory unpacked meanwhile."""


def pace(shape: Shape, body: bytes, form: bool) -> Pace:
    """For a body that is unpacked."""
    size = len(body)
    if size > QUICK_BYTES:
        return Pace.ALONE
    if shape is Shape.BUNDLES:
        # Also because the first of them loads the compiler.
        return Pace.SOON
    objects = body.count(b"{")
    if shape is Shape.LINES:
        return Pace.SOON if form or max(objects, body.count(b"\n")) > QUICK_OBJECTS else Pace.AT_ONCE
    # A key may be written with escapes.
    may_share = shape is Shape.BATCH or b"template" in body or b"\\u" in body
    product = size * objects if may_share else size
    if product > SOON_PRODUCT:
        return Pace.ALONE
    return Pace.SOON if objects > QUICK_OBJECTS or product > QUICK_PRODUCT else Pace.AT_ONCE
