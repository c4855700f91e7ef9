"""Cuts spans out of their requests: each becomes a request of its own, with its resource and scope, byte for byte.

All that a group holds beside its spans comes along, also fields that nobody knows. Bytes may be added to a span:
protobuf takes a field that is put behind the others for one more of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, borrowing
from penstock.json.arrow_text import arrow_array, copy_bytes
from penstock.otlp.span_scan import REQUEST_GROUPS, SCOPE_SPANS, SPANS, Groups, ScannedRequests, Spans
from penstock.otlp.wire import DELIMITED, read_tag, skip_content, varint_size, write_varint

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Additions(NamedTuple):
    """For each span that is cut out, bytes that are put behind its own: places in a buffer of their own."""

    text: Bytes
    begin: Places
    end: Places


class _Beside(NamedTuple):
    """What groups hold beside the spans, or groups, in them: places in a buffer of their own."""

    text: Bytes
    ends: Places
    """Where that of each group ends, and before it that of the one before."""


def cut_spans(buf: Bytes, scanned: ScannedRequests, rows: Places, additions: Additions) -> pa.BinaryArray:
    """The spans of these rows of the scan, each as a request."""
    spans = scanned.spans
    resources = _beside(buf, scanned.resources, spans.resource[rows], SCOPE_SPANS)
    scopes = _beside(buf, scanned.scopes, spans.scope[rows], SPANS)
    sizes = np.empty((len(rows), 4), np.int64)
    _measure(spans, resources, scopes, rows, additions, sizes)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[:, 0])])
    out = np.empty(offsets[-1], np.uint8)
    _cut(buf, spans, resources, scopes, rows, additions, sizes, offsets, out)
    return arrow_array(pa.binary(), out, offsets)


def _beside(buf: Bytes, groups: Groups, used: Places, left_out: int) -> _Beside:
    """Of the groups that are used; a group may hold many spans, and is walked twice, however many of them are cut."""
    wanted = np.zeros(len(groups.begin), np.bool_)
    wanted[used] = True
    ends = np.zeros(len(wanted) + 1, np.int64)
    _measure_beside(buf, groups, wanted, left_out, ends)
    np.cumsum(ends, out=ends)
    beside = _Beside(np.empty(ends[-1], np.uint8), ends)
    _copy_beside(buf, groups, wanted, left_out, beside)
    return beside


@borrowing
def _measure_beside(buf: Bytes, groups: Groups, wanted: Flags, left_out: int, sizes: Places) -> None:
    """Writes the size of that of each group one place later."""
    for group in range(len(wanted)):
        at, end = groups.begin[group], groups.end[group]
        while wanted[group] and at < end:
            begin = at
            field, kind, at = read_tag(buf, at, end)
            at = skip_content(buf, at, end, kind)
            if field != left_out or kind != DELIMITED:
                sizes[group + 1] += at - begin


@borrowing
def _copy_beside(buf: Bytes, groups: Groups, wanted: Flags, left_out: int, beside: _Beside) -> None:
    for group in range(len(wanted)):
        at, end, to = groups.begin[group], groups.end[group], beside.ends[group]
        while wanted[group] and at < end:
            begin = at
            field, kind, at = read_tag(buf, at, end)
            at = skip_content(buf, at, end, kind)
            if field != left_out or kind != DELIMITED:
                to = copy_bytes(buf, begin, at, beside.text, to)


@borrowing
def _measure(
    spans: Spans, resources: _Beside, scopes: _Beside, rows: Places, additions: Additions, sizes: Places
) -> None:
    """Per span the bytes of the request, of the group of its resource, of that of its scope, and of the span."""
    for place in range(len(rows)):
        row = rows[place]
        r, s = spans.resource[row], spans.scope[row]
        span = spans.end[row] - spans.begin[row] + additions.end[place] - additions.begin[place]
        scope = scopes.ends[s + 1] - scopes.ends[s] + 1 + varint_size(span) + span
        resource = resources.ends[r + 1] - resources.ends[r] + 1 + varint_size(scope) + scope
        sizes[place, 0] = 1 + varint_size(resource) + resource
        sizes[place, 1] = resource
        sizes[place, 2] = scope
        sizes[place, 3] = span


@borrowing
def _cut(
    buf: Bytes, spans: Spans, resources: _Beside, scopes: _Beside, rows: Places, additions: Additions, sizes: Places,
    offsets: Places, out: Bytes,
) -> None:  # fmt: skip
    for place in range(len(rows)):
        row = rows[place]
        r, s, at = spans.resource[row], spans.scope[row], offsets[place]
        at = _open(out, at, REQUEST_GROUPS, sizes[place, 1])
        at = copy_bytes(resources.text, resources.ends[r], resources.ends[r + 1], out, at)
        at = _open(out, at, SCOPE_SPANS, sizes[place, 2])
        at = copy_bytes(scopes.text, scopes.ends[s], scopes.ends[s + 1], out, at)
        at = _open(out, at, SPANS, sizes[place, 3])
        at = copy_bytes(buf, spans.begin[row], spans.end[row], out, at)
        copy_bytes(additions.text, additions.begin[place], additions.end[place], out, at)


@borrowing
def _open(out: Bytes, at: int, field: int, size: int) -> int:
    """Write what stands before a delimited content."""
    out[at] = field << 3 | DELIMITED
    return write_varint(out, at + 1, size)
