"""What is written on spans and log records that leave a sampler, and the spans that only a sampler makes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from penstock.holding.item import Items
from penstock.items import with_items
from penstock.otlp.attributes import LOG_ATTRIBUTES, SPAN_ATTRIBUTES
from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import PROTOBUF
from penstock.record import EPOCH, Header, Record, entries, int64_array, with_places
from penstock.sampling.span_item import AS_IT_IS, FLUSHED, NO_POLICY, NOT_SAMPLED, PLACEHOLDER
from penstock.steps.sample.config import Names

POLICY = "sampling.policy"
ADJUSTED_COUNT = "sampling.adjusted_count"
DRY_SAMPLED, DRY_POLICY = "penstock.sampled", "penstock.policy"
WRITTEN = (POLICY, ADJUSTED_COUNT, DRY_SAMPLED, DRY_POLICY)
"""What is written on spans: what another sampler wrote under these names is replaced."""
PLACEHOLDER_NAME, PLACEHOLDER_SERVICE = "TRACE NOT SAMPLED", "not-sampled-dummy-service"
DECISION_NAME = "decision"
ATTRIBUTES = {Signal.TRACES: SPAN_ATTRIBUTES, Signal.LOGS: LOG_ATTRIBUTES}
"""The field of the attributes of what leaves."""
_DELIMITED = 2


class SpanMarks:
    """``policies``: their names, by number."""

    def __init__(self, policies: Sequence[str], names: Names, dry_run: bool) -> None:
        self._policies = policies
        self._names = names
        self._dry_run = dry_run

    def apply_to(self, items: Items) -> npt.NDArray[np.bool_]:
        """Which items something is written on."""
        written: npt.NDArray[np.bool_] = (items["bits"] & (AS_IT_IS | FLUSHED)) == 0
        return written

    def addition(self, bits: int, weight: float, signal: Signal) -> bytes:
        """What is put behind a span, or a log record, as bytes of protobuf."""
        tag = bytes([ATTRIBUTES[signal] << 3 | _DELIMITED])
        return b"".join(tag + _delimited(each.SerializeToString()) for each in self._attributes(bits, weight))

    def rewrite(self, item: np.void, request: bytes, signal: Signal) -> bytes:
        """A request of one span, or one log record, to which the addition was made, as it must be if that is not
        enough."""
        bits = int(item["bits"])
        if signal is Signal.LOGS:
            logs = ExportLogsServiceRequest.FromString(request)
            of_logs = logs.resource_logs[0]
            self._mark(of_logs.resource, of_logs.scope_logs[0].log_records[0], bits)
            return bytes(logs.SerializeToString())
        message = ExportTraceServiceRequest.FromString(request)
        group = message.resource_spans[0]
        span = group.scope_spans[0].spans[0]
        if bits & PLACEHOLDER:
            return self._placeholder(span, bits)
        self._mark(group.resource, span, bits)
        return bytes(message.SerializeToString())

    def decision(self, item: np.void, trace_id: bytes) -> bytes:
        """A request with the decision on a trace, and what a later span of it would say if it is sampled."""
        message = ExportTraceServiceRequest()
        group = message.resource_spans.add()
        sampled = not int(item["bits"]) & NOT_SAMPLED
        group.resource.attributes.append(_truth(f"{self._names}.decision", sampled))
        moment = int(item["time"]) * 1000
        span = group.scope_spans.add().spans.add(trace_id=trace_id, span_id=trace_id[8:], name=DECISION_NAME)
        span.start_time_unix_nano = span.end_time_unix_nano = moment
        if not any(span.span_id):
            span.span_id = trace_id[:8]
        span.attributes.extend(self._decided(int(item["bits"]), float(item["weight"])))
        return bytes(message.SerializeToString())

    def made_rows(self, items: Items, data: Sequence[bytes], as_otlp: bool) -> pa.RecordBatch:
        """Rows for items that no record has."""
        headers = {Header.CONTENT_TYPE.value: PROTOBUF} if as_otlp else {}
        moments = [EPOCH + timedelta(microseconds=time) for time in items["time"].tolist()]
        rows = entries(
            Record(each, str(Signal.TRACES), headers=headers, timestamp=moment)
            for each, moment in zip(data, moments, strict=True)
        )
        partition = int(items["partition"][0])
        return with_items(with_places(rows, partition, int64_array(items["offset"])), items["item"])

    def _attributes(self, bits: int, weight: float) -> list[KeyValue]:
        if bits & int(AS_IT_IS | FLUSHED):
            return []
        if self._dry_run:
            name = self._name(bits)
            found = [_truth(DRY_SAMPLED, not bits & NOT_SAMPLED)]
            return found if name is None else [*found, _text(DRY_POLICY, name)]
        return self._decided(bits, weight)

    def _decided(self, bits: int, weight: float) -> list[KeyValue]:
        name = self._name(bits)
        found = [] if bits & NOT_SAMPLED else [KeyValue(key=ADJUSTED_COUNT, value=AnyValue(double_value=weight))]
        return found if name is None else [_text(POLICY, name), *found]

    def _name(self, bits: int) -> str | None:
        number = bits & NO_POLICY
        return self._policies[number] if number < len(self._policies) else None

    def _placeholder(self, span: Span, bits: int) -> bytes:
        message = ExportTraceServiceRequest()
        group = message.resource_spans.add()
        group.resource.attributes.append(_text("service.name", PLACEHOLDER_SERVICE))
        made = group.scope_spans.add().spans.add(trace_id=span.trace_id, span_id=span.span_id, name=PLACEHOLDER_NAME)
        made.start_time_unix_nano, made.end_time_unix_nano = span.start_time_unix_nano, span.end_time_unix_nano
        made.attributes.append(_text(POLICY, self._name(bits) or ""))
        return bytes(message.SerializeToString())

    def _mark(self, resource: Resource, entry: Span | LogRecord, bits: int) -> None:
        if bits & FLUSHED:
            self._count_flush(resource)
        else:
            _keep_last(entry)

    def _count_flush(self, resource: Resource) -> None:
        names = {f"{each}.flushes" for each in Names}
        attributes = resource.attributes
        before = max((each.value.int_value for each in attributes if each.key in names), default=0)
        kept = [each for each in attributes if each.key not in names]
        del attributes[:]
        count = KeyValue(key=f"{self._names}.flushes", value=AnyValue(int_value=before + 1))
        attributes.extend([*kept, count])


def _keep_last(entry: Span | LogRecord) -> None:
    """Leave out what another sampler has written, where ours stands behind it."""
    last = {each.key: place for place, each in enumerate(entry.attributes)}
    kept = [each for place, each in enumerate(entry.attributes) if each.key not in WRITTEN or last[each.key] == place]
    del entry.attributes[:]
    entry.attributes.extend(kept)


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _truth(key: str, value: bool) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(bool_value=value))


def _delimited(content: bytes) -> bytes:
    size, length = len(content), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*length, size]) + content
