"""The spans of some requests in columns, as conditions look at them.

A table has what was asked for (``Needs``) and nothing else: looking for an attribute costs time for every span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class ValueKind(IntEnum):
    """What an attribute's value is."""

    ABSENT = 0
    STRING = 1
    BOOL = 2
    INT = 3
    DOUBLE = 4
    ARRAY = 5
    MAP = 6
    BYTES = 7
    EMPTY = 8
    """The attribute is there without a value."""


@dataclass(frozen=True)
class Values:
    """The values of one attribute, one per row. What does not belong to a row's kind is 0, or null."""

    kind: npt.NDArray[np.uint8]
    """A ``ValueKind`` each."""
    integers: Numbers
    """Of ``INT``, and 0 or 1 of ``BOOL``."""
    doubles: npt.NDArray[np.float64]
    """Of ``DOUBLE``."""
    texts: pa.StringArray
    """Of ``STRING``; null for the others."""


class Text(IntEnum):
    """Texts of a span that a condition may ask for."""

    NAME = 0
    TRACE_STATE = 1
    STATUS_MESSAGE = 2
    SCOPE_NAME = 3
    SCOPE_VERSION = 4


@dataclass(frozen=True)
class Needs:
    """What conditions look at, beyond the numbers that every table has."""

    texts: frozenset[Text] = frozenset()
    span_attributes: frozenset[str] = frozenset()
    resource_attributes: frozenset[str] = frozenset()
    events: bool = False
    """The names of span events; always if ``event_attributes`` are asked for."""
    event_attributes: frozenset[str] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.texts | other.texts,
            self.span_attributes | other.span_attributes,
            self.resource_attributes | other.resource_attributes,
            self.events or other.events,
            self.event_attributes | other.event_attributes,
        )


@dataclass(frozen=True)
class EventTable:
    """The events of all spans of a table."""

    span: Numbers
    """Which span of the table each belongs to; ascending."""
    times: Words
    names: pa.StringArray
    attributes: Mapping[str, Values] = field(default_factory=dict)


@dataclass(frozen=True)
class SpanTable:
    """Times are nanoseconds since 1970, as they came; 0 is none. Ids are big-endian numbers."""

    trace_high: Words
    trace_low: Words
    span_id: Words
    parent_id: Words
    """0 where there is none, or an empty one."""
    start: Words
    end: Words
    kind: npt.NDArray[np.uint8]
    status: npt.NDArray[np.uint8]
    """0 UNSET, 1 OK, 2 ERROR; others as they came."""
    flags: npt.NDArray[np.uint32]
    texts: Mapping[Text, pa.StringArray] = field(default_factory=dict)
    """Empty where the span has none."""
    attributes: Mapping[str, Values] = field(default_factory=dict)
    resource_attributes: Mapping[str, Values] = field(default_factory=dict)
    """Of the resource of each span: one value per span."""
    events: EventTable | None = None

    def __len__(self) -> int:
        return len(self.start)
