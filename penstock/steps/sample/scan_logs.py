"""Finds the log records that follow the traces of a sampler, beside the spans of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.json_requests import Signal
from penstock.otlp.log_records import LogRecords
from penstock.otlp.request_bytes import NOT_OTLP
from penstock.outcome import concat_failures, failures_of
from penstock.sampling.span_item import LOG
from penstock.sampling.trace_keys import round_keys, scramble
from penstock.steps.contract import Scan, ScannedParts
from penstock.steps.sample.scan_spans import SpanScanner

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def are_logs(records: pa.RecordBatch) -> Flags:
    """Which records are requests of logs."""
    logs: Flags = pc.equal(records.column("namespace"), str(Signal.LOGS)).to_numpy(zero_copy_only=False)
    return logs


class FollowingScanner:
    """Log records are items, as spans are. One without a trace id goes on at once."""

    def __init__(self, spans: SpanScanner) -> None:
        self._spans = spans

    def scan(self, batch: pa.RecordBatch, secret: bytes) -> Scan:
        logs = are_logs(batch)
        if not logs.any():
            return self._spans.scan(batch, secret)
        others, rows = np.flatnonzero(~logs), np.flatnonzero(logs)
        spans = self._spans.scan(batch.take(pa.array(others)), secret)
        return _merged([(spans, others), (_scan_logs(batch.take(pa.array(rows)), secret, spans.more), rows)])


def _scan_logs(batch: pa.RecordBatch, secret: bytes, columns: Mapping[str, npt.NDArray[Any]]) -> Scan:
    """``columns``: those that spans have. Of logs they are 0, but for the mask."""
    found = LogRecords.of(batch)
    keyed = (found.trace_high | found.trace_low) != 0
    high, low = scramble(found.trace_high, found.trace_low, round_keys(secret))
    more: dict[str, npt.NDArray[Any]] = {name: np.zeros(len(high), each.dtype) for name, each in columns.items()}
    more["mask"][keyed] = LOG
    no_requests = sorted(found.reasons)
    reasons = pa.array([found.reasons[row] for row in no_requests], pa.string())
    failures = failures_of(batch.take(pa.array(no_requests, pa.int64())), NOT_OTLP, reasons)
    skipped = batch.num_rows - len(np.unique(found.request)) - len(no_requests)
    parts = ScannedParts(found.request, found.number, skipped, failures)
    return Scan(np.where(keyed, high, 0), np.where(keyed, low, 0), keyed, np.zeros(len(high), np.uint32), more, parts)


def _merged(scans: Sequence[tuple[Scan, Numbers]]) -> Scan:
    """Scans of different rows of a batch, each with the places of its rows there, as one."""
    parts = [(scan.parts, rows) for scan, rows in scans if scan.parts is not None]
    rows = np.concatenate([places[each.rows] for each, places in parts])
    order = np.argsort(rows, kind="stable")
    more = {name: np.concatenate([scan.more[name] for scan, _ in scans])[order] for name in scans[0][0].more}
    return Scan(
        np.concatenate([scan.high for scan, _ in scans])[order],
        np.concatenate([scan.low for scan, _ in scans])[order],
        np.concatenate([scan.keyed for scan, _ in scans])[order],
        np.concatenate([scan.bits for scan, _ in scans])[order],
        more,
        ScannedParts(
            rows[order],
            np.concatenate([each.numbers for each, _ in parts])[order],
            sum(each.skipped for each, _ in parts),
            concat_failures([each.failures for each, _ in parts]),
        ),
    )
