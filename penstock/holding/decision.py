"""What a holding step decides on one batch of one shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.holding.item import Items
from penstock.outcome import check_count


@dataclass(frozen=True)
class StateChange:
    """State is a row of blobs, oldest first: the ``drop`` oldest are removed, then ``append`` become the newest. Where
    nothing is appended nothing has changed."""

    append: Sequence[bytes] = ()
    drop: int = 0


@dataclass(frozen=True)
class Decision:
    """Every item of the batch is in one place: passed on, skipped, or held. What is passed on, and what is let go of
    earlier batches, is in ``released``, in any order."""

    released: Items
    passed: int
    let_go: int = 0
    held: int = 0
    skipped: int = 0
    waiting: int = 0
    """How many items wait after it, of this batch and of earlier ones."""
    change: StateChange = StateChange()
    holds: Mapping[int, int] = field(default_factory=dict)
    """By partition, the lowest offset that still waits."""

    def check(self, step: str, given: int) -> None:
        """Refuse a decision that loses or invents an item."""
        check_count(step, given, self.passed + self.held + self.skipped)
        check_count(step, len(self.released), self.passed + self.let_go)
