"""What conditions are asked about: the spans of a table, or their events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.otlp.span_table import EventTable, Needs, SpanTable
from penstock.sampling.conditions.ottl.value_columns import Column, Truth

NO_NEEDS = Needs()
EVENT_NEEDS = Needs(events=True)


@dataclass(frozen=True)
class Rows:
    """Of spans, or of events if those are given."""

    spans: SpanTable
    events: EventTable | None = None

    def of_spans(self, column: Column) -> Column:
        """For each row what the column says of its span."""
        return column if self.events is None else column.take(self.events.span)


class Value(Protocol):
    """Something that has a value in each row."""

    @property
    def needs(self) -> Needs: ...

    def column(self, rows: Rows) -> Column: ...


class Test(Protocol):
    """Something that is true or false in each row."""

    @property
    def needs(self) -> Needs: ...

    def truth(self, rows: Rows) -> Truth: ...
