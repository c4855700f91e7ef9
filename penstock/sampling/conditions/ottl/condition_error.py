"""What is wrong with a condition, told with its text and the place in it."""

from __future__ import annotations

_SHOWN = 200
"""Characters of a condition that a message repeats."""


class Misread(Exception):
    """A piece of a condition cannot be used; ``at`` says where it begins, from 0 on."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(at, why)
        self.at = at
        self.why = why


def condition_error(text: str, at: int, why: str) -> ValueError:
    """``at`` counts from 0 on; people count from 1."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return ValueError(f"condition `{shown}`, character {at + 1}: {why}")
