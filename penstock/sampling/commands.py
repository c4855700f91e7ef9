"""What a sampler can be told while it runs. A command is a row of ``SPAN_ITEM`` that is no span.

Commands are data of the log, as ticks are: a replayed batch has the same ones. They count before the spans of their
batch, and ``FLUSH`` after them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.holding.item import Items
from penstock.sampling.span_item import NO_POLICY, SPAN_ITEM

FLUSH = 1 << 16
"""In ``bits``: everything leaves, what waits and then what was decided."""
RATE = 1 << 17
"""In ``bits``: from now on the policy whose number is in the low 16 bits samples so many percent."""
STRESS = 1 << 18
"""In ``bits``: from now on no policy is asked, and so many percent of traces are sampled by their ids; or stress is
over, and policies are asked again."""

STRESS_IS_OVER = math.nan


@dataclass(frozen=True)
class Place:
    """Where a command stands in the log."""

    partition: int = 0
    offset: int = 0
    order: int = 0
    time: int = 0


def flush_command(place: Place) -> Items:
    return _command(FLUSH, 0.0, place)


def rate_command(policy: int, percentage: float, place: Place) -> Items:
    """For a policy of type ``remote_probabilistic``. One for another policy, or for none, changes nothing."""
    return _command(RATE | policy, percentage, place)


def stress_command(percentage: float, place: Place) -> Items:
    """``STRESS_IS_OVER`` for the end of it."""
    return _command(STRESS, percentage, place)


def percentage_of(command: np.void) -> float:
    return float(command["start"].view(np.float64))


def policy_of(command: np.void) -> int:
    return int(command["bits"]) & NO_POLICY


def _command(bits: int, percentage: float, place: Place) -> Items:
    row = np.zeros(1, SPAN_ITEM)
    row["bits"] = bits
    row["start"] = np.float64(percentage).view(np.uint64)
    row["partition"], row["offset"] = place.partition, place.offset
    row["order"], row["time"] = place.order, place.time
    return row
