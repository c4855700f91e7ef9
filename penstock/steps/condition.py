"""A condition over a batch: for which rows it is true. Shared by ``where`` and ``skip``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.json.find import Found, find
from penstock.steps.expression.conversion import to_truths
from penstock.steps.expression.evaluate import evaluate
from penstock.steps.expression.tree import Node, fields
from penstock.steps.outcomes import Flags, not_json

__all__ = ["Condition", "Flags", "Judged"]


@dataclass(frozen=True)
class Judged:
    """Per row whether it is a JSON object, and whether the condition is true for it (null is not true)."""

    valid: Flags
    true: Flags
    failed: tuple[pa.RecordBatch, ...]
    """The failures of the rows that are not valid."""


class Condition:
    """A parsed condition."""

    def __init__(self, tree: Node) -> None:
        self._tree = tree
        self.paths = fields(tree)
        """The fields that it asks for."""
        self._places = {path: place for place, path in enumerate(self.paths)}

    def judge(self, batch: pa.RecordBatch, found: Found | None = None) -> Judged:
        """``batch`` has at least one row; ``found`` is what ``paths`` lead to, if that is known."""
        found = find(batch.column("data"), self.paths) if found is None else found
        truth = to_truths(evaluate(self._tree, batch, found, self._places))
        true = np.broadcast_to((truth.ints != 0) & ~truth.nulls, found.valid.shape)
        failed = () if found.valid.all() else (not_json(batch, found.valid, found.broken_at),)
        return Judged(found.valid, true, failed)
