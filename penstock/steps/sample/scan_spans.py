"""Finds the spans of trace requests, and what the policies want to know of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.items import with_items
from penstock.otlp.attributes import SPAN_ATTRIBUTES, find_attributes
from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import NOT_OTLP
from penstock.otlp.span_columns import span_table
from penstock.otlp.span_table import Needs, SpanTable, ValueKind
from penstock.otlp.trace_requests import TraceRequests
from penstock.outcome import concat_failures, failures_of
from penstock.sampling.conditions.decision_marks import DECISION_ATTRIBUTES, decision_marks, decision_needs
from penstock.sampling.conditions.distinct_texts import matches_any
from penstock.sampling.conditions.field_conditions import RootSpan
from penstock.sampling.conditions.span_condition import SpanCondition
from penstock.sampling.conditions.tail_thresholds import TAIL_THRESHOLD_NEEDS, tail_thresholds
from penstock.sampling.span_item import DECIDED_NOT_SAMPLED, DECIDED_SAMPLED, NO_POLICY, NO_THRESHOLD, ROOT
from penstock.sampling.trace_keys import round_keys, scramble
from penstock.steps.contract import Scan, ScannedParts
from penstock.steps.sample.config import DecisionFromConfig
from penstock.steps.sample.span_marks import ADJUSTED_COUNT, POLICY

BAD_IDS = "bad_ids"
_BAD_IDS_TEXT = "a span has a trace id of 16 bytes and a span id of 8, not all of them zero; this one has not"
_OTHER_SIGNALS = pa.array([str(signal) for signal in Signal if signal is not Signal.TRACES])

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def are_traces(records: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which records are trace requests: all but those of the other signals."""
    others: npt.NDArray[np.bool_] = pc.is_in(records.column("namespace"), value_set=_OTHER_SIGNALS).to_numpy(
        zero_copy_only=False
    )
    return ~others


