"""Conditions that users write in the OpenTelemetry Transformation Language, OTTL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from penstock.otlp.span_table import Flags, Needs, SpanTable
from penstock.sampling.conditions.ottl.condition_rows import Rows
from penstock.sampling.policy_config import ErrorMode

if TYPE_CHECKING:
    from penstock.sampling.conditions.ottl.condition_rows import Test


@dataclass(frozen=True)
class OttlCondition:
    """One of the ``span`` conditions is true of the span, or one of the ``spanevent`` conditions of one of its events.

    A condition cannot always be evaluated: a function may meet a value that it cannot take, a division a zero. With
    ``ignore`` and ``silent`` it then counts as false, and the next one is asked. With ``propagate`` such an error
    is the answer for that span: what was true before it counts, nothing after it does. Conditions are asked in their
    order, first those of the span, then those of its events, event by event.
    """

    span: tuple[str, ...] = ()
    spanevent: tuple[str, ...] = ()
    error_mode: ErrorMode = ErrorMode.IGNORE

    def __post_init__(self) -> None:
        if not self.span and not self.spanevent:
            raise ValueError("expected at least one condition, under span or spanevent")
        ErrorMode(self.error_mode)
        _ = self._tests

    @property
    def needs(self) -> Needs:
        of_span, of_event = self._tests
        return reduce(or_, (test.needs for test in (*of_span, *of_event)), Needs(events=bool(of_event)))

    def met(self, spans: SpanTable) -> Flags:
        of_span, of_event = self._tests
        true, failed = self._first_answers(of_span, Rows(spans), len(spans))
        if not of_event:
            return true
        if spans.events is None:
            raise LookupError("the table has no events, which this condition needs")
        events = spans.events
        event_true, event_failed = self._first_answers(of_event, Rows(spans, events), len(events.span))
        answered = np.flatnonzero(event_true | event_failed)
        asked, first = np.unique(events.span[answered], return_index=True)
        of_events: Flags = np.zeros(len(spans), np.bool_)
        of_events[asked] = event_true[answered[first]]
        met: Flags = true | (of_events & ~failed)
        return met

    def __reduce__(self) -> tuple[type[OttlCondition], tuple[tuple[str, ...], tuple[str, ...], ErrorMode]]:
        # Compiled again where it arrives.
        return OttlCondition, (self.span, self.spanevent, self.error_mode)

    def _first_answers(self, tests: tuple[Test, ...], rows: Rows, length: int) -> tuple[Flags, Flags]:
        """For each row whether one of the answers is true that it gets, and whether an error has ended them."""
        true, failed = np.zeros(length, np.bool_), np.zeros(length, np.bool_)
        for test in tests:
            truth = test.truth(rows)
            true |= truth.true & ~failed
            if self.error_mode == ErrorMode.PROPAGATE:
                failed |= truth.failed
        return true, failed

    @cached_property
    def _tests(self) -> tuple[tuple[Test, ...], tuple[Test, ...]]:
        # The parser is imported when a condition is read and not before: only pipelines with one pay for it.
        from penstock.sampling.conditions.ottl.compile_condition import compile_condition
        from penstock.sampling.conditions.ottl.path_values import Context

        return (
            tuple(compile_condition(text, Context.SPAN) for text in self.span),
            tuple(compile_condition(text, Context.SPANEVENT) for text in self.spanevent),
        )
