"""The requests of records, in one buffer, and the spans in them. Where only places matter: or the log records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.compiled import Bytes
from penstock.json.documents import documents
from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import PROTOBUF, NotOtlp, parse_request
from penstock.otlp.span_scan import ScannedRequests, locate_spans, scan_requests
from penstock.record import Header

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TraceRequests:
    """Requests one after the other, and their spans."""

    buffer: Bytes
    scanned: ScannedRequests
    reasons: dict[int, str]
    """Which are no requests, and why: they have no spans."""

    @classmethod
    def of(cls, records: pa.RecordBatch, keys: Sequence[str] = ()) -> TraceRequests:
        """Of records that are meant to be such requests. ``keys``: attributes of spans that are wanted."""
        return cls._scanned(records, partial(scan_requests, keys=keys))

    @classmethod
    def located(cls, records: pa.RecordBatch, signal: Signal = Signal.TRACES) -> TraceRequests:
        """The same, but only where the spans are. In requests of another signal, which have the same shape, that is
        where the log records or metrics are."""
        return cls._scanned(records, locate_spans, signal)

    @classmethod
    def _scanned(
        cls,
        records: pa.RecordBatch,
        scan: Callable[[Bytes, Numbers], ScannedRequests],
        signal: Signal = Signal.TRACES,
    ) -> TraceRequests:
        data, reasons = _as_protobuf(records, signal)
        docs = documents(data)
        scanned = scan(docs.buffer, docs.offsets)
        doubled = np.flatnonzero(scanned.doubled & ~scanned.broken)
        if len(doubled):
            # What lies in several pieces is put together by those who build messages.
            docs = documents(_put_together(data, doubled, signal))
            scanned = scan(docs.buffer, docs.offsets)
        for row in np.flatnonzero(scanned.broken).tolist():
            reasons.setdefault(row, f"it is no protobuf of an OTLP request of {signal}")
        _name_only_items(records, scanned)
        return cls(docs.buffer, scanned, reasons)

    def find(self, requests: Numbers, numbers: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Where the spans with these numbers in these requests are among those of all, and whether they are there."""
        spans = self.scanned.spans
        if len(spans.request) == 0:
            return np.zeros(len(requests), np.int64), np.zeros(len(requests), np.bool_)
        last = len(spans.request) - 1
        first = np.minimum(np.searchsorted(spans.request, requests), last)
        # Those of a request follow each other.
        rows = np.clip(first + numbers - spans.number[first], 0, last)
        return rows, (spans.request[rows] == requests) & (spans.number[rows] == numbers)


def _name_only_items(records: pa.RecordBatch, scanned: ScannedRequests) -> None:
    """Give the spans of records that were cut the numbers that they had."""
    headers = records.column("headers")
    if not pc.any(pc.equal(headers.keys, Header.ONLY_ITEM.value)).as_py():
        return
    named = pc.map_lookup(headers, Header.ONLY_ITEM.value, "first").to_pylist()
    for row, number in enumerate(named):
        if number is not None:
            scanned.spans.number[scanned.spans.request == row] = int(number)


def _as_protobuf(records: pa.RecordBatch, signal: Signal) -> tuple[pa.BinaryArray, dict[int, str]]:
    data = records.column("data")
    kinds = pc.map_lookup(records.column("headers"), Header.CONTENT_TYPE.value, "first")
    others = pc.fill_null(pc.not_equal(kinds, PROTOBUF), True).to_numpy(zero_copy_only=False)
    others |= data.is_null().to_numpy(zero_copy_only=False)
    if not others.any():
        return data, {}
    # Each of these by itself: JSON is read by Python.
    found, reasons = data.to_pylist(), {}
    named = kinds.to_pylist()
    for row in np.flatnonzero(others).tolist():
        try:
            found[row] = parse_request(signal, named[row], found[row])[1]
        except NotOtlp as error:
            found[row] = b""
            reasons[row] = str(error)
    return pa.array(found, pa.binary()), reasons


def _put_together(data: pa.BinaryArray, rows: npt.NDArray[np.int64], signal: Signal) -> pa.BinaryArray:
    found = data.to_pylist()
    for row in rows.tolist():
        try:
            found[row] = parse_request(signal, PROTOBUF, found[row])[0].SerializeToString()
        except NotOtlp:
            found[row] = b"\xff"
    return pa.array(found, pa.binary())
