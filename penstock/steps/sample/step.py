"""Keeps whole traces, chosen by policies as their spans arrive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.holding.item import Items
from penstock.otlp.log_rows import log_casts
from penstock.otlp.row_times import Times
from penstock.otlp.span_rows import row_casts
from penstock.record import Record
from penstock.sampling.commands import STRESS_IS_OVER, Place, flush_command, rate_command, stress_command
from penstock.sampling.conditions_of_policies import ConditionBits
from penstock.sampling.decision_names import OTHER
from penstock.sampling.following.followed_sampler import FollowedSampler
from penstock.sampling.following.waiting_logs import WaitingLogs
from penstock.sampling.policy_config import (
    FROM_LEDGER,
    RemoteProbabilisticPolicy,
    ThresholdPolicy,
    all_policies,
)
from penstock.sampling.policy_program import PolicyProgram
from penstock.sampling.sampler import Sampler
from penstock.sampling.sampler_limits import SamplerLimits
from penstock.sampling.span_item import LEAVING_SPAN, SPAN_ITEM
from penstock.steps.contract import HoldingStep, Leaving, Scan, Shard
from penstock.steps.sample.config import Follower, SampleConfig
from penstock.steps.sample.leaving_spans import LeavingSpans
from penstock.steps.sample.remote_rates import RemoteRates
from penstock.steps.sample.scan_logs import FollowingScanner
from penstock.steps.sample.scan_spans import SpanScanner
from penstock.steps.sample.span_marks import SpanMarks
from penstock.steps.sample.stress_relief import STRESS_NAMESPACE, StressRelief

FLUSH_NAMESPACE = "flush"
"""The namespace of the control record that lets everything go."""
RATE_NAMESPACE = "rate"
"""That of one that says the percentage of a policy."""


class Sample(HoldingStep[SampleConfig]):
    item_type: ClassVar[np.dtype[np.void]] = SPAN_ITEM
    released_type: ClassVar[np.dtype[np.void]] = LEAVING_SPAN
    flush_command: str | None = FLUSH_NAMESPACE

    def __init__(self, config: SampleConfig) -> None:
        super().__init__(config)
        self.flush_on_shutdown = config.flush_on_shutdown
        self._follows = Follower.LOGS in config.follow
        self._nanoseconds = config.times is Times.NANOSECONDS
        of_logs = log_casts() if self._follows else {}
        self.casts: Mapping[str, str] = row_casts(nanoseconds=self._nanoseconds) | of_logs

    def scan(self, batch: pa.RecordBatch, secret: bytes) -> Scan:
        return self._scanner.scan(batch, secret)

    def new_state(self, shard: Shard) -> FollowedSampler:
        config, decisions = self.config, self.config.decision_cache
        limit = config.target_heap_bytes
        if config.memory_limit_mib is not None:
            limit = round(config.memory_limit_mib * 2**20)
        limits = SamplerLimits(
            config.primary_cache_size,
            config.secondary_cache_size,
            decisions.sampled_cache_size,
            decisions.non_sampled_cache_size,
            limit,
            config.max_spans_per_trace,
            config.max_bytes_per_trace,
        )
        program = PolicyProgram.of(config.policies, self._conditions.bits, self._conditions.described)
        sampler = Sampler(
            program,
            limits,
            shard.count,
            shard.secret,
            config.dry_run,
            config.stress_relief is not None,
            self._follows,
            ("",) if config.decision_from is None else (OTHER, *config.decision_from.values),
        )
        own = limits.split(shard.count)
        # As many traces as may wait, and as many again of which nothing but logs has come.
        logs = WaitingLogs(2 * own.primary + (own.secondary or 0))
        return FollowedSampler(sampler, logs, self._follows, config.dry_run)

    def new_commands(self, behind: Callable[[], int]) -> Iterator[tuple[str, str]]:
        yield from self._stress.changes(behind)
        for policy, percentage in self._rates.changes():
            yield self.setting(policy, percentage)

    @property
    def settable(self) -> list[str]:
        """The policies whose percentage operators set."""
        policies = all_policies(self.config.policies)
        return [
            each.name
            for each in policies
            if isinstance(each, RemoteProbabilisticPolicy) and each.rate_from == FROM_LEDGER
        ]

    def setting(self, name: str, percentage: float) -> tuple[str, str]:
        return RATE_NAMESPACE, json.dumps({"policy": name, "percentage": percentage})

    def commands(self, records: pa.RecordBatch) -> Items:
        name, data = records.column("namespace")[0].as_py(), records.column("data")[0].as_py()
        if name == FLUSH_NAMESPACE:
            return flush_command(Place())
        told = json.loads(data) if name in (RATE_NAMESPACE, STRESS_NAMESPACE) else {}
        if name == RATE_NAMESPACE and told["policy"] in self._policy_names:
            return rate_command(self._policy_names.index(told["policy"]), told["percentage"], Place())
        if name == STRESS_NAMESPACE:
            rate = told["percentage"]
            return stress_command(STRESS_IS_OVER if rate is None else rate, Place())
        return np.empty(0, SPAN_ITEM)

    def release(self, rows: pa.RecordBatch, items: Items, leaving: Leaving) -> pa.RecordBatch:
        return self._leaving_spans.release(rows, items, leaving)

    def cut_out(
        self, record: Record, item: int, leaving: Leaving, notes: Mapping[tuple[int, int, int], bytes]
    ) -> Record:
        note = notes.get((record.partition, record.offset, item))
        return self._leaving_spans.cut_out(record, item, leaving, note)

    def make(self, items: Items, leaving: Leaving) -> pa.RecordBatch:
        return self._leaving_spans.make(items, leaving)

    @cached_property
    def _conditions(self) -> ConditionBits:
        return ConditionBits.of(self.config.policies)

    @cached_property
    def _scanner(self) -> SpanScanner | FollowingScanner:
        thresholds = any(isinstance(each, ThresholdPolicy) for each in all_policies(self.config.policies))
        spans = SpanScanner(self._conditions.conditions, thresholds, self._policy_names, self.config.decision_from)
        return FollowingScanner(spans) if self._follows else spans

    @cached_property
    def _policy_names(self) -> list[str]:
        return [policy.name for policy in all_policies(self.config.policies)]

    @cached_property
    def _leaving_spans(self) -> LeavingSpans:
        marks = SpanMarks(self._policy_names, self.config.names, self.config.dry_run)
        return LeavingSpans(marks, self._nanoseconds)

    @cached_property
    def _rates(self) -> RemoteRates:
        policies = all_policies(self.config.policies)
        remote = [each for each in policies if isinstance(each, RemoteProbabilisticPolicy)]
        return RemoteRates([each for each in remote if each.rate_from != FROM_LEDGER])

    @cached_property
    def _stress(self) -> StressRelief:
        return StressRelief(self.config.stress_relief)
