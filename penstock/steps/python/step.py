"""Runs a user's function over batches. When it raises, the batch is halved until only the rows it raises for fail."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.steps.chain import place_key
from penstock.steps.contract import NO_FAILURES, ArrowStep, Outcome
from penstock.steps.outcomes import failures
from penstock.steps.python.config import PythonConfig
from penstock.steps.python.function import Treatment, load

PYTHON_ERROR = "python_error"
MOST_CALLS = 1000
"""Calls for one batch that has bad rows; when they are used up, what is left over fails in pieces as they are then."""


class Python(ArrowStep[PythonConfig]):
    """The function is loaded at the first batch, in the process that runs it. It never travels: its path does."""

    def __init__(self, config: PythonConfig) -> None:
        super().__init__(config)
        self._treat: Treatment | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_treat": None}

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        if self._treat is None:
            self._treat = load(self.config)
        done: list[tuple[int, Outcome]] = []
        pieces = deque([(0, batch.num_rows)])
        calls = 0
        # Breadth first: when the calls run out, what is left are small pieces around the bad rows.
        while pieces:
            start, end = pieces.popleft()
            piece = batch.slice(start, end - start)
            calls += 1
            try:
                done.append((start, _accounted(piece, self._treat(piece))))
            except Exception as error:
                if end - start == 1 or calls >= MOST_CALLS:
                    message = f"{type(error).__name__}: {error}"
                    failed = failures(piece, np.arange(end - start), PYTHON_ERROR, [message] * (end - start))
                    done.append((start, Outcome(piece.slice(0, 0), failures=failed)))
                else:
                    middle = (start + end) // 2
                    pieces += [(start, middle), (middle, end)]
        return _together([outcome for _, outcome in sorted(done, key=lambda each: each[0])])


def _accounted(given: pa.RecordBatch, result: pa.RecordBatch) -> Outcome:
    """What came back, in the order of what was given; rows that are missing were skipped, further ones added."""
    records, place, counts = np.unique(place_key(given).to_numpy(), return_index=True, return_counts=True)
    came = place_key(result).to_numpy()
    which = np.searchsorted(records, came)
    known = (which < len(records)) & (records[np.minimum(which, len(records) - 1)] == came)
    if not known.all():
        raise TypeError("the function returned a row with a partition and offset that it was not given")
    difference = np.bincount(which, minlength=len(records)) - counts
    order = np.argsort(place[which], kind="stable")
    in_order = result if (order == np.arange(len(order))).all() else result.take(pa.array(order))
    skipped, added = -difference[difference < 0].sum(), difference[difference > 0].sum()
    return Outcome(in_order, int(skipped), NO_FAILURES, int(added))


def _together(outcomes: list[Outcome]) -> Outcome:
    if len(outcomes) == 1:
        return outcomes[0]
    return Outcome(
        pa.concat_batches([outcome.kept for outcome in outcomes]),
        sum(outcome.skipped for outcome in outcomes),
        pa.concat_batches([outcome.failures for outcome in outcomes]),
        sum(outcome.added for outcome in outcomes),
    )
