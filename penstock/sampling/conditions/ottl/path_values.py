"""The paths of a condition: what they lead to in a span, in its event, and in what is around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.otlp.span_table import EventTable, Needs, SpanTable, Text, ValueKind
from penstock.sampling.conditions.ottl.condition_rows import EVENT_NEEDS, NO_NEEDS, Rows
from penstock.sampling.conditions.ottl.hexadecimal import hexadecimal_texts, octets_of_words
from penstock.sampling.conditions.ottl.value_columns import Column, of_integers, of_octets, of_texts, of_values
from penstock.sampling.conditions.trace_states import trace_state_values


class Context(Enum):
    """What a condition is about."""

    SPAN = "span"
    SPANEVENT = "spanevent"


@dataclass(frozen=True)
class SpanPath:
    """A path to something of a span, or of its resource or scope."""

    read: Callable[[SpanTable], Column]
    needs: Needs = NO_NEEDS

    def column(self, rows: Rows) -> Column:
        return rows.of_spans(self.read(rows.spans))


@dataclass(frozen=True)
class EventPath:
    """A path to something of a span event."""

    read: Callable[[EventTable], Column]
    needs: Needs = EVENT_NEEDS

    def column(self, rows: Rows) -> Column:
        if rows.events is None:
            raise LookupError("there are no events where they are asked for")
        return self.read(rows.events)


Path = SpanPath | EventPath

_KIND_NAMES = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")


def find_path(context: Context, dotted: str, key: str | None) -> Path:
    """What a path leads to; ``LookupError`` says that there is no such path."""
    table, name = _place(context, dotted)
    if name not in table:
        raise LookupError(f"path `{dotted}` is not supported; supported: {', '.join(supported_paths(context))}")
    found = table[name]
    if key is None:
        if isinstance(found, SpanPath | EventPath):
            return found
        if found.whole is None:
            raise LookupError(f'path `{dotted}` needs a key, as in {dotted}["name"]')
        return found.whole
    if isinstance(found, SpanPath | EventPath):
        raise LookupError(f"path `{dotted}` has no keys")
    return found.of_key(key)


def supported_paths(context: Context) -> list[str]:
    """As they are written; those of the span have a prefix if a condition is about events."""
    if context is Context.SPAN:
        return _written(_SPAN) + _written(_AROUND)
    return _written(_EVENT) + [f"span.{path}" for path in _written(_SPAN)] + _written(_AROUND)


@dataclass(frozen=True)
class _Keyed:
    """A path that takes a key; ``whole`` is what it is without one."""

    of_key: Callable[[str], Path]
    whole: Path | None = None


_Table = Mapping[str, Path | _Keyed]


def _place(context: Context, dotted: str) -> tuple[_Table, str]:
    """The table that a path is looked for in, and its name there."""
    prefix, _, rest = dotted.partition(".")
    if dotted in _AROUND:
        return _AROUND, dotted
    if prefix == "span" and rest:
        return _SPAN, rest
    if context is Context.SPAN:
        return _SPAN, dotted
    return _EVENT, rest if prefix == "spanevent" and rest else dotted


def _written(table: _Table) -> list[str]:
    paths = [name for name, found in table.items() if not isinstance(found, _Keyed) or found.whole]
    return paths + [f'{name}["..."]' for name, found in table.items() if isinstance(found, _Keyed)]


def _text(text: Text) -> SpanPath:
    return SpanPath(partial(_read_text, text), Needs(texts=frozenset([text])))


def _read_text(text: Text, spans: SpanTable) -> Column:
    return of_texts(spans.texts[text])


def _trace_state(key: str) -> SpanPath:
    return SpanPath(partial(_read_trace_state, key), Needs(texts=frozenset([Text.TRACE_STATE])))


def _read_trace_state(key: str, spans: SpanTable) -> Column:
    return of_texts(trace_state_values(spans.texts[Text.TRACE_STATE], key))


def _attribute(key: str) -> SpanPath:
    return SpanPath(partial(_read_attribute, key), Needs(span_attributes=frozenset([key])))


def _read_attribute(key: str, spans: SpanTable) -> Column:
    return of_values(spans.attributes[key])


def _resource_attribute(key: str) -> SpanPath:
    return SpanPath(partial(_read_resource_attribute, key), Needs(resource_attributes=frozenset([key])))


def _read_resource_attribute(key: str, spans: SpanTable) -> Column:
    return of_values(spans.resource_attributes[key])


def _event_attribute(key: str) -> EventPath:
    return EventPath(partial(_read_event_attribute, key), Needs(events=True, event_attributes=frozenset([key])))


def _read_event_attribute(key: str, events: EventTable) -> Column:
    return of_values(events.attributes[key])


def _trace_id(spans: SpanTable) -> pa.BinaryArray:
    return octets_of_words(spans.trace_high, spans.trace_low)


def _kind_name(prefix: str, names: tuple[str, ...], spans: SpanTable) -> Column:
    """A kind that has no name has the empty one."""
    written = pa.array([*(prefix + name for name in names), ""])
    return of_texts(written.take(pa.array(np.minimum(spans.kind, len(names)))))


def _duration(spans: SpanTable) -> Column:
    """Nanoseconds from start to end; nil if one of them is not known."""
    known = (spans.start != 0) & (spans.end != 0)
    kinds = np.where(known, ValueKind.INT, ValueKind.ABSENT).astype(np.uint8)
    return Column(kinds, (spans.end - spans.start).view(np.int64))


_SPAN: _Table = {
    "name": _text(Text.NAME),
    "kind": SpanPath(lambda spans: of_integers(spans.kind.astype(np.int64))),
    "kind.string": SpanPath(partial(_kind_name, "", _KIND_NAMES)),
    "kind.deprecated_string": SpanPath(
        partial(_kind_name, "SPAN_KIND_", tuple(name.upper() for name in _KIND_NAMES)),
    ),
    "status.code": SpanPath(lambda spans: of_integers(spans.status.astype(np.int64))),
    "status.message": _text(Text.STATUS_MESSAGE),
    "trace_id": SpanPath(lambda spans: of_octets(_trace_id(spans))),
    "trace_id.string": SpanPath(lambda spans: of_texts(hexadecimal_texts(_trace_id(spans)))),
    "span_id": SpanPath(lambda spans: of_octets(octets_of_words(spans.span_id))),
    "span_id.string": SpanPath(lambda spans: of_texts(hexadecimal_texts(octets_of_words(spans.span_id)))),
    "parent_span_id": SpanPath(lambda spans: of_octets(octets_of_words(spans.parent_id))),
    "parent_span_id.string": SpanPath(lambda spans: of_texts(hexadecimal_texts(octets_of_words(spans.parent_id)))),
    "trace_state": _Keyed(_trace_state, whole=_text(Text.TRACE_STATE)),
    "start_time_unix_nano": SpanPath(lambda spans: of_integers(spans.start.view(np.int64))),
    "end_time_unix_nano": SpanPath(lambda spans: of_integers(spans.end.view(np.int64))),
    "duration": SpanPath(_duration),
    "flags": SpanPath(lambda spans: of_integers(spans.flags.astype(np.int64))),
    "attributes": _Keyed(_attribute),
}
_AROUND: _Table = {
    "resource.attributes": _Keyed(_resource_attribute),
    "instrumentation_scope.name": _text(Text.SCOPE_NAME),
    "instrumentation_scope.version": _text(Text.SCOPE_VERSION),
    "scope.name": _text(Text.SCOPE_NAME),
    "scope.version": _text(Text.SCOPE_VERSION),
}
_EVENT: _Table = {
    "name": EventPath(lambda events: of_texts(events.names)),
    "time_unix_nano": EventPath(lambda events: of_integers(events.times.view(np.int64))),
    "attributes": _Keyed(_event_attribute),
}
