"""How many bytes a request has, and where the next one begins.

Sizes are those of serialised parts, so what is counted is what is sent. A request is closed when the next event would
not fit, or when it has grown past ``SEND_ABOVE``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.sessions.request_limits import MOST_BYTES, SEND_ABOVE

Sizes = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    most: int = MOST_BYTES
    """Bytes of a request."""
    send_above: int = SEND_ABOVE
    events: int | None = None
    """Most events of a request."""


@dataclass(frozen=True)
class EventSizes:
    """The sizes of the events of one session, in their order, each with the comma that follows it."""

    events: Sizes
    definitions: Sequence[tuple[Numbers, Sizes]] = ()
    """What events refer to (threads, logs) and a request lists once: for each kind the number of each event's, -1 for
    none, and the size by the number, with its comma."""

    def __len__(self) -> int:
        return len(self.events)

    @cached_property
    def ends(self) -> Sizes:
        """Where each event ends if all stand one after the other."""
        return np.cumsum(self.events)


def cut_request(sizes: EventSizes, start: int, around: int, limits: Limits) -> int:
    """The event behind the last one that goes into the same request as the one at ``start``. ``around``: the bytes of
    a request without events. An event that does not fit alone is a request alone: it was to be trimmed before."""
    last = len(sizes) if limits.events is None else min(len(sizes), start + limits.events)
    before = int(sizes.ends[start] - sizes.events[start])
    # No more than these can fit: definitions only add to them.
    reach = int(sizes.ends.searchsorted(before + limits.most - around, "right"))
    end = min(last, max(reach, start + 1))
    if not sizes.definitions:
        full = int(sizes.ends.searchsorted(before + limits.send_above - around, "right")) + 1
        return max(start + 1, min(end, full))
    totals = around + np.cumsum(_growth(sizes, start, end))
    fits = int(np.searchsorted(totals, limits.most, "right"))
    full = int(np.searchsorted(totals, limits.send_above, "right")) + 1
    return start + max(1, min(fits, full, end - start))


def request_bytes(sizes: EventSizes, start: int, end: int, around: int) -> int:
    """The size of the request with these events, or up to one byte more for each list: the last comma is not sent."""
    return around + int(_growth(sizes, start, end).sum())


def _growth(sizes: EventSizes, start: int, end: int) -> Sizes:
    """By how much each event makes a request longer that begins at ``start``."""
    growth = sizes.events[start:end].copy()
    for numbers, bytes_of in sizes.definitions:
        found, first = np.unique(numbers[start:end], return_index=True)
        known = found >= 0
        growth[first[known]] += bytes_of[found[known]]
    return growth
