"""What a holding step decides on one batch of one shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """Every item of the batch is in one place: passed on, skipped, or held. What is passed on, what is let go of
    earlier batches, and what the step has made anew, is in ``released``, in any order. What waited and neither waits
    nor goes on is ``dropped``."""

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
    dropped: int = 0
    """Items of earlier batches that waited and are skipped now."""
    made: int = 0
    """Items in ``released`` that were in no batch: the step has made them."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why items were skipped or dropped, with how many; those of which it says nothing count as skipped."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """For metrics: what was counted in this batch, by names of the step's own."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """For metrics: how much there is of what after it. Those of all shards are joined (``join_levels``)."""

    def check(self, step: str, given: int) -> None:
        """Refuse a decision that loses or invents an item."""
        check_count(step, given, self.passed + self.held + self.skipped)
        check_count(step, len(self.released), self.passed + self.let_go + self.made)


HIGHEST = "_highest"
"""How the name of a level ends of which not the sum over shards is told, but that of the shard that has most of it."""


def join_levels(levels: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The levels of all shards by name, also where one is 0: it was another one before."""
    joined: dict[str, int] = {}
    for name, level in (each for of_shard in levels for each in of_shard.items()):
        before = joined.get(name, 0)
        joined[name] = max(before, level) if name.endswith(HIGHEST) else before + level
    return dict(sorted(joined.items()))
