"""Compiles what samples traces, on a request of two spans."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.holding.item import Items
from penstock.holding.packed_rows import FEW_BYTES, pack_rows, unpack_rows
from penstock.otlp.request_bytes import PROTOBUF
from penstock.record import Header, Record, entries, placed
from penstock.sampling.commands import Place, flush_command
from penstock.steps.contract import Leaving, Shard
from penstock.steps.sample.config import SampleConfig
from penstock.steps.sample.step import Sample

_SECRET = bytes(16)
_CONFIG = SampleConfig.model_validate(
    {
        "secondary_cache_size": 1,
        "primary_cache_size": 2,
        "policies": [
            {"name": "errors", "type": "status_code", "status_codes": ["ERROR"]},
            {"name": "named", "type": "string_attribute", "key": "k", "values": ["x"]},
            {"name": "asked", "type": "ottl_condition", "span": ['attributes["k"] == 1'], "spanevent": ['name == "e"']},
            {"name": "tail", "type": "threshold"},
            {"name": "lone", "type": "root_spans", "sub_policy": {"name": "few", "type": "span_count", "min_spans": 9}},
        ],
    }
)


def warm_up() -> None:
    sample = Sample(_CONFIG)
    state, again = (sample.new_state(Shard(0, 1, _SECRET)) for _ in range(2))
    batch = _requests()
    items = _items(sample, batch)
    for releases, commands in (((), np.empty(0, sample.item_type)), ((9,), flush_command(Place()))):
        decision = state.decide(items, (), releases, commands)
        for blob in decision.change.append:
            again.apply(blob)
        left = decision.released[(decision.released["item"] > 0) & (decision.released["offset"] == 0)]
        for as_otlp in (True, False):
            sample.release(batch, np.sort(left, order=["partition", "offset", "item"]), Leaving(_SECRET, as_otlp))
            sample.release(batch, np.zeros(0, sample.released_type), Leaving(_SECRET, as_otlp))
    again.snapshot()
    many = np.zeros(FEW_BYTES, sample.item_type)
    unpack_rows([pack_rows(many)], many.dtype)


def _requests() -> pa.RecordBatch:
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="k").value.string_value = "y"
    scope = group.scope_spans.add()
    for number in (1, 2):
        span = scope.spans.add(trace_id=bytes([number]) * 16, span_id=b"12345678", start_time_unix_nano=1)
        span.status.code = span.status.STATUS_CODE_ERROR if number == 2 else span.status.STATUS_CODE_OK
        span.events.add(name="f")
    headers = {Header.CONTENT_TYPE.value: PROTOBUF}
    return placed(entries([Record(message.SerializeToString(), "traces", headers=headers)]), 0, 0)


def _items(sample: Sample, batch: pa.RecordBatch) -> Items:
    scan = sample.scan(batch, _SECRET)
    assert scan.parts is not None
    items = np.zeros(len(scan.high), sample.item_type)
    items["high"], items["low"], items["item"] = scan.high, scan.low, scan.parts.numbers
    for name, column in scan.more.items():
        items[name] = column
    return items
