"""Tables of spans from plain values, with what a condition needs and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.otlp.span_table import EventTable, Needs, SpanTable, Text, ValueKind, Values
from penstock.sampling.conditions.span_condition import SpanCondition


class Empty:
    """An attribute without a value."""

    def __repr__(self) -> str:
        return "EMPTY"


EMPTY = Empty()
Value = str | bool | int | float | bytes | list[int] | dict[str, int] | Empty
Attributes = Mapping[str, Value]

KINDS: dict[type, ValueKind] = {
    str: ValueKind.STRING,
    bool: ValueKind.BOOL,
    int: ValueKind.INT,
    float: ValueKind.DOUBLE,
    list: ValueKind.ARRAY,
    dict: ValueKind.MAP,
    bytes: ValueKind.BYTES,
    Empty: ValueKind.EMPTY,
}


@dataclass(frozen=True)
class Event:
    name: str = "event"
    attributes: Attributes = field(default_factory=dict)
    time: int = 0


@dataclass(frozen=True)
class Span:
    attributes: Attributes = field(default_factory=dict)
    resource: Attributes = field(default_factory=dict)
    events: Sequence[Event] = ()
    name: str = "span"
    kind: int = 0
    status: int = 0
    status_message: str = ""
    trace_id: int = 0x000102030405060708090A0B0C0D0E0F
    span_id: int = 0x1112131415161718
    parent_id: int = 0
    trace_state: str = ""
    start: int = 0
    end: int = 0
    flags: int = 0
    scope_name: str = ""
    scope_version: str = ""


def met(condition: SpanCondition, *spans: Span) -> list[bool]:
    """What the condition says of each span."""
    answer = condition.met(table(condition.needs, *spans))
    assert answer.dtype == np.bool_
    assert answer.shape == (len(spans),)
    return [bool(flag) for flag in answer]


def table(needs: Needs, *spans: Span) -> SpanTable:
    texts = {
        Text.NAME: [span.name for span in spans],
        Text.TRACE_STATE: [span.trace_state for span in spans],
        Text.STATUS_MESSAGE: [span.status_message for span in spans],
        Text.SCOPE_NAME: [span.scope_name for span in spans],
        Text.SCOPE_VERSION: [span.scope_version for span in spans],
    }
    return SpanTable(
        words([span.trace_id >> 64 for span in spans]),
        words([span.trace_id % 2**64 for span in spans]),
        words([span.span_id for span in spans]),
        words([span.parent_id for span in spans]),
        words([span.start for span in spans]),
        words([span.end for span in spans]),
        np.array([span.kind for span in spans], np.uint8),
        np.array([span.status for span in spans], np.uint8),
        np.array([span.flags for span in spans], np.uint32),
        {text: pa.array(texts[text], pa.string()) for text in needs.texts},
        columns(needs.span_attributes, [span.attributes for span in spans]),
        columns(needs.resource_attributes, [span.resource for span in spans]),
        event_table(needs, spans) if needs.events or needs.event_attributes else None,
    )


def event_table(needs: Needs, spans: Sequence[Span]) -> EventTable:
    events = [(place, event) for place, span in enumerate(spans) for event in span.events]
    return EventTable(
        np.array([place for place, _ in events], np.int64),
        words([event.time for _, event in events]),
        pa.array([event.name for _, event in events], pa.string()),
        columns(needs.event_attributes, [event.attributes for _, event in events]),
    )


def words(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(numbers, np.uint64)


def columns(keys: frozenset[str], rows: Sequence[Attributes]) -> dict[str, Values]:
    return {key: column([row.get(key) for row in rows]) for key in keys}


def column(values: Sequence[Value | None]) -> Values:
    kinds = [ValueKind.ABSENT if value is None else KINDS[type(value)] for value in values]
    return Values(
        np.array(kinds, np.uint8),
        np.array([int(value) if isinstance(value, int) else 0 for value in values], np.int64),
        np.array([value if isinstance(value, float) else 0.0 for value in values], np.float64),
        pa.array([value if isinstance(value, str) else None for value in values], pa.string()),
    )
