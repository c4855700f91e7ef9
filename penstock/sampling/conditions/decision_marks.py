"""Decision spans: spans that say by an attribute of their resource what another sampler has decided on their trace."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from penstock.otlp.span_table import Flags, Needs, SpanTable, ValueKind, Values, Words
from penstock.sampling.span_item import DECIDED_NOT_SAMPLED, DECIDED_SAMPLED

DECISION_ATTRIBUTES = ("penstock.decision", "atlassiansampling.decision")


def decision_needs(names: tuple[str, ...] = DECISION_ATTRIBUTES) -> Needs:
    """What ``decision_marks`` looks at."""
    return Needs(resource_attributes=frozenset(names))


def decision_marks(spans: SpanTable, names: tuple[str, ...] = DECISION_ATTRIBUTES) -> Words:
    """``DECIDED_SAMPLED`` or ``DECIDED_NOT_SAMPLED`` for each decision span, 0 for the others.

    The attribute is a boolean, or the string ``true`` or ``false``; with another value it says nothing. Of several
    names, the first that says something counts.
    """
    marks = np.zeros(len(spans), np.uint64)
    for name in names:
        values = spans.resource_attributes[name]
        undecided = marks == 0
        marks[undecided & _says(values, True)] = DECIDED_SAMPLED
        marks[undecided & _says(values, False)] = DECIDED_NOT_SAMPLED
    return marks


def _says(values: Values, answer: bool) -> Flags:
    as_bool = (values.kind == ValueKind.BOOL) & (values.integers == int(answer))
    as_text = pc.equal(values.texts, "true" if answer else "false").fill_null(False).to_numpy(zero_copy_only=False)
    says: Flags = as_bool | as_text
    return says
