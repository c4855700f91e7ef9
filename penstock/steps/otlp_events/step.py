"""Makes one row of each log record and span of OTLP requests; the rows of a request share its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.items import number_items
from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import NOT_OTLP, NotOtlp, parse_request
from penstock.outcome import PLACE_COLUMNS, Outcome, failure_batch
from penstock.record import Header, int64_values
from penstock.steps.contract import ArrowStep, TooMuch
from penstock.steps.headers import without_header
from penstock.steps.otlp_events.config import OtlpEventsConfig
from penstock.steps.otlp_events.event_maker import EventMaker, Shared, TooManyBytes

TOO_LARGE = "too_large"
MOST_BYTES = 2**30
"""What a batch may become; an Arrow array of bytes ends at twice that."""
_SIGNALS = {Signal.LOGS.value: Signal.LOGS, Signal.TRACES.value: Signal.TRACES}


class OtlpEvents(ArrowStep[OtlpEventsConfig]):
    """Records of other namespaces than ``logs`` and ``traces`` pass unchanged."""

    def __init__(self, config: OtlpEventsConfig) -> None:
        super().__init__(config)
        self._maker = EventMaker(config)

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        signals = [_SIGNALS.get(namespace) for namespace in batch.column("namespace").to_pylist()]
        if not any(signals):
            return Outcome(batch)
        made = self._take_apart(batch, signals)
        chosen = pc.is_in(batch.column("namespace"), pa.array(list(_SIGNALS))).to_numpy(zero_copy_only=False)
        headers = without_header(batch.column("headers"), Header.CONTENT_TYPE.value, chosen)
        at = batch.schema.get_field_index("headers")
        # Without the data: taken for each event, a request would be copied as often as it has events.
        around = batch.set_column(at, batch.schema.field(at), headers).drop_columns(["data"])
        numbered = number_items(around.take(pa.array(made.row, pa.int64())))
        rows = numbered.add_column(batch.schema.get_field_index("data"), "data", pa.array(made.data, pa.binary()))
        added = rows.num_rows + made.skipped + len(made.failures) - batch.num_rows
        return Outcome(rows, made.skipped, failure_batch(made.failures), added)

    def _take_apart(self, batch: pa.RecordBatch, signals: list[Signal | None]) -> _Made:
        # Record by record: JSON is built from messages, and only Python can read their fields.
        made, size = _Made(), 0
        kinds = pc.map_lookup(batch.column("headers"), Header.CONTENT_TYPE.value, "first").to_pylist()
        times = int64_values(batch.column("timestamp")).tolist()
        for row, data in enumerate(batch.column("data").to_pylist()):
            signal, before = signals[row], len(made.row)
            if signal is None:
                made.add(row, data)
                continue
            own = 0
            try:
                for event in self._events(signal, kinds[row], data, times[row] * 1_000):
                    made.add(row, event)
                    own += len(event)
                    if own > self.config.max_bytes:
                        raise TooManyBytes
            except (NotOtlp, TooManyBytes) as error:
                made.cut(before)
                place = tuple(batch.column(name)[row].as_py() for name in PLACE_COLUMNS)
                said = f"its events would become more than {self.config.max_bytes} bytes"
                is_large = isinstance(error, TooManyBytes)
                made.failures.append((*place, *((TOO_LARGE, said) if is_large else (NOT_OTLP, str(error)))))
                continue
            made.skipped += len(made.row) == before
            size += own
            if size > MOST_BYTES and batch.num_rows > 1:
                raise TooMuch
        return made

    def _events(self, signal: Signal, kind: str | None, data: bytes | None, came: int) -> Iterator[bytes]:
        """Raises ``NotOtlp``."""
        request, _ = parse_request(signal, kind, data)
        if isinstance(request, ExportLogsServiceRequest):
            for logs in request.resource_logs:
                for in_scope in logs.scope_logs:
                    shared = Shared.of(logs.resource, in_scope.scope)
                    for log in in_scope.log_records:
                        yield self._maker.log_event(shared, log, came)
        elif isinstance(request, ExportTraceServiceRequest):
            for spans in request.resource_spans:
                for of_scope in spans.scope_spans:
                    shared = Shared.of(spans.resource, of_scope.scope)
                    for span in of_scope.spans:
                        yield self._maker.span_event(shared, span, came)


@dataclass
class _Made:
    """The rows of a batch while they are made: of each the row that it was made of, and its data."""

    row: list[int] = field(default_factory=list)
    data: list[bytes | None] = field(default_factory=list)
    failures: list[tuple[object, ...]] = field(default_factory=list)
    skipped: int = 0

    def add(self, row: int, data: bytes | None) -> None:
        self.row.append(row)
        self.data.append(data)

    def cut(self, length: int) -> None:
        """Take back the rows from there on."""
        del self.row[length:], self.data[length:]
