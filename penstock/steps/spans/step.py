"""Makes one row of each span of an OTLP trace request; the rows of a request share its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from penstock.items import number_items
from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import NOT_OTLP, NotOtlp, parse_request
from penstock.otlp.row_times import Times
from penstock.otlp.span_rows import SpanRows, row_casts
from penstock.outcome import PLACE_COLUMNS, Outcome, failure_batch
from penstock.record import Header
from penstock.steps.contract import ArrowStep, TooMuch
from penstock.steps.headers import without_header
from penstock.steps.spans.config import Attributes, SpansConfig

BAD_IDS = "bad_ids"
TOO_LARGE = "too_large"
MOST_BYTES = 2**30
"""What a batch may become; an Arrow array of bytes ends at twice that."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)


class Spans(ArrowStep[SpansConfig]):
    """Records of other namespaces than ``traces`` pass unchanged."""

    def __init__(self, config: SpansConfig) -> None:
        super().__init__(config)
        objects, nanoseconds = config.attributes is Attributes.OBJECT, config.times is Times.NANOSECONDS
        self._rows = SpanRows(objects, nanoseconds)
        self.casts: Mapping[str, str] = row_casts(objects, nanoseconds)

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        traces = pc.equal(batch.column("namespace"), Signal.TRACES.value).to_numpy(zero_copy_only=False)
        if not traces.any():
            return Outcome(batch)
        made = self._take_apart(batch, traces.tolist())
        headers = without_header(batch.column("headers"), Header.CONTENT_TYPE.value, traces)
        # Without the data: taken for each span, a request would be copied as often as it has spans.
        around = _with_column(batch, "headers", headers).drop_columns(["data"]).take(pa.array(made.row, pa.int64()))
        numbered = number_items(around)
        rows = numbered.add_column(batch.schema.get_field_index("data"), "data", pa.array(made.data, pa.binary()))
        named = [(*_place(numbered, row), BAD_IDS, why) for row, why in made.bad.items()]
        failures = failure_batch([*made.failures, *named])
        good = np.ones(len(made.row), bool)
        good[list(made.bad)] = False
        kept = rows if good.all() else rows.filter(pa.array(good))
        added = kept.num_rows + made.skipped + failures.num_rows - batch.num_rows
        return Outcome(kept, made.skipped, failures, added)

    def _take_apart(self, batch: pa.RecordBatch, traces: list[bool]) -> _Made:
        # Record by record and span by span: JSON is built from messages, and only Python can read their fields.
        made = _Made()
        kinds = pc.map_lookup(batch.column("headers"), Header.CONTENT_TYPE.value, "first").to_pylist()
        size = 0
        for row, data in enumerate(batch.column("data").to_pylist()):
            if not traces[row]:
                made.row.append(row)
                made.data.append(data)
                continue
            before = len(made.row)
            try:
                request, _ = parse_request(Signal.TRACES, kinds[row], data)
                size += self._add_spans(request, row, made)
            except (NotOtlp, _TooLarge) as error:
                made.cut(before)
                code = NOT_OTLP if isinstance(error, NotOtlp) else TOO_LARGE
                made.failures.append((*_place(batch, row), code, str(error)))
                continue
            if len(made.row) == before:
                made.skipped += 1
            if size > MOST_BYTES and batch.num_rows > 1:
                raise TooMuch
        return made

    def _add_spans(self, request: ExportTraceServiceRequest, row: int, made: _Made) -> int:
        """Returns the bytes of their rows. Raises ``_TooLarge``: a large resource is in each of many rows."""
        size = 0
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                shared = self._rows.shared(resource.resource, scope.scope)
                for span in scope.spans:
                    wrong = _wrong_ids(span)
                    if wrong is not None:
                        made.bad[len(made.row)] = wrong
                    data = None if wrong is not None else self._rows.row(shared, span)
                    made.row.append(row)
                    made.data.append(data)
                    size += len(data or b"")
                    if size > self.config.max_bytes:
                        raise _TooLarge(f"its spans would become more than {self.config.max_bytes} bytes")
        return size


class _TooLarge(Exception):
    """One request would become too many bytes."""


@dataclass
class _Made:
    """The rows of a batch while they are made: of each the row that it was made of, and its data."""

    row: list[int] = field(default_factory=list)
    data: list[bytes | None] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    """Why the span of a row has no data."""
    failures: list[tuple[object, ...]] = field(default_factory=list)
    skipped: int = 0

    def cut(self, length: int) -> None:
        """Take back the rows from there on."""
        for row in range(length, len(self.row)):
            self.bad.pop(row, None)
        del self.row[length:], self.data[length:]


def _wrong_ids(span: Span) -> str | None:
    if len(span.trace_id) != 16 or span.trace_id == _NO_TRACE:
        return f"its trace id is '{span.trace_id.hex()}'; it must have 16 bytes, not all of them zero"
    if len(span.span_id) != 8 or span.span_id == _NO_SPAN:
        return f"its span id is '{span.span_id.hex()}'; it must have 8 bytes, not all of them zero"
    return None


def _place(rows: pa.RecordBatch, row: int) -> tuple[object, ...]:
    return tuple(rows.column(name)[row].as_py() for name in PLACE_COLUMNS)


def _with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, batch.schema.field(at), column)
