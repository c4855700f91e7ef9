"""Tells a sampler when its route is too far behind to ask policies, and when it is no longer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from penstock.steps.sample.config import StressReliefConfig

STRESS_NAMESPACE = "stress"
"""The namespace of the control record that begins and ends it."""


class StressRelief:
    """For one thread. After a start it says once how it is, because it does not know what was said before."""

    def __init__(self, config: StressReliefConfig | None) -> None:
        self._config = config
        self._stressed: bool | None = None

    def changes(self, behind: Callable[[], int]) -> Iterator[tuple[str, str]]:
        """A control record if it begins or ends now: its name and data."""
        config = self._config
        if config is None:
            return
        below = config.above // 2 if config.below is None else config.below
        stressed = behind() > (below if self._stressed else config.above)
        if stressed != self._stressed:
            yield STRESS_NAMESPACE, json.dumps({"percentage": config.sampling_percentage if stressed else None})
            self._stressed = stressed
