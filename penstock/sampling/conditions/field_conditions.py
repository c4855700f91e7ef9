"""Conditions on what every span has: its status, its flags, its parent, its trace state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.span_table import Flags, Needs, SpanTable, Text
from penstock.sampling.conditions.trace_states import trace_state_values

STATUS_CODES = {"UNSET": 0, "OK": 1, "ERROR": 2}

_SAMPLED = np.uint32(1)
_MOST_CHARACTERS = 256
"""Of a member of a trace state, with its ``=``."""


@dataclass(frozen=True)
class StatusIs:
    """The status is one of ``codes``: OK, ERROR or UNSET."""

    codes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.codes:
            raise ValueError("expected at least one status code")
        for code in self.codes:
            if code not in STATUS_CODES:
                raise ValueError(f"unknown status code `{code}`, supported: OK, ERROR, UNSET")

    @property
    def needs(self) -> Needs:
        return Needs()

    def met(self, spans: SpanTable) -> Flags:
        wanted = np.zeros(256, np.bool_)
        wanted[[STATUS_CODES[code] for code in self.codes]] = True
        found: Flags = wanted[spans.status]
        return found


@dataclass(frozen=True)
class TraceState:
    """The span's trace state has a member ``key`` with one of ``values``. A trace state against W3C's rules has none.

    A value that no trace state can have, because it is empty or together with the key too long, stands for nothing.
    """

    key: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("the key of the trace state is empty")
        if not self.values:
            raise ValueError("expected at least one value")

    @property
    def needs(self) -> Needs:
        return Needs(texts=frozenset([Text.TRACE_STATE]))

    def met(self, spans: SpanTable) -> Flags:
        possible = [value for value in self.values if value and len(self.key) + len(value) < _MOST_CHARACTERS]
        found = trace_state_values(spans.texts[Text.TRACE_STATE], self.key)
        hits: Flags = pc.is_in(found, pa.array(possible, pa.string())).to_numpy(zero_copy_only=False)
        return hits


@dataclass(frozen=True)
class TraceFlagsSampled:
    """The sampled bit of the W3C trace flags is set."""

    @property
    def needs(self) -> Needs:
        return Needs()

    def met(self, spans: SpanTable) -> Flags:
        sampled: Flags = (spans.flags & _SAMPLED) != 0
        return sampled


@dataclass(frozen=True)
class RootSpan:
    """The span has no parent, or its parent's id is the right half of the trace id."""

    @property
    def needs(self) -> Needs:
        return Needs()

    def met(self, spans: SpanTable) -> Flags:
        root: Flags = (spans.parent_id == 0) | (spans.parent_id == spans.trace_low)
        return root
