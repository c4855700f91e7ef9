"""Finds the log records in requests of logs, and the trace that each belongs to, without building messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, borrowing
from penstock.otlp.json_requests import Signal
from penstock.otlp.span_columns import last_fields
from penstock.otlp.span_scan import TRACE_ID_BYTES
from penstock.otlp.trace_requests import TraceRequests
from penstock.otlp.wire import read_fixed64

Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_TRACE_ID = 9
"""The field of the trace id in a log record."""


@dataclass(frozen=True)
class LogRecords:
    """One row per log record, in the order of the requests and of the records in each."""

    request: Places
    """Which request it is in."""
    number: Places
    """Its place in its request, from 1 on."""
    trace_high: Words
    trace_low: Words
    """Both are 0 for one that has no trace id of 16 bytes: it belongs to no trace."""
    reasons: dict[int, str]
    """Which are no requests, and why: they have no log records."""

    @classmethod
    def of(cls, records: pa.RecordBatch) -> LogRecords:
        """Of records that are meant to be requests of logs."""
        found = TraceRequests.located(records, Signal.LOGS)
        entries = found.scanned.spans
        high, low = np.zeros(len(entries.begin), np.uint64), np.zeros(len(entries.begin), np.uint64)
        _read_ids(found.buffer, *last_fields(found.buffer, entries.begin, entries.end, _TRACE_ID), high, low)
        return cls(entries.request, entries.number, high.byteswap(), low.byteswap(), found.reasons)


@borrowing
def _read_ids(buf: Bytes, begin: Places, end: Places, high: Words, low: Words) -> None:
    for row in range(len(begin)):
        if end[row] - begin[row] == TRACE_ID_BYTES:
            high[row] = read_fixed64(buf, begin[row])
            low[row] = read_fixed64(buf, begin[row] + 8)
