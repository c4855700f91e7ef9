"""Made-up OTLP trace requests of an exact size, all different, with about as much repetition in them as real ones.

All spans of a request have the same fields in the same places, so a request is made once as a message; what differs
is then written over its bytes, for many requests at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import PROTOBUF
from penstock.record import ENTRY_SCHEMA, Header

SPANS_PER_REQUEST = 100
SPANS_PER_TRACE = 10
SERVICES = (b"checkout", b"payments", b"shipping", b"frontend", b"products", b"currency", b"customer", b"delivery")
"""Names of the same length."""
UNAVAILABLE = 503
"""The status that few spans have; the others have 200."""

_MILLISECOND = 1_000_000
_BEGIN = 1_750_000_000_000 * _MILLISECOND
_SERVICE = b"~service"
_TRACE, _SPAN, _PARENT = b"\xf1" * 16, b"\xf2" * 8, b"\xf3" * 8
_START, _END = 0xF4F4F4F4F4F4F4F4, 0xF5F5F5F5F5F5F5F5
_RANDOM = {name: b"~" + name[:1] * (size - 1) for name, size in ((b"user", 16), (b"request", 32), (b"path", 12))}
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shares:
    """How many of the spans are of the rare kinds that policies ask for."""

    failed: float = 0.0003
    unavailable: float = 0.0003
    very_slow: float = 0.0003
    """Six seconds long."""
    slow: float = 0.0002
    """Two seconds long."""


FEW = Shares()


def span_bytes() -> int:
    """The size of a span, with its tag and length."""
    return _template(False).span_bytes


def spread_traces(first: int, count: int, at_once: int, rng: np.random.Generator) -> Numbers:
    """The traces of so many spans, from the span ``first`` on. Of each trace come about ``SPANS_PER_TRACE``, while
    ``at_once`` younger ones begin."""
    newest = np.arange(first, first + count) // SPANS_PER_TRACE + at_once
    return newest - rng.integers(0, at_once, count)


def requests(traces: Numbers, rng: np.random.Generator, shares: Shares = FEW, small: bool = False) -> Bytes:
    """Requests, one per row, whose spans are of these traces: of about 500 bytes each with 12 attributes, or
    ``small`` with neither attributes nor names."""
    template = _template(small)
    count = len(traces) // SPANS_PER_REQUEST
    made = np.tile(template.text, (count, 1))
    services = rng.integers(0, len(SERVICES), count)
    made[:, template.service : template.service + len(_SERVICE)] = np.array([list(name) for name in SERVICES])[services]
    spans = made[:, template.first :].reshape(count * SPANS_PER_REQUEST, -1)  # a copy
    for place, words in _words(template, traces, rng, shares):
        spans[:, place : place + 8 * words.shape[1]] = words.view(np.uint8).reshape(len(spans), -1)
    for place, size in template.random:
        spans[:, place : place + size] = _HEX[rng.integers(0, 16, (len(spans), size), np.uint8)]
    if not small:
        spans[rng.random(len(spans)) < shares.failed, template.status] = Status.STATUS_CODE_ERROR
        unavailable = rng.random(len(spans)) < shares.unavailable
        spans[unavailable, template.http_status : template.http_status + 2] = _varint(UNAVAILABLE)
    made[:, template.first :] = spans.reshape(count, -1)
    return made


def as_batch(made: Bytes) -> pa.RecordBatch:
    """Requests as a batch of entries, as the source `otlp` stores them."""
    count, size = made.shape
    offsets = pa.py_buffer(np.arange(0, (count + 1) * size, size, dtype=np.int32))
    data = pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(np.ascontiguousarray(made))])
    names, values = (Header.CONTENT_TYPE.value, Header.ENDPOINT.value), (PROTOBUF, "http")
    ends = pa.array(np.arange(0, count * len(names) + 1, len(names), dtype=np.int32))
    headers = pa.MapArray.from_arrays(ends, pa.array(names * count), pa.array(values * count))
    times = pa.array(time.time_ns() // 1000 + np.arange(count)).cast(ENTRY_SCHEMA.field("timestamp").type)
    same = [pa.repeat(text, count) for text in (str(Signal.TRACES), "insert", "sync")]
    columns = [times, *same, pa.nulls(count, pa.string()), headers, data]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


@dataclass(frozen=True)
class _Template:
    """The bytes of a request, and where in it what differs is: in the request, and in each of its spans."""

    text: Bytes
    first: int
    """Where the spans begin, which are all of the same size."""
    service: int
    trace: int
    span: int
    parent: int
    start: int
    random: tuple[tuple[int, int], ...]
    """Texts of random digits: place and size."""
    status: int
    http_status: int

    @property
    def span_bytes(self) -> int:
        return (len(self.text) - self.first) // SPANS_PER_REQUEST


@cache
def _template(small: bool) -> _Template:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.extend([_text("service.name", _SERVICE), _text("deployment.environment", b"production")])
    scope = group.scope_spans.add()
    scope.scope.name, scope.scope.version = "io.opentelemetry.netty-4.1", "2.9.0"
    scope.spans.extend([_template_span(small)] * SPANS_PER_REQUEST)
    text = request.SerializeToString()
    first_trace, second_trace = text.index(_TRACE), text.index(_TRACE, text.index(_TRACE) + 16)
    stride = second_trace - first_trace
    first = len(text) - SPANS_PER_REQUEST * stride
    one = text[first : first + stride]
    ok = Span(status=Status(code=Status.STATUS_CODE_OK)).SerializeToString()
    return _Template(
        np.frombuffer(text, np.uint8),
        first,
        text.index(_SERVICE),
        one.index(_TRACE),
        one.index(_SPAN),
        one.index(_PARENT),
        one.index(_START.to_bytes(8, "little")),
        tuple((one.index(mark), len(mark)) for mark in _RANDOM.values()) if not small else (),
        one.rindex(ok) + len(ok) - 1 if not small else 0,
        one.index(bytes(_varint(200)), one.index(b"http.response.status_code")) if not small else 0,
    )


def _template_span(small: bool) -> Span:
    span = Span(trace_id=_TRACE, span_id=_SPAN, parent_span_id=_PARENT)
    span.start_time_unix_nano, span.end_time_unix_nano = _START, _END
    if small:
        return span
    span.name, span.kind, span.flags = "GET /api/v1/products/{id}", Span.SPAN_KIND_SERVER, 0x101
    span.status.code = Status.STATUS_CODE_OK
    span.attributes.extend(
        [
            _text("http.request.method", b"GET"),
            _text("url.scheme", b"https"),
            _text("url.path", b"/api/v1/products/" + _RANDOM[b"path"]),
            _text("server.address", b"shop.example"),
            _number("server.port", 443),
            _number("http.response.status_code", 200),
            _text("http.route", b"/api/v1/products/{id}"),
            _text("user_agent.original", b"Mozilla/5.0 (X11)"),
            _text("user.id", _RANDOM[b"user"]),
            _text("request.id", _RANDOM[b"request"]),
            _number("thread.id", 118),
            KeyValue(key="cache.hit", value=AnyValue(bool_value=True)),
        ]
    )
    return span


def _words(
    template: _Template, traces: Numbers, rng: np.random.Generator, shares: Shares
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """Ids and times: where they are in a span, and for each span the words of them."""
    count = len(traces)
    numbers = traces.astype(np.uint64)
    yield template.trace, np.stack([_mixed(numbers), _mixed(numbers + np.uint64(1 << 40))], axis=1)
    for place in (template.span, template.parent):
        yield place, rng.integers(1, 2**63, (count, 1), np.uint64)
    starts = _BEGIN + traces * _MILLISECOND + rng.integers(0, 200 * _MILLISECOND, count)
    lasting = rng.integers(_MILLISECOND, 300 * _MILLISECOND, count)
    kind = rng.random(count)
    lasting[kind < shares.slow] = 2_000 * _MILLISECOND
    lasting[kind > 1 - shares.very_slow] = 6_000 * _MILLISECOND
    yield template.start, starts.astype(np.uint64).reshape(-1, 1)
    # The end is right behind the start, and the tag between them.
    yield template.start + 9, (starts + lasting).astype(np.uint64).reshape(-1, 1)


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The same word for the same number, without a pattern."""
    mixed = (numbers + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


def _varint(number: int) -> tuple[int, int]:
    """A number of two bytes as protobuf writes it."""
    return number & 0x7F | 0x80, number >> 7


def _text(key: str, value: bytes) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value.decode()))


def _number(key: str, value: int) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(int_value=value))
