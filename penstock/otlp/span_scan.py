"""Finds the spans in trace requests: where each one is, its ids, times and status, without building messages.

All requests of a batch lie in one buffer. Whatever they hold, nothing outside of them is read; a request that is no
message is told apart, and gives no spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, borrowing
from penstock.otlp.attributes import (
    SPAN_ATTRIBUTES,
    Found,
    Keys,
    found_values,
    nothing_found,
    take_attribute,
    take_short_attribute,
    wanted_keys,
)
from penstock.otlp.span_table import Values
from penstock.otlp.wire import (
    BROKEN,
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    read_fixed32,
    read_fixed64,
    read_length,
    read_varint,
    read_whole_tag,
    skip_content,
)

Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

REQUEST_GROUPS, SCOPE_SPANS, SPANS = 1, 2, 2
"""The fields of the groups of a resource in a request, of the groups of a scope in those, and of the spans in these."""
OWNER = 1
"""The field of the resource, and of the scope, in their groups."""
NO_MORE = -2

_OWNER = OWNER << 3 | DELIMITED
_ATTRIBUTE = SPAN_ATTRIBUTES << 3 | DELIMITED
_TRACE_ID, _SPAN_ID, _PARENT_ID = (field << 3 | DELIMITED for field in (1, 2, 4))
_START, _END = (field << 3 | FIXED64 for field in (7, 8))
_KIND = 6 << 3 | VARINT
_STATUS = 15 << 3 | DELIMITED
_FLAGS = 16 << 3 | FIXED32
_STATUS_CODE = 3 << 3 | VARINT
"""Tags: number and wire type of each field."""
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8


class Spans(NamedTuple):
    """One row per span, in the order of the requests and of the spans in each."""

    request: Places
    """Which request it is in."""
    number: Places
    """Its place in its request, from 1 on."""
    begin: Places
    """Where its bytes are in the buffer."""
    end: Places
    resource: Places
    """Which group of a resource it is in."""
    scope: Places
    trace_high: Words
    trace_low: Words
    span_id: Words
    parent_id: Words
    start_time: Words
    end_time: Words
    kind: npt.NDArray[np.uint8]
    status: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint32]
    well_named: Flags
    """Whether its ids are ids: 16 and 8 bytes, not all zero."""


class Groups(NamedTuple):
    """Where the groups of spans are in the buffer: those of a resource, and in them those of a scope."""

    begin: Places
    end: Places


class ScannedRequests(NamedTuple):
    spans: Spans
    resources: Groups
    scopes: Groups
    broken: Flags
    """Which requests are no messages."""
    doubled: Flags
    """Which requests have a resource or a scope in several pieces, as protobuf allows: not all of it was looked at."""
    attributes: Mapping[str, Values]
    """Those of the spans that were asked for: one value per span."""


def scan_requests(buf: Bytes, offsets: Places, keys: Sequence[str] = ()) -> ScannedRequests:
    """``offsets``: where each request begins, and the end of the last one. ``keys``: attributes of spans that are
    wanted."""
    return _scan(buf, offsets, keys, into_spans=True)


def locate_spans(buf: Bytes, offsets: Places) -> ScannedRequests:
    """Only where spans and groups are; all else of the spans is 0. Requests are broken only if that cannot be told."""
    return _scan(buf, offsets, (), into_spans=False)


def _scan(buf: Bytes, offsets: Places, keys: Sequence[str], into_spans: bool) -> ScannedRequests:
    counts = np.zeros(3, np.int64)
    broken, doubled = np.zeros(len(offsets) - 1, np.bool_), np.zeros(len(offsets) - 1, np.bool_)
    _count(buf, offsets, counts, broken, doubled)
    resources, scopes = (Groups(np.empty(m, np.int64), np.empty(m, np.int64)) for m in counts[:2].tolist())
    spans = _no_spans(int(counts[2]))
    found = nothing_found(len(keys), len(spans.begin))
    broken_before = int(broken.sum())
    _fill(buf, offsets, broken, spans, resources, scopes, into_spans, wanted_keys(keys), found)
    for big_endian in (spans.trace_high, spans.trace_low, spans.span_id, spans.parent_id):
        big_endian.byteswap(inplace=True)
    if int(broken.sum()) > broken_before:
        whole = ~broken[spans.request]
        spans = Spans._make(column[whole] for column in spans)
        found = Found._make(column[:, whole] for column in found)
    attributes = dict(zip(keys, found_values(buf, found), strict=True))
    return ScannedRequests(spans, resources, scopes, broken, doubled, attributes)


def _no_spans(count: int) -> Spans:
    places = (np.empty(count, np.int64) for _ in range(6))
    words = (np.zeros(count, np.uint64) for _ in range(6))
    others = (np.zeros(count, kind) for kind in (np.uint8, np.uint8, np.uint32, np.bool_))
    return Spans._make([*places, *words, *others])


@borrowing
def next_delimited(buf: Bytes, at: int, end: int, wanted: int) -> tuple[int, int]:
    """The content of the next delimited field of this number: its first byte, and the place behind it. The first byte
    is ``NO_MORE`` if there is none, ``BROKEN`` if this is no message."""
    wanted_tag = wanted << 3 | DELIMITED
    while at < end:
        tag, at = read_whole_tag(buf, at, end)
        if at < 0:
            return BROKEN, BROKEN
        if tag == wanted_tag:
            first, behind = read_length(buf, at, end)
            return (first, behind) if behind >= 0 else (BROKEN, BROKEN)
        at = skip_content(buf, at, end, tag & 7)
        if at < 0:
            return BROKEN, BROKEN
    return NO_MORE, end


@borrowing
def _count(buf: Bytes, offsets: Places, counts: Places, broken: Flags, doubled: Flags) -> None:
    """Counts groups of resources, groups of scopes and spans of all requests that are not broken so far."""
    for request in range(len(offsets) - 1):
        resources, scopes, spans = 0, 0, 0
        at, end = offsets[request], offsets[request + 1]
        resource, at = next_delimited(buf, at, end, REQUEST_GROUPS)
        while resource >= 0:
            resources += 1
            owners, found = _count_fields(buf, resource, at, SCOPE_SPANS)
            broken[request] |= found < 0
            doubled[request] |= owners > 1
            scope, scope_at = next_delimited(buf, resource, at, SCOPE_SPANS)
            while scope >= 0:
                scopes += 1
                owners, found = _count_fields(buf, scope, scope_at, SPANS)
                broken[request] |= found < 0
                doubled[request] |= owners > 1
                spans += found
                scope, scope_at = next_delimited(buf, scope_at, at, SCOPE_SPANS)
            resource, at = next_delimited(buf, at, end, REQUEST_GROUPS)
        broken[request] |= resource == BROKEN
        if not broken[request]:
            counts[0] += resources
            counts[1] += scopes
            counts[2] += spans


@borrowing
def _count_fields(buf: Bytes, at: int, end: int, wanted: int) -> tuple[int, int]:
    """How many owners a group has, and how many delimited fields of this number; ``BROKEN`` if it is no message."""
    owners, found = 0, 0
    wanted_tag = wanted << 3 | DELIMITED
    while at < end:
        tag, at = read_whole_tag(buf, at, end)
        if at < 0:
            return owners, BROKEN
        owners += tag == _OWNER
        found += tag == wanted_tag
        at = skip_content(buf, at, end, tag & 7)
        if at < 0:
            return owners, BROKEN
    return owners, found


@borrowing
def _fill(
    buf: Bytes, offsets: Places, broken: Flags, spans: Spans, resources: Groups, scopes: Groups,
    into_spans: bool, keys: Keys, found: Found,
) -> None:  # fmt: skip
    """Walks as ``_count`` does. Requests whose spans turn out to be no messages are marked as broken."""
    r, s, row = -1, -1, -1
    for request in range(len(offsets) - 1):
        if broken[request]:
            continue
        number = 0
        at, end = offsets[request], offsets[request + 1]
        resource, at = next_delimited(buf, at, end, REQUEST_GROUPS)
        while resource >= 0:
            r += 1
            resources.begin[r], resources.end[r] = resource, at
            scope, scope_at = next_delimited(buf, resource, at, SCOPE_SPANS)
            while scope >= 0:
                s += 1
                scopes.begin[s], scopes.end[s] = scope, scope_at
                span, span_at = next_delimited(buf, scope, scope_at, SPANS)
                while span >= 0:
                    row += 1
                    number += 1
                    spans.request[row], spans.number[row] = request, number
                    spans.begin[row], spans.end[row] = span, span_at
                    spans.resource[row], spans.scope[row] = r, s
                    if into_spans and not _read_span(buf, span, span_at, spans, row, keys, found):
                        broken[request] = True
                    span, span_at = next_delimited(buf, span_at, scope_at, SPANS)
                scope, scope_at = next_delimited(buf, scope_at, at, SCOPE_SPANS)
            resource, at = next_delimited(buf, at, end, REQUEST_GROUPS)


@borrowing
def _read_span(buf: Bytes, at: int, end: int, spans: Spans, row: int, keys: Keys, found: Found) -> bool:
    """Whether it is a message. Of a field that is there twice, the last counts. Ids are read as little-endian words."""
    trace_bytes, span_bytes = 0, 0
    while at < end:
        if at + 8 <= end:
            # Most fields of a span are short attributes.
            behind = take_short_attribute(buf, at, end, _ATTRIBUTE, keys, found, row)
            if behind >= 0:
                at = behind
                continue
        tag, at = read_whole_tag(buf, at, end)
        if at < 0:
            return False
        first = at
        if tag & 7 == DELIMITED:
            first, at = read_length(buf, at, end)
        else:
            at = skip_content(buf, at, end, tag & 7)
        if at < 0:
            return False
        if tag == _ATTRIBUTE:
            take_attribute(buf, first, at, keys, found, row)
        elif tag == _TRACE_ID:
            trace_bytes = at - first
            if trace_bytes == TRACE_ID_BYTES:
                spans.trace_high[row] = read_fixed64(buf, first)
                spans.trace_low[row] = read_fixed64(buf, first + 8)
        elif tag == _SPAN_ID:
            span_bytes = at - first
            if span_bytes == SPAN_ID_BYTES:
                spans.span_id[row] = read_fixed64(buf, first)
        elif tag == _PARENT_ID:
            # One of another length is no parent that could be found.
            spans.parent_id[row] = read_fixed64(buf, first) if at - first == SPAN_ID_BYTES else np.uint64(0)
        elif tag == _START:
            spans.start_time[row] = read_fixed64(buf, first)
        elif tag == _END:
            spans.end_time[row] = read_fixed64(buf, first)
        elif tag == _KIND:
            spans.kind[row] = min(read_varint(buf, first, end)[0], np.uint64(255))
        elif tag == _STATUS:
            code = _status_code(buf, first, at)
            if code < 0:
                return False
            if code > 0:
                spans.status[row] = min(code, 255)
        elif tag == _FLAGS:
            spans.flags[row] = read_fixed32(buf, first)
    spans.well_named[row] = (
        trace_bytes == TRACE_ID_BYTES
        and (spans.trace_high[row] | spans.trace_low[row]) != 0
        and span_bytes == SPAN_ID_BYTES
        and spans.span_id[row] != 0
    )
    return True


@borrowing
def _status_code(buf: Bytes, at: int, end: int) -> int:
    code = 0
    while at < end:
        tag, at = read_whole_tag(buf, at, end)
        if at < 0:
            return BROKEN
        if tag == _STATUS_CODE:
            # As an enumeration of protobuf has 32 bits; a negative one is as good as unknown.
            code = np.int64(read_varint(buf, at, end)[0] & np.uint64(0x7FFFFFFF))  # type: ignore[assignment]
        at = skip_content(buf, at, end, tag & 7)
        if at < 0:
            return BROKEN
    return code
