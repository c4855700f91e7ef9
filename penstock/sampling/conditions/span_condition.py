"""What every span-level condition can do."""

from __future__ import annotations

from typing import Protocol

from penstock.otlp.span_table import Flags, Needs, SpanTable


class SpanCondition(Protocol):
    """A question that is asked of one span at a time.

    Conditions are values: frozen, hashable, picklable, and equal if they ask the same, so that equal ones can share
    their answer. What is wrong with an option is a ``ValueError`` when the condition is made, never later.
    """

    @property
    def needs(self) -> Needs:
        """What the table must have for ``met``."""
        ...

    def met(self, spans: SpanTable) -> Flags:
        """For each span whether it meets the condition. The table has at least what ``needs`` says."""
        ...
