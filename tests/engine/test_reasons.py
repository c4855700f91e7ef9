"""What a route that crashed gives as its reason: the line that a person looks for, not the traces around it."""

from __future__ import annotations

import pytest

from penstock.engine.running.query_end import reason_of
from penstock.errors import RouteError

IN_A_TASK = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
  File "step.py", line 9, in apply
    raise ValueError("a broken wheel")
{raised}

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RouteError("PEN-RTE-001", "the log ends at 3.", "Restore it."), "PEN-RTE-001: the log ends at 3. Restore it."),
        (ValueError("a broken wheel\nand more"), "ValueError: a broken wheel"),
        (ValueError(), "ValueError"),
        (RuntimeError(IN_A_TASK.format(raised="ValueError: a broken wheel")), "ValueError: a broken wheel"),
        (
            RuntimeError(IN_A_TASK.format(raised="penstock.errors.LogError: PEN-LOG-003: damaged.")),
            "PEN-LOG-003: damaged.",
        ),
        (RuntimeError("x" * 1_000), "RuntimeError: " + "x" * 486),
    ],
)
def test_the_reason_is_the_line_that_says_what_happened(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
