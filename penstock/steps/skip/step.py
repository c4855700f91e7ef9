"""Skips the records for which a condition is true and keeps the others."""

from __future__ import annotations

from penstock.steps.condition import Flags, Judged
from penstock.steps.where.step import Where


class Skip(Where):
    """A condition that is null is not true: keeps the records that it cannot judge."""

    def wants(self, judged: Judged) -> Flags:
        return judged.valid & ~judged.true
