"""Rows of JSON for plain spans, compiled: the same bytes as those of ``SpanRows``, without a message being built.

Most spans are plain: no events and no links, attributes that are text, truth values, or numbers of few digits, each key
once, and no character in a text that JSON escapes or that is beyond ASCII. Of any other span nothing is said here: its
message has to be built.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, borrowing
from penstock.json.arrow_text import arrow_array, copy_bytes, gathered
from penstock.json.documents import documents
from penstock.otlp.compiled_rows.write_json import (
    NOT_PLAIN,
    put_bytes,
    put_hex,
    put_moment,
    put_number,
    put_plain_text,
    put_short_double,
    put_signed,
)
from penstock.otlp.span_columns import last_fields
from penstock.otlp.span_scan import OWNER, Groups, locate_spans
from penstock.otlp.wire import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    read_fixed32,
    read_fixed64,
    read_length,
    read_tag,
    read_varint,
    skip_content,
)

Places = npt.NDArray[np.int64]

_TRACE_ID, _SPAN_ID, _TRACE_STATE, _PARENT_ID, _NAME, _KIND, _START, _END, _ATTRIBUTES = range(1, 10)
_EVENTS, _LINKS, _STATUS, _FLAGS = 11, 13, 15, 16
_DROPPED = (10, 12, 14)
_STATUS_MESSAGE, _STATUS_CODE = 2, 3
_MESSAGE, _CODE = 17, 18
"""Where what the status says is kept, behind the fields of a span."""
_VALUES = 19
_KEY, _VALUE = 1, 2
_NEWEST_KIND, _NEWEST_CODE = 5, 2
_STRING, _BOOL, _INT, _DOUBLE = 1, 2, 3, 4
_MOST_ATTRIBUTES = 128
"""Each key is compared with all before it."""

_OWN_BYTES = 1024
"""More than the names and numbers of a row take."""
_GROWTH = 4
"""A row has fewer bytes than its span so many times, beside those."""
_ABSENT = np.uint64(0)
_POSITIVE = np.uint64(2**63 - 1)


def _bytes(*texts: str) -> tuple[Bytes, ...]:
    return tuple(np.frombuffer(text.encode(), np.uint8) for text in texts)


_TO_TRACE, _TO_SPAN, _TO_PARENT, _TO_NAME, _TO_KIND = _bytes(
    '{"trace_id":"', '","span_id":"', '","parent_span_id":', ',"name":"', '","kind":"'
)
_TO_START, _TO_END, _TO_DURATION, _TO_CODE, _TO_MESSAGE = _bytes(
    '","start_time":', ',"end_time":', ',"duration_ns":', ',"status_code":"', '","status_message":"'
)
_TO_ATTRIBUTES, _TO_STATE, _TO_FLAGS, _TO_START_NANO, _TO_END_NANO = _bytes(
    '","attributes":"{', '}","events":[],"links":[],"trace_state":"', '","flags":', ',"start_time_unix_nano":',
    ',"end_time_unix_nano":',
)  # fmt: skip
_TO_DROPPED_ATTRIBUTES, _TO_DROPPED_EVENTS, _TO_DROPPED_LINKS = _bytes(
    ',"dropped_attributes_count":', ',"dropped_events_count":', ',"dropped_links_count":'
)
_NULL, _TRUE, _FALSE, _QUOTE, _COMMA, _INNER_QUOTE, _TO_VALUE = _bytes("null", "true", "false", '"', ",", '\\"', '\\":')
_UNSPECIFIED, _INTERNAL, _SERVER, _CLIENT, _PRODUCER, _CONSUMER = _bytes(
    "UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"
)
_UNSET, _OK, _ERROR = _bytes("UNSET", "OK", "ERROR")


def plain_rows(
    requests: pa.BinaryArray, shared: Callable[[bytes, bytes], bytes], nanoseconds: bool = False
) -> pa.BinaryArray:
    """The row of the one span that each request has; null if it is not plain. ``shared`` makes of the bytes of a
    resource and of a scope what ``SpanRows.shared`` makes of their messages."""
    docs = documents(requests)
    scanned = locate_spans(docs.buffer, docs.offsets)
    spans, count = scanned.spans, len(requests)
    if not np.array_equal(spans.request, np.arange(count)):
        return pa.nulls(count, pa.binary())
    resources = _owners(docs.buffer, scanned.resources, spans.resource)
    texts, text_of = _shared_texts(resources, _owners(docs.buffer, scanned.scopes, spans.scope), shared)
    text_ends = np.cumsum([0, *map(len, texts)])
    most = _GROWTH * (spans.end - spans.begin) + np.diff(text_ends)[text_of] + _OWN_BYTES
    # What is not used of it takes no memory.
    out, ends = np.empty(int(most.sum()), np.uint8), np.zeros(count + 1, np.int64)
    _write_rows(
        docs.buffer, spans.begin, spans.end, np.frombuffer(b"".join(texts), np.uint8), text_ends, text_of, nanoseconds,
        np.empty((_VALUES, 2), np.int64), np.empty((_MOST_ATTRIBUTES, 2), np.int64), scanned.doubled, out, ends,
    )  # fmt: skip
    return arrow_array(pa.binary(), out[: ends[-1]], ends, np.diff(ends) > 0)


def _owners(buf: Bytes, groups: Groups, of: Places) -> pa.DictionaryArray:
    """The resource, or the scope, of each span."""
    begin, end = last_fields(buf, groups.begin, groups.end, OWNER)
    return gathered(buf, begin[of], (end - begin)[of]).dictionary_encode()


def _shared_texts(
    resources: pa.DictionaryArray, scopes: pa.DictionaryArray, shared: Callable[[bytes, bytes], bytes]
) -> tuple[list[bytes], Places]:
    """What the rows of each resource and scope have in common, and which of it those of each span have."""
    pairs = resources.indices.to_numpy().astype(np.int64) * len(scopes.dictionary) + scopes.indices.to_numpy()
    different, of = np.unique(pairs, return_inverse=True)
    named, scoped = resources.dictionary.to_pylist(), scopes.dictionary.to_pylist()
    return [shared(named[pair // len(scoped)], scoped[pair % len(scoped)]) for pair in different.tolist()], of


@borrowing
def _write_rows(
    buf: Bytes, begin: Places, end: Places, texts: Bytes, text_ends: Places, text_of: Places, nanoseconds: bool,
    values: Places, keys: Places, doubled: npt.NDArray[np.bool_], out: Bytes, ends: Places,
) -> None:  # fmt: skip
    for row in range(len(begin)):
        ends[row + 1] = ends[row]
        if doubled[row] or not _read_span(buf, begin[row], end[row], values):
            continue
        to = _write_row(buf, begin[row], end[row], nanoseconds, values, keys, out, ends[row])
        if to >= 0:
            text = text_of[row]
            ends[row + 1] = copy_bytes(texts, text_ends[text], text_ends[text + 1], out, put_bytes(out, to, _COMMA))


@borrowing
def _read_span(buf: Bytes, at: int, end: int, values: Places) -> bool:
    """Find the fields of a span, of each the last one: where its bytes are, or its number. Whether it may be plain."""
    values[:] = 0
    while at < end:
        field, kind, at = read_tag(buf, at, end)
        if at < 0 or field == _EVENTS or field == _LINKS or (field == _STATUS and values[_STATUS, 1] > 0):
            return False
        first = at
        if kind == DELIMITED:
            first, at = read_length(buf, at, end)
        else:
            at = skip_content(buf, at, end, kind)
        if at < 0:
            return False
        if field == _ATTRIBUTES or field > _FLAGS:
            continue
        if kind != _kind_of(field):
            return False
        if kind == DELIMITED:
            values[field, 0], values[field, 1] = first, at
            if field == _STATUS and not _read_status(buf, first, at, values):
                return False
        elif kind == FIXED64:
            values[field, 0] = np.int64(read_fixed64(buf, first))
        elif kind == FIXED32:
            values[field, 0] = np.int64(read_fixed32(buf, first))
        else:
            values[field, 0] = np.int64(read_varint(buf, first, at)[0] & np.uint64(0xFFFFFFFF))
    return bool(values[_KIND, 0] <= _NEWEST_KIND and values[_CODE, 0] <= _NEWEST_CODE)


@borrowing
def _kind_of(field: int) -> int:
    """How a field is written that has a place in a row."""
    if field == _START or field == _END:
        return FIXED64
    if field == _FLAGS:
        return FIXED32
    return VARINT if field == _KIND or field in _DROPPED else DELIMITED


@borrowing
def _read_status(buf: Bytes, at: int, end: int, values: Places) -> bool:
    while at < end:
        field, kind, at = read_tag(buf, at, end)
        if at < 0:
            return False
        if field == _STATUS_MESSAGE and kind == DELIMITED:
            values[_MESSAGE, 0], at = read_length(buf, at, end)
            values[_MESSAGE, 1] = at
        elif field == _STATUS_CODE and kind == VARINT:
            code, at = read_varint(buf, at, end)
            values[_CODE, 0] = np.int64(code & np.uint64(0xFFFFFFFF))
        else:
            return False
        if at < 0:
            return False
    return True


@borrowing
def _write_row(
    buf: Bytes, at: int, end: int, nanoseconds: bool, values: Places, keys: Places, out: Bytes, to: int
) -> int:
    """All of a row but what it shares with others."""
    start, stop = np.uint64(values[_START, 0]), np.uint64(values[_END, 0])
    to = put_bytes(out, to, _TO_TRACE)
    to = put_hex(out, to, buf, values[_TRACE_ID, 0], values[_TRACE_ID, 1])
    to = put_bytes(out, to, _TO_SPAN)
    to = put_hex(out, to, buf, values[_SPAN_ID, 0], values[_SPAN_ID, 1])
    to = put_bytes(out, to, _TO_PARENT)
    if values[_PARENT_ID, 1] > values[_PARENT_ID, 0]:
        to = put_bytes(out, to, _QUOTE)
        to = put_hex(out, to, buf, values[_PARENT_ID, 0], values[_PARENT_ID, 1])
        to = put_bytes(out, to, _QUOTE)
    else:
        to = put_bytes(out, to, _NULL)
    to = put_bytes(out, to, _TO_NAME)
    to = put_plain_text(out, to, buf, values[_NAME, 0], values[_NAME, 1])
    if to < 0:
        return NOT_PLAIN
    to = put_bytes(out, to, _TO_KIND)
    to = _put_kind(out, to, values[_KIND, 0])
    to = _put_time(out, put_bytes(out, to, _TO_START), start, nanoseconds)
    to = _put_time(out, put_bytes(out, to, _TO_END), stop, nanoseconds)
    to = put_bytes(out, to, _TO_DURATION)
    if start == _ABSENT or stop == _ABSENT:
        to = put_bytes(out, to, _NULL)
    elif start <= _POSITIVE and stop <= _POSITIVE:
        to = put_signed(out, to, values[_END, 0] - values[_START, 0])
    else:
        return NOT_PLAIN
    to = put_bytes(out, to, _TO_CODE)
    code = values[_CODE, 0]
    to = put_bytes(out, to, _OK) if code == 1 else put_bytes(out, to, _ERROR if code == 2 else _UNSET)
    to = put_bytes(out, to, _TO_MESSAGE)
    to = put_plain_text(out, to, buf, values[_MESSAGE, 0], values[_MESSAGE, 1])
    if to < 0:
        return NOT_PLAIN
    to = _put_attributes(out, put_bytes(out, to, _TO_ATTRIBUTES), buf, at, end, keys)
    if to < 0:
        return NOT_PLAIN
    to = put_bytes(out, to, _TO_STATE)
    to = put_plain_text(out, to, buf, values[_TRACE_STATE, 0], values[_TRACE_STATE, 1])
    if to < 0:
        return NOT_PLAIN
    to = put_signed(out, put_bytes(out, to, _TO_FLAGS), values[_FLAGS, 0])
    to = _put_count(out, put_bytes(out, to, _TO_START_NANO), start)
    to = _put_count(out, put_bytes(out, to, _TO_END_NANO), stop)
    if values[_DROPPED[0], 0] > 0:
        to = put_signed(out, put_bytes(out, to, _TO_DROPPED_ATTRIBUTES), values[_DROPPED[0], 0])
    if values[_DROPPED[1], 0] > 0:
        to = put_signed(out, put_bytes(out, to, _TO_DROPPED_EVENTS), values[_DROPPED[1], 0])
    if values[_DROPPED[2], 0] > 0:
        to = put_signed(out, put_bytes(out, to, _TO_DROPPED_LINKS), values[_DROPPED[2], 0])
    return to


@borrowing
def _put_kind(out: Bytes, to: int, kind: int) -> int:
    if kind == 1:
        return put_bytes(out, to, _INTERNAL)
    if kind == 2:
        return put_bytes(out, to, _SERVER)
    if kind == 3:
        return put_bytes(out, to, _CLIENT)
    if kind == 4:
        return put_bytes(out, to, _PRODUCER)
    return put_bytes(out, to, _CONSUMER if kind == 5 else _UNSPECIFIED)


@borrowing
def _put_time(out: Bytes, to: int, nanos: np.uint64, nanoseconds: bool) -> int:
    if nanos == _ABSENT:
        return put_bytes(out, to, _NULL)
    to = put_moment(out, put_bytes(out, to, _QUOTE), nanos, nanoseconds)
    return put_bytes(out, to, _QUOTE)


@borrowing
def _put_count(out: Bytes, to: int, count: np.uint64) -> int:
    return put_bytes(out, to, _NULL) if count == _ABSENT else put_number(out, to, count)


@borrowing
def _put_attributes(out: Bytes, to: int, buf: Bytes, at: int, end: int, keys: Places) -> int:
    """The members of the object of attributes, which is in a string. ``keys`` has room for where theirs are."""
    count = 0
    while at < end:
        field, kind, at = read_tag(buf, at, end)
        if field != _ATTRIBUTES or kind != DELIMITED:
            at = skip_content(buf, at, end, kind)
            continue
        first, at = read_length(buf, at, end)
        if count == len(keys):
            return NOT_PLAIN
        to = _put_attribute(out, put_bytes(out, to, _COMMA) if count else to, buf, first, at, keys, count)
        if to < 0:
            return NOT_PLAIN
        count += 1
    return to


@borrowing
def _put_attribute(out: Bytes, to: int, buf: Bytes, at: int, end: int, keys: Places, count: int) -> int:
    key, key_end, value, value_end = at, at, -1, -1
    while at < end:
        field, kind, at = read_tag(buf, at, end)
        if at < 0 or kind != DELIMITED or (field == _KEY and key_end > key) or (field == _VALUE and value >= 0):
            return NOT_PLAIN
        first, at = read_length(buf, at, end)
        if at < 0:
            return NOT_PLAIN
        if field == _KEY:
            key, key_end = first, at
        elif field == _VALUE:
            value, value_end = first, at
        else:
            return NOT_PLAIN
    for before in range(count):
        if _is_same(buf, keys[before, 0], keys[before, 1], key, key_end):
            return NOT_PLAIN
    keys[count, 0], keys[count, 1] = key, key_end
    to = put_plain_text(out, put_bytes(out, to, _INNER_QUOTE), buf, key, key_end)
    if to < 0:
        return NOT_PLAIN
    return _put_value(out, put_bytes(out, to, _TO_VALUE), buf, value, value_end)


@borrowing
def _put_value(out: Bytes, to: int, buf: Bytes, at: int, end: int) -> int:
    if at >= end:
        return put_bytes(out, to, _NULL)
    field, kind, at = read_tag(buf, at, end)
    if at < 0:
        return NOT_PLAIN
    if field == _STRING and kind == DELIMITED:
        first, behind = read_length(buf, at, end)
        if behind != end:
            return NOT_PLAIN
        to = put_plain_text(out, put_bytes(out, to, _INNER_QUOTE), buf, first, end)
        return NOT_PLAIN if to < 0 else put_bytes(out, to, _INNER_QUOTE)
    if field == _DOUBLE and kind == FIXED64 and at + 8 == end:
        return put_short_double(out, to, np.uint64(read_fixed64(buf, at)).view(np.float64))
    if kind != VARINT or (field != _INT and field != _BOOL):
        return NOT_PLAIN
    number, behind = read_varint(buf, at, end)
    if behind != end:
        return NOT_PLAIN
    if field == _INT:
        return put_signed(out, to, np.int64(number))  # type: ignore[arg-type]
    return put_bytes(out, to, _TRUE) if number != _ABSENT else put_bytes(out, to, _FALSE)


@borrowing
def _is_same(buf: Bytes, one: int, one_end: int, other: int, other_end: int) -> bool:
    if one_end - one != other_end - other:
        return False
    for place in range(one_end - one):
        if buf[one + place] != buf[other + place]:
            return False
    return True