class SpanScanner:
    """``conditions`` in the order of their bits; ``policies``: their names, by number."""

    def __init__(
        self,
        conditions: Sequence[SpanCondition],
        thresholds: bool,
        policies: Sequence[str],
        origins: DecisionFromConfig | None = None,
    ) -> None:
        self._conditions = conditions
        self._policies = pa.array(policies, pa.string())
        self._thresholds = thresholds
        self._origins = origins
        self._needs = decision_needs() | RootSpan().needs
        for condition in conditions:
            self._needs |= condition.needs
        if thresholds:
            self._needs |= TAIL_THRESHOLD_NEEDS
        if origins is not None:
            self._needs |= Needs(resource_attributes=frozenset([origins.resource_attribute]))

    @property
    def needs(self) -> Needs:
        return self._needs

    def scan(self, batch: pa.RecordBatch, secret: bytes) -> Scan:
        traces = are_traces(batch)
        rows = np.flatnonzero(traces)
        meant = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
        found = TraceRequests.of(meant, sorted(self._needs.span_attributes))
        spans = found.scanned.spans
        table = span_table(found.buffer, found.scanned, self._needs)
        high, low = scramble(table.trace_high, table.trace_low, round_keys(secret))
        more: dict[str, npt.NDArray[Any]] = {
            "mask": self._masks(table),
            "start": spans.start_time,
            "end": spans.end_time,
            "size": (spans.end - spans.begin).astype(np.uint32),
            "threshold": tail_thresholds(table) if self._thresholds else np.full(len(table), NO_THRESHOLD),
        }
        decisions = np.flatnonzero(more["mask"] & (DECIDED_SAMPLED | DECIDED_NOT_SAMPLED))
        if len(decisions):
            more |= self._told_by(found, decisions)
        no_requests = np.array(sorted(found.reasons), np.int64)
        with_spans = min(len(spans.request), 1) + int(np.count_nonzero(np.diff(spans.request)))
        bad, request = np.flatnonzero(~spans.well_named), rows[spans.request]
        failures = concat_failures(
            [
                *self._no_requests(batch, rows[no_requests], [found.reasons[row] for row in no_requests.tolist()]),
                *self._bad_ids(batch, request[bad], spans.number[bad]),
            ]
        )
        bits = self._origins_of(table)
        columns: dict[str, npt.NDArray[Any]] = {
            "high": high, "low": low, "request": request, "number": spans.number, "bits": bits, **more
        }  # fmt: skip
        if len(bad):
            columns = {name: column[spans.well_named] for name, column in columns.items()}
        parts = ScannedParts(
            columns.pop("request"), columns.pop("number"), len(rows) - with_spans - len(no_requests), failures
        )
        high, low, bits = columns.pop("high"), columns.pop("low"), columns.pop("bits")
        scan = Scan(high, low, np.ones(len(high), np.bool_), bits, columns, parts)
        others = np.flatnonzero(~traces)
        return scan if len(others) == 0 else _and_whole_rows(scan, parts, others)

    def _masks(self, table: SpanTable) -> Words:
        masks = np.where(RootSpan().met(table), ROOT, np.uint64(0))
        if any(table.resource_attributes[name].kind.any() for name in DECISION_ATTRIBUTES):
            masks |= decision_marks(table)
        for bit, condition in enumerate(self._conditions):
            masks |= condition.met(table).astype(np.uint64) << np.uint64(bit)
        return masks

    def _origins_of(self, table: SpanTable) -> npt.NDArray[np.uint32]:
        """The number of where each span is from: 0 for what no pattern fits."""
        found = np.zeros(len(table), np.uint32)
        if self._origins is not None:
            texts = table.resource_attributes[self._origins.resource_attribute].texts
            for number, pattern in enumerate(self._origins.values.values(), 1):
                found[(found == 0) & matches_any(texts, (pattern,))] = number
        return found

    def _told_by(self, found: TraceRequests, decisions: Numbers) -> dict[str, npt.NDArray[Any]]:
        """The columns that have another meaning in decision spans: the weight that each gives to its trace, and the
        number of the policy that it names. One that is not in this config is none."""
        spans = found.scanned.spans
        names, counts = find_attributes(
            found.buffer, spans.begin[decisions], spans.end[decisions], SPAN_ATTRIBUTES, (POLICY, ADJUSTED_COUNT)
        )
        count = np.where(counts.kind == ValueKind.INT, counts.integers.astype(np.float64), counts.doubles)
        start, end = np.array(spans.start_time), np.array(spans.end_time)
        start[decisions] = np.where(np.isfinite(count) & (count >= 1.0), count, 1.0).view(np.uint64)
        end[decisions] = pc.index_in(names.texts, self._policies).fill_null(NO_POLICY).to_numpy()
        return {"start": start, "end": end}

    @staticmethod
    def _no_requests(batch: pa.RecordBatch, rows: Numbers, reasons: list[str]) -> list[pa.RecordBatch]:
        if len(rows) == 0:
            return []
        return [failures_of(batch.take(pa.array(rows)), NOT_OTLP, pa.array(reasons))]

    @staticmethod
    def _bad_ids(batch: pa.RecordBatch, rows: Numbers, numbers: Numbers) -> list[pa.RecordBatch]:
        if len(rows) == 0:
            return []
        return [failures_of(with_items(batch.take(pa.array(rows)), numbers), BAD_IDS, _BAD_IDS_TEXT)]


def _and_whole_rows(scan: Scan, parts: ScannedParts, rows: Numbers) -> Scan:
    """The scan with rows that go on as they are."""
    order = np.argsort(np.concatenate([parts.rows, rows]), kind="stable")

    def joined(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([column, np.zeros(len(rows), column.dtype)])[order]

    return Scan(
        joined(scan.high),
        joined(scan.low),
        joined(scan.keyed),
        joined(scan.bits),
        {name: joined(column) for name, column in scan.more.items()},
        ScannedParts(np.concatenate([parts.rows, rows])[order], joined(parts.numbers), parts.skipped, parts.failures),
    )
