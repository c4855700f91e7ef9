"""Spans that leave a sampler, as tables get them."""

from __future__ import annotations

from typing import Any

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.record import Record, entries, placed
from penstock.steps.contract import Leaving, Shard
from penstock.steps.sample.config import SampleConfig
from penstock.steps.sample.step import Sample
from tests.support.otlp_requests import PROTOBUF, START, key_values, span

SECRET = bytes(range(16))
COLUMNS = [
    "trace_id", "span_id", "parent_span_id", "name", "kind", "start_time", "end_time", "duration_ns", "status_code",
    "status_message", "service_name", "attributes", "resource_attributes", "events", "links",
]  # fmt: skip
"""Those that a table of spans has at least."""
END = START + 1_000_000_001


def sampled_rows(**options: Any) -> tuple[Sample, list[bytes]]:
    """The step, and what leaves it: a span with something in every field, and one with next to nothing."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.extend(key_values({"service.name": "shop"}))
    one = span(7, attributes={"k": 2**53 + 1}, parent_span_id=b"\xab" * 8, end_time_unix_nano=END, kind=2)
    one.status.code, one.status.message = one.status.STATUS_CODE_ERROR, 'it\'s "down"'
    one.events.add(name="retry", time_unix_nano=START)
    one.links.add(trace_id=bytes(range(16)), span_id=bytes(range(8)))
    group.scope_spans.add().spans.extend([one, span(8, start_time_unix_nano=0, end_time_unix_nano=0)])
    sample = Sample(SampleConfig.model_validate({"policies": [{"name": "all", "type": "always_sample"}], **options}))
    record = Record(message.SerializeToString(), "traces", headers={"content_type": PROTOBUF})
    batch = placed(entries([record]), 0, 0)
    scan = sample.scan(batch, SECRET)
    assert scan.parts is not None
    items = np.zeros(len(scan.high), sample.item_type)
    items["high"], items["low"], items["item"] = scan.high, scan.low, scan.parts.numbers
    for name, column in scan.more.items():
        items[name] = column
    released = sample.new_state(Shard(0, 1, SECRET)).decide(items).released
    rows = sample.release(batch, released, Leaving(SECRET, False))
    return sample, rows.column("data").to_pylist()
