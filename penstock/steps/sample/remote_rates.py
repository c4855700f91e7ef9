"""Percentages that somebody else sets: read again and again from a file or a URL."""

from __future__ import annotations

import math
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.sampling.policy_config import RemoteProbabilisticPolicy

READ_EVERY = 10.0
"""Seconds between two looks at where a percentage is."""
TIMEOUT = 5.0
MOST_BYTES = 100
"""A number is short; whatever is longer is none."""


class RemoteRates:
    """For one thread. What was read once counts until something else is read."""

    def __init__(self, policies: Sequence[RemoteProbabilisticPolicy]) -> None:
        self._policies = policies
        self._told: dict[str, float] = {}
        self._due = time.monotonic()

    def changes(self) -> Iterator[tuple[str, float]]:
        """The policies whose percentage is another one than at the last look, each with the new one. Raises ``OSError``
        or ``ValueError``, naming policy and place, for one that cannot be read: the others are not looked at then."""
        if not self._policies or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + READ_EVERY
        for policy in self._policies:
            rate = _read(policy)
            if self._told.get(policy.name) != rate:
                yield policy.name, rate
                self._told[policy.name] = rate


def _read(policy: RemoteProbabilisticPolicy) -> float:
    where = policy.rate_from
    try:
        rate = float(_text(where).strip())
    except (OSError, ValueError) as error:
        raise ValueError(f"the rate of policy '{policy.name}' cannot be read from {where}: {error}") from error
    if not math.isfinite(rate):
        raise ValueError(f"the rate of policy '{policy.name}' in {where} is no number of percent")
    return rate


def _text(where: str) -> str:
    if where.startswith(("http://", "https://")):
        with urllib.request.urlopen(where, timeout=TIMEOUT) as answer:
            found = bytes(answer.read(MOST_BYTES + 1))
    else:
        with Path(where).open("rb") as file:
            found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes are no number")
    return found.decode()
