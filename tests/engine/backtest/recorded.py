"""Recorded traces for backtests: made up, put into a real log, and judged by the plain reference."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from penstock.config.loading import load
from penstock.engine.backtest.verdicts import Verdict
from penstock.engine.pipeline import Pipeline
from penstock.engine.stateful.shards import SHARDS
from penstock.record import Record, entries
from penstock.sampling.sampler_limits import SamplerLimits
from penstock.sampling.trace_keys import round_keys, scramble
from penstock.steps.sample.config import SampleConfig
from tests.sampling.reference import Reference, Span
from tests.support.otlp_requests import PROTOBUF, START, request, resource_spans
from tests.support.otlp_requests import span as otlp_span

FIRST_TIME = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
BATCH_US = 250_000
MARK = "level"
"""The attribute that policies of tests ask for: some spans have it, and it says `bad`."""

LIVE: dict[str, Any] = {
    "policies": [
        {"name": "marked", "type": "string_attribute", "key": MARK, "values": ["bad"]},
        {"name": "base", "type": "probabilistic", "sampling_percentage": 20},
    ],
}
CANDIDATE: dict[str, Any] = {
    "primary_cache_size": 12,
    "secondary_cache_size": 6,
    "decision_cache": {"sampled_cache_size": 12, "non_sampled_cache_size": 12},
    "policies": [
        {"name": "slow", "type": "latency", "latency": {"threshold_ms": 400}},
        {
            "name": "no-marked",
            "type": "downgrader",
            "downgrader": {
                "downgrade_to": "NotSampled",
                "sub_policy": {"name": "marked", "type": "string_attribute", "key": MARK, "values": ["bad"]},
            },
        },
        {
            "name": "roots",
            "type": "root_spans",
            "root_spans": {"sub_policy": {"name": "three", "type": "span_count", "min_spans": 3}},
        },
        {"name": "base", "type": "probabilistic", "sampling_percentage": 10},
    ],
}


@dataclass(frozen=True)
class Arrived:
    """A span, when it came (µs after the first time), and of which service."""

    time: int
    trace: bytes
    service: str | None
    body: Any
    marked: bool

    @property
    def size(self) -> int:
        return len(self.body.SerializeToString())


def made_up(seed: int, traces: int = 60) -> list[list[Arrived]]:
    """Requests in the order in which they came, about a second of them. Some have spans of several traces."""
    rng = random.Random(seed)
    spans = []
    for _ in range(traces):
        trace, begin = rng.randbytes(16), rng.randrange(1_000_000)
        for number in range(rng.choice([1, 1, 2, 4, 7])):
            marked, start = rng.random() < 0.1, START + rng.randrange(10**9)
            body = otlp_span(
                trace_id=trace, span_id=rng.randbytes(8), parent_span_id=b"" if number == 0 else b"parent00",
                start_time_unix_nano=start, end_time_unix_nano=start + rng.randrange(5 * 10**8),
                attributes={"pad": "x" * rng.randrange(40), **({MARK: "bad"} if marked else {})},
            )  # fmt: skip
            service = rng.choice(["shop", "cart", "größe", None])
            spans.append(Arrived(begin + rng.randrange(800_000), trace, service, body, marked))
    spans.sort(key=lambda span: span.time)
    requests = []
    while spans:
        several, spans = spans[:3], spans[3:]
        requests.append([Arrived(several[0].time, *_rest(span)) for span in several])
    return requests


def _rest(span: Arrived) -> tuple[bytes, str | None, Any, bool]:
    return span.trace, span.service, span.body, span.marked


def write_project(folder: Path, requests: Sequence[Sequence[Arrived]], live: dict[str, Any] = LIVE) -> Pipeline:
    """A pipeline whose log has these requests, of two workers, among records that are no requests of spans."""
    config = {
        "name": "traces",
        "sources": {"spans": {"type": "otlp", "listen": "127.0.0.1:4318"}},
        "routes": {"sampled": {"from": "spans", "steps": [{"sample": live}], "to": {"type": "null"}}},
    }
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(config))
    pipeline = Pipeline.open(load(folder / "pipeline.yaml"))
    with pipeline.log.writer("spans", 0) as first, pipeline.log.writer("spans", 1) as second:
        for number, spans in enumerate(requests):
            (second if number % 3 else first).append(entries([_record(spans)]))
        first.append(entries([Record(b"{}", "logs", headers={"content_type": "application/json"})]))
    return pipeline


def _record(spans: Sequence[Arrived]) -> Record:
    groups = []
    for span in spans:
        group = resource_spans(span.service or "", span.body)
        if span.service is None:
            del group.resource.attributes[:]
        groups.append(group)
    time = FIRST_TIME + timedelta(microseconds=spans[0].time)
    return Record(request(*groups), "traces", headers={"content_type": PROTOBUF}, timestamp=time)


@dataclass
class Judged:
    """By verdict and service, and by verdict and policy: spans and bytes. By verdict: the traces."""

    spans: Counter[tuple[Verdict, str | None]]
    sizes: Counter[tuple[Verdict, str | None]]
    kept_by: Counter[str | None]
    traces: dict[Verdict, set[bytes]]


def judge(config: SampleConfig, requests: Sequence[Sequence[Arrived]], secret: bytes) -> Judged:
    """What the plain reference decides, batch after batch, each shard on its own."""
    decisions = config.decision_cache
    limits = SamplerLimits(
        config.primary_cache_size,
        config.secondary_cache_size,
        decisions.sampled_cache_size,
        decisions.non_sampled_cache_size,
    )
    shards = [Reference(config.policies, limits, SHARDS) for _ in range(SHARDS)]
    arrived = [span for spans in requests for span in spans]
    batches: dict[int, list[list[Span]]] = defaultdict(lambda: [[] for _ in range(SHARDS)])
    origin = int(FIRST_TIME.timestamp()) * 10**6
    for at, span in enumerate(arrived):
        body, conditions = span.body, frozenset([MARK] if span.marked else [])
        given = Span(
            span.trace, at, conditions, not body.parent_span_id, None, body.start_time_unix_nano,
            body.end_time_unix_nano, span.size, None, origin + span.time,
        )  # fmt: skip
        batches[(origin + span.time) // BATCH_US][_shard(span.trace, secret)].append(given)
    left: dict[int, str | None] = {}
    for _, by_shard in sorted(batches.items()):
        for reference, spans in zip(shards, by_shard, strict=True):
            if spans:
                result = reference.decide(spans)
                left |= {each.at: each.policy for each in result.left if each.kind == "sampled"}
    caches = [cache for shard in shards for cache in (shard.primary, shard.secondary)]
    waiting = {span.at for cache in caches for trace in cache.values() for span in trace.spans}
    judged = Judged(Counter(), Counter(), Counter(left.values()), defaultdict(set))
    for at, span in enumerate(arrived):
        verdict = Verdict.KEPT if at in left else Verdict.WAITING if at in waiting else Verdict.DROPPED
        judged.spans[verdict, span.service] += 1
        judged.sizes[verdict, span.service] += span.size
        judged.traces[verdict].add(span.trace)
    return judged


def _shard(trace: bytes, secret: bytes) -> int:
    high, low = (np.array([int.from_bytes(half)], np.uint64) for half in (trace[:8], trace[8:]))
    return int(scramble(high, low, round_keys(secret))[0][0] % np.uint64(SHARDS))
