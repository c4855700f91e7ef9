"""Runs a user's function over batches. When it raises, it is called again until only the rows it raises for fail."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.outcomes import failures
from penstock.steps.python.config import PythonConfig
from penstock.steps.python.function import Treatment, load
from penstock.steps.python.interrupts import Interrupts
from penstock.steps.python.results import accounted

PYTHON_ERROR = "python_error"


class Python(ArrowStep[PythonConfig]):
    """Loads the function at the first batch, in the process that runs it. Only its path is sent to workers."""

    def __init__(self, config: PythonConfig) -> None:
        super().__init__(config)
        self._treat: Treatment | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_treat": None}

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        # Standard output is the verb's own: with --json a script reads it.
        with contextlib.redirect_stdout(sys.stderr), Interrupts() as interrupts:
            if self._treat is None:
                self._treat = load(self.config, interrupts)
            return _run_function(batch, self._treat, interrupts)


def _run_function(batch: pa.RecordBatch, treat: Treatment, interrupts: Interrupts) -> Outcome:
    """From the first row to the last: a piece that the function raises for is halved down to its first bad row, and
    after that the pieces become longer again, each twice the one before. So a bad row among good ones costs calls as
    the logarithm of the batch, bad rows that stand together cost one call each, and however many there are, the
    function gets a few times the rows of the batch and no more."""
    outcomes: list[Outcome] = []
    bad: dict[int, str] = {}
    start, length = 0, batch.num_rows
    suspect = 0
    while start < batch.num_rows:
        piece = batch.slice(start, length)
        try:
            outcomes.append(accounted(piece, treat(piece)))
        # Also what is not an Exception, such as sys.exit(): the function only affects the rows that it was given.
        except BaseException as error:
            if interrupts.caused(error):
                raise
            if piece.num_rows > 1:
                suspect = start + piece.num_rows
                length = piece.num_rows // 2
                continue
            bad[start] = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace").decode()
            suspect = 0
        else:
            length *= 2
        start += piece.num_rows
        if start < suspect:
            length = (suspect - start + 1) // 2
    if not bad and len(outcomes) == 1:
        return outcomes[0]
    raised = failures(batch, np.array(list(bad), np.int64), PYTHON_ERROR, list(bad.values()))
    return Outcome(
        pa.concat_batches([batch.slice(0, 0), *(outcome.kept for outcome in outcomes)]),
        sum(outcome.skipped for outcome in outcomes),
        pa.concat_batches([raised, *(outcome.failures for outcome in outcomes)]),
        sum(outcome.added for outcome in outcomes),
    )
