"""Makes the table of spans that conditions look at, from what a scan has found."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, borrowing
from penstock.otlp.attributes import (
    EVENT_ATTRIBUTES,
    RESOURCE_ATTRIBUTES,
    SPAN_ATTRIBUTES,
    find_attributes,
    take_texts,
)
from penstock.otlp.span_scan import OWNER, ScannedRequests, next_delimited
from penstock.otlp.span_table import EventTable, Needs, SpanTable, Text, Values
from penstock.otlp.wire import FIXED64, read_fixed64, read_tag, skip_content

Places = npt.NDArray[np.int64]

TRACE_STATE, NAME, EVENTS, STATUS = 3, 5, 11, 15
STATUS_MESSAGE = 2
SCOPE_NAME, SCOPE_VERSION = 1, 2
EVENT_TIME, EVENT_NAME = 1, 2


def span_table(buf: Bytes, scanned: ScannedRequests, needs: Needs) -> SpanTable:
    """One row per span of the scan."""
    spans = scanned.spans
    return SpanTable(
        spans.trace_high,
        spans.trace_low,
        spans.span_id,
        spans.parent_id,
        spans.start_time,
        spans.end_time,
        spans.kind,
        spans.status,
        spans.flags,
        {text: _texts(buf, scanned, text) for text in needs.texts},
        _span_attributes(buf, scanned, needs.span_attributes),
        _resource_attributes(buf, scanned, needs.resource_attributes),
        _events(buf, scanned, needs.event_attributes) if needs.events or needs.event_attributes else None,
    )


def _attributes(buf: Bytes, begin: Places, end: Places, field: int, keys: Collection[str]) -> dict[str, Values]:
    ordered = sorted(keys)
    return dict(zip(ordered, find_attributes(buf, begin, end, field, ordered), strict=True)) if ordered else {}


def _span_attributes(buf: Bytes, scanned: ScannedRequests, keys: Collection[str]) -> dict[str, Values]:
    """Those that the scan was asked for are there already."""
    there = {key: values for key, values in scanned.attributes.items() if key in keys}
    others = [key for key in keys if key not in there]
    return there | _attributes(buf, scanned.spans.begin, scanned.spans.end, SPAN_ATTRIBUTES, others)


def _resource_attributes(buf: Bytes, scanned: ScannedRequests, keys: Collection[str]) -> dict[str, Values]:
    if not keys:
        return {}
    begin, end = last_fields(buf, scanned.resources.begin, scanned.resources.end, OWNER)
    found = _attributes(buf, begin, end, RESOURCE_ATTRIBUTES, keys)
    return {key: _taken(values, scanned.spans.resource) for key, values in found.items()}


def _taken(values: Values, rows: Places) -> Values:
    if not values.kind.any():
        # As nearly always for those by which samplers talk to each other.
        nothing = np.zeros(len(rows), np.int64)
        return Values(nothing.astype(np.uint8), nothing, nothing.view(np.float64), pa.nulls(len(rows), pa.string()))
    return Values(values.kind[rows], values.integers[rows], values.doubles[rows], values.texts.take(pa.array(rows)))


def _texts(buf: Bytes, scanned: ScannedRequests, text: Text) -> pa.StringArray:
    spans = scanned.spans
    if text in (Text.SCOPE_NAME, Text.SCOPE_VERSION):
        begin, end = last_fields(buf, scanned.scopes.begin, scanned.scopes.end, OWNER)
        begin, end = last_fields(buf, begin, end, SCOPE_NAME if text is Text.SCOPE_NAME else SCOPE_VERSION)
        return take_texts(buf, begin, end).take(pa.array(spans.scope))
    if text is Text.STATUS_MESSAGE:
        begin, end = last_fields(buf, spans.begin, spans.end, STATUS)
        return take_texts(buf, *last_fields(buf, begin, end, STATUS_MESSAGE))
    return take_texts(buf, *last_fields(buf, spans.begin, spans.end, NAME if text is Text.NAME else TRACE_STATE))


def _events(buf: Bytes, scanned: ScannedRequests, keys: Collection[str]) -> EventTable:
    spans = scanned.spans
    counts = np.zeros(len(spans.begin), np.int64)
    _count_fields(buf, spans.begin, spans.end, EVENTS, counts)
    begin, end = np.empty(counts.sum(), np.int64), np.empty(counts.sum(), np.int64)
    _list_fields(buf, spans.begin, spans.end, EVENTS, begin, end)
    times = np.zeros(len(begin), np.uint64)
    _read_times(buf, begin, end, times)
    names = take_texts(buf, *last_fields(buf, begin, end, EVENT_NAME))
    attributes = _attributes(buf, begin, end, EVENT_ATTRIBUTES, keys)
    return EventTable(np.repeat(np.arange(len(counts)), counts), times, names, attributes)


def last_fields(buf: Bytes, begin: Places, end: Places, wanted: int) -> tuple[Places, Places]:
    """Where in each message the last delimited field of this number is; an empty place if there is none."""
    first, behind = np.zeros(len(begin), np.int64), np.zeros(len(begin), np.int64)
    _find_last_fields(buf, begin, end, wanted, first, behind)
    return first, behind


@borrowing
def _find_last_fields(buf: Bytes, begin: Places, end: Places, wanted: int, first: Places, behind: Places) -> None:
    for row in range(len(begin)):
        at = begin[row]
        while True:
            found, at = next_delimited(buf, at, end[row], wanted)
            if found < 0:
                break
            first[row], behind[row] = found, at


@borrowing
def _count_fields(buf: Bytes, begin: Places, end: Places, wanted: int, counts: Places) -> None:
    for row in range(len(begin)):
        found, at = next_delimited(buf, begin[row], end[row], wanted)
        while found >= 0:
            counts[row] += 1
            found, at = next_delimited(buf, at, end[row], wanted)


@borrowing
def _list_fields(buf: Bytes, begin: Places, end: Places, wanted: int, first: Places, behind: Places) -> None:
    count = 0
    for row in range(len(begin)):
        found, at = next_delimited(buf, begin[row], end[row], wanted)
        while found >= 0:
            first[count], behind[count] = found, at
            count += 1
            found, at = next_delimited(buf, at, end[row], wanted)


@borrowing
def _read_times(buf: Bytes, begin: Places, end: Places, times: npt.NDArray[np.uint64]) -> None:
    for row in range(len(begin)):
        at = begin[row]
        while at < end[row]:
            field, kind, at = read_tag(buf, at, end[row])
            if at < 0:
                break
            if field == EVENT_TIME and kind == FIXED64 and at + 8 <= end[row]:
                times[row] = read_fixed64(buf, at)
            at = skip_content(buf, at, end[row], kind)
            if at < 0:
                break
