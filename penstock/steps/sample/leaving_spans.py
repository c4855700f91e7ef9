"""Makes rows of the spans, and log records, that leave: cut out of their requests, with what was decided on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.holding.item import MADE, Items
from penstock.items import with_items
from penstock.otlp.attributes import find_attributes
from penstock.otlp.compiled_rows.plain_span_rows import plain_rows
from penstock.otlp.cut_spans import Additions, cut_spans
from penstock.otlp.json_requests import Signal
from penstock.otlp.log_rows import LogRows
from penstock.otlp.request_bytes import PROTOBUF
from penstock.otlp.span_rows import SpanRows
from penstock.otlp.trace_requests import TraceRequests
from penstock.outcome import PLACES_PER_PARTITION, place_key
from penstock.record import Header, Op, Record, entries, placed
from penstock.sampling.span_item import AS_IT_IS, FLUSHED, LEAVING_SPAN, PLACEHOLDER
from penstock.sampling.trace_keys import round_keys, unscramble
from penstock.steps.contract import Leaving
from penstock.steps.headers import with_header, without_header
from penstock.steps.sample.scan_logs import are_logs
from penstock.steps.sample.span_marks import ATTRIBUTES, WRITTEN, SpanMarks

Numbers = npt.NDArray[np.int64]


class LeavingSpans:
    """``nanoseconds``: the times in rows are that fine."""

    def __init__(self, marks: SpanMarks, nanoseconds: bool = False) -> None:
        self._marks = marks
        self._nanoseconds = nanoseconds
        self._rows = SpanRows(nanoseconds=nanoseconds)
        self._log_rows = LogRows()
        self._shared = lru_cache(maxsize=1_024)(self._new_shared)

    def release(self, records: pa.RecordBatch, items: Items, leaving: Leaving) -> pa.RecordBatch:
        """A row for each item whose record is there and has it."""
        places = place_key(records).to_numpy()
        wanted = items["partition"].astype(np.int64) * PLACES_PER_PARTITION + items["offset"]
        at = np.minimum(np.searchsorted(places, wanted), max(len(places) - 1, 0))
        there = places[at] == wanted if len(places) else np.zeros(len(items), np.bool_)
        items, at = items[there], at[there]
        whole = items["item"] == 0
        logs = are_logs(records)[at] & ~whole
        spans = ~whole & ~logs
        found = [self._cut(records, items[spans], at[spans], leaving, Signal.TRACES)]
        if logs.any():
            found.append(self._cut(records, items[logs], at[logs], leaving, Signal.LOGS))
        if whole.any():
            found.append(records.take(pa.array(np.unique(at[whole]))))
        return found[0] if len(found) == 1 else _in_order(found)

    def cut_out(self, record: Record, item: int, leaving: Leaving, note: bytes | None) -> Record:
        """A record with only one of its spans, as it left; as it came, if nothing is known of that. One that cannot be
        read, and is none of ours, stays as it is."""
        wanted = np.zeros(1, LEAVING_SPAN) if note is None else np.frombuffer(note, LEAVING_SPAN).copy()
        if note is None:
            wanted["bits"] = AS_IT_IS
        as_otlp = replace(leaving, as_otlp=True)
        if wanted["bits"][0] & MADE:
            made = self.make(wanted, as_otlp)
        else:
            wanted["partition"], wanted["offset"], wanted["item"] = 0, 0, item
            made = self.release(placed(entries([record]), 0, 0), wanted, as_otlp) if item else None
        if made is None or made.num_rows == 0:
            return record
        headers = {**record.headers, Header.CONTENT_TYPE.value: PROTOBUF, Header.ONLY_ITEM.value: str(item)}
        namespace = made["namespace"][0].as_py()
        return replace(record, data=made["data"][0].as_py(), headers=headers, namespace=namespace, op=Op.INSERT)

    def make(self, items: Items, leaving: Leaving) -> pa.RecordBatch:
        """A decision span for each item."""
        high, low = unscramble(items["high"], items["low"], round_keys(leaving.secret))
        requests = [
            self._marks.decision(item, int(first).to_bytes(8, "big") + int(second).to_bytes(8, "big"))
            for item, first, second in zip(items, high, low, strict=True)
        ]
        data = self._data(pa.array(requests, pa.binary()), leaving, Signal.TRACES)
        return self._marks.made_rows(items, data.to_pylist(), leaving.as_otlp)

    def _cut(
        self, records: pa.RecordBatch, items: Items, at: Numbers, leaving: Leaving, signal: Signal
    ) -> pa.RecordBatch:
        around, request = records, at
        chosen, of_chosen = np.unique(at, return_inverse=True)
        if 2 * len(chosen) <= records.num_rows:
            # Of more of them, it is quicker to look at all than to copy those.
            around, request = records.take(pa.array(chosen)), of_chosen
        found = TraceRequests.located(around, signal)
        spans = found.scanned.spans
        rows, there = found.find(request, items["item"])
        items, rows, request = items[there], rows[there], request[there]
        cut = cut_spans(found.buffer, found.scanned, rows, self._additions(items, signal))
        ours = find_attributes(found.buffer, spans.begin[rows], spans.end[rows], ATTRIBUTES[signal], WRITTEN)
        marked = np.logical_or.reduce([values.kind != 0 for values in ours])
        special = ((items["bits"] & (FLUSHED | PLACEHOLDER)) != 0) | (marked & self._marks.apply_to(items))
        if special.any():
            cut = self._rewritten(cut, items, special, signal)
        return _rows(around, request, items, self._data(cut, leaving, signal), leaving.as_otlp)

    def _rewritten(
        self, cut: pa.BinaryArray, items: Items, special: npt.NDArray[np.bool_], signal: Signal
    ) -> pa.BinaryArray:
        """Few: what is not only added to must be built anew."""
        requests = cut.to_pylist()
        for place in np.flatnonzero(special).tolist():
            requests[place] = self._marks.rewrite(items[place], requests[place], signal)
        return pa.array(requests, pa.binary())

    def _additions(self, items: Items, signal: Signal) -> Additions:
        """What is put behind each span: the same for all that were decided alike."""
        kinds, of = np.unique(items[["bits", "weight"]], return_inverse=True)
        texts = [self._marks.addition(int(kind["bits"]), float(kind["weight"]), signal) for kind in kinds]
        ends = np.cumsum([0, *(len(text) for text in texts)])
        return Additions(np.frombuffer(b"".join(texts), np.uint8), ends[:-1][of], ends[1:][of])

    def _data(self, requests: pa.BinaryArray, leaving: Leaving, signal: Signal) -> pa.BinaryArray:
        if leaving.as_otlp:
            return requests
        if signal is Signal.LOGS:
            return pa.array(map(self._json_of_log, requests.to_pylist()), pa.binary())
        rows = plain_rows(requests, self._shared, self._nanoseconds)
        if rows.null_count == 0:
            return rows
        others = rows.is_null()
        built = list(map(self._json, requests.filter(others).to_pylist()))
        return pc.replace_with_mask(rows, others, pa.array(built, pa.binary()))

    def _json_of_log(self, request: bytes) -> bytes:
        group = ExportLogsServiceRequest.FromString(request).resource_logs[0]
        scope = group.scope_logs[0]
        shared = self._shared(group.resource.SerializeToString(), scope.scope.SerializeToString())
        return self._log_rows.row(shared, scope.log_records[0])

    def _json(self, request: bytes) -> bytes:
        group = ExportTraceServiceRequest.FromString(request).resource_spans[0]
        scope = group.scope_spans[0]
        shared = self._shared(group.resource.SerializeToString(), scope.scope.SerializeToString())
        return self._rows.row(shared, scope.spans[0])

    def _new_shared(self, resource: bytes, scope: bytes) -> bytes:
        return self._rows.shared(Resource.FromString(resource), InstrumentationScope.FromString(scope))


def _rows(records: pa.RecordBatch, of: Numbers, items: Items, data: pa.BinaryArray, as_otlp: bool) -> pa.RecordBatch:
    headers = records.column("headers")
    chosen = np.ones(records.num_rows, np.bool_)
    name = Header.CONTENT_TYPE.value
    headers = with_header(headers, name, PROTOBUF) if as_otlp else without_header(headers, name, chosen)
    place = records.schema.get_field_index("headers")
    around = records.set_column(place, records.schema.field(place), headers).drop_columns(["data"])
    taken = with_items(around.take(pa.array(of)), items["item"])
    return taken.add_column(records.schema.get_field_index("data"), "data", data).cast(records.schema)


def _in_order(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(batches)
    order = np.lexsort((rows.column("item").to_numpy(), place_key(rows).to_numpy()))
    return rows.take(pa.array(order))
