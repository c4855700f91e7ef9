"""A sampler, and the log records that follow what it decides on their traces.

Logs come last in a batch: they follow what is known when all its spans are decided. They have no say in a decision and
change no order of use. Of a trace that nothing is known of they wait for its spans.

The state is the sampler's row of blobs; where logs have changed, too, a blob has both.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.holding.decision import Decision, StateChange
from penstock.holding.item import ITEM, Items
from penstock.holding.waiting_groups import BYTES_PER_ITEM
from penstock.sampling.commands import FLUSH
from penstock.sampling.fold_units import in_log_order, items_of
from penstock.sampling.following.waiting_logs import Decisions, Followed, WaitingLogs, encode_change
from penstock.sampling.sampler import LEAST_BYTES, MOST_BLOBS, Sampler
from penstock.sampling.span_item import AS_IT_IS, FLUSHED, LEAVING_SPAN, LOG, NO_POLICY, NOT_SAMPLED, SPAN_ITEM
from penstock.sampling.trace_homes import NOT_SAMPLED_HOME, NOWHERE, PRIMARY, SAMPLED_HOME, SECONDARY, Rows

LOGS_NOT_SAMPLED, LOGS_EVICTED, LOGS_RELEASED = "logs_not_sampled", "logs_evicted", "logs_evicted_release"
"""Why logs were skipped: their trace was not sampled, there were too many, or too much of the log was kept."""

VERSION = 129
"""Of a blob that has both. One that has only what the sampler writes begins with the sampler's version, below 128."""

_HEAD = struct.Struct("<BQ")
"""The version, and the bytes of the sampler's part, which may be none."""
_NO_COMMANDS: Items = np.empty(0, SPAN_ITEM)


class FollowedSampler:
    """``follows``: whether logs wait. If not, those that still do go on as they are. ``sampler`` is followed."""

    def __init__(self, sampler: Sampler, logs: WaitingLogs, follows: bool, dry_run: bool = False) -> None:
        self._sampler = sampler
        self._logs = logs
        self._follows = follows
        self._dry_run = dry_run
        self._sizes: list[tuple[int, int]] = []
        """The bytes of every blob: those of the sampler, and those of logs."""

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._sampler) + len(self._logs)

    def apply(self, blob: bytes) -> None:
        if blob[0] != VERSION:
            self._sampler.apply(blob)
            self._sizes.append((len(blob), 0))
            return
        _, size = _HEAD.unpack_from(blob)
        own, logs = blob[_HEAD.size : _HEAD.size + size], blob[_HEAD.size + size :]
        if own:
            self._sampler.apply(own)
        self._logs.apply(logs)
        self._sizes.append((len(own), len(logs)))

    def drop(self, blobs: int) -> None:
        self._sampler.drop(sum(1 for own, _ in self._sizes[:blobs] if own))
        del self._sizes[:blobs]

    def snapshot(self) -> list[bytes]:
        """Blobs that build this state anew."""
        return [*self._sampler.snapshot(), *(_joined(b"", blob) for blob in self._logs.snapshot())]

    def decide(
        self, items: Items, ticks: Sequence[int] = (), releases: Sequence[int] = (), commands: Items = _NO_COMMANDS
    ) -> Decision:
        """As ``Sampler.decide``. What leaves of logs stands behind the spans."""
        if not self._follows and len(self._logs) == 0:
            decision = self._sampler.decide(items, ticks, releases, commands)
            return replace(decision, change=self._written(decision.change, b""))
        is_log = (items["mask"] & LOG) != 0
        came = items_of(in_log_order(items[is_log])).astype(ITEM)
        before = self._sampler.known(np.ascontiguousarray(came["high"]), np.ascontiguousarray(came["low"]))
        decision = self._sampler.decide(items[~is_log], ticks, releases, commands)
        known = np.concatenate([before[before["home"] > SECONDARY], self._sampler.decided])
        flushes = bool(((commands["bits"] & FLUSH) != 0).any())
        return self._with_logs(decision, came, Decisions(known), releases, flushes)

    def _with_logs(
        self, decision: Decision, came: Items, decisions: Decisions, releases: Sequence[int], flushes: bool
    ) -> Decision:
        new = len(came)
        decided, came = self._logs.take(decisions, came)
        sampled, dropped = self._divided(decided, decisions)
        away: dict[str, Followed] = {LOGS_NOT_SAMPLED: dropped}
        if releases:
            away[LOGS_RELEASED], came = self._logs.take_up_to(max(releases), came)
        away[LOGS_EVICTED], added = self._logs.add(came, self._spans_wait)
        left = [_leaving(sampled.items, decisions.of(sampled.items))]
        if self._dry_run:
            left += [_leaving(each.items, decisions.of(each.items), NOT_SAMPLED) for each in away.values()]
        passed, let_go = len(sampled.came), len(sampled.waited)
        gone = [sampled.waited, *(each.waited for each in away.values())]
        held = len(added)
        if flushes or not self._follows:
            rest = self._logs.take_all()
            left.append(_undecided(rest, FLUSHED | NO_POLICY if flushes else AS_IT_IS))
            passed, let_go = passed + len(added), let_go + len(rest) - len(added)
            gone, added, held = [*gone, rest], added[:0], 0
        skipped, lost = sum(len(each.came) for each in away.values()), sum(len(each.waited) for each in away.values())
        reasons = {reason: len(each) for reason, each in away.items() if len(each)}
        if self._dry_run:
            passed, let_go, skipped, lost, reasons = passed + skipped, let_go + lost, 0, 0, {}
        assert passed + held + skipped == new
        spans = len(decision.released) - decision.made
        change = _change_of(np.concatenate(gone), added)
        return replace(
            decision,
            released=np.concatenate([decision.released[:spans], *left, decision.released[spans:]]),
            passed=decision.passed + passed,
            let_go=decision.let_go + let_go,
            held=decision.held + held,
            skipped=decision.skipped + skipped,
            dropped=decision.dropped + lost,
            waiting=decision.waiting + len(self._logs),
            change=self._written(decision.change, change),
            holds=_lowest(dict(decision.holds), dict(self._logs.lowest_offsets())),
            reasons=dict(decision.reasons) | reasons,
            counts=dict(Counter(decision.counts) + Counter({"logs_sampled": len(sampled)})),
            levels={
                **decision.levels,
                "logs_size": self._logs.traces,
                "logs_limit": self._logs.limit,
                "state_bytes": sum(own + of_logs for own, of_logs in self._sizes),
            },
        )

    def _divided(self, decided: Followed, decisions: Decisions) -> tuple[Followed, Followed]:
        """Those of sampled traces, and the others."""
        waited, came = (decisions.of(each)["home"] == NOT_SAMPLED_HOME for each in (decided.waited, decided.came))
        return (
            Followed(decided.waited[~waited], decided.came[~came]),
            Followed(decided.waited[waited], decided.came[came]),
        )

    def _spans_wait(self, items: Items) -> npt.NDArray[np.bool_]:
        known = self._sampler.known(np.ascontiguousarray(items["high"]), np.ascontiguousarray(items["low"]))
        waits: npt.NDArray[np.bool_] = (known["home"] == PRIMARY) | (known["home"] == SECONDARY)
        return waits

    def _written(self, change: StateChange, logs: bytes) -> StateChange:
        """The change of the sampler, and that of logs."""
        own = list(change.append)
        blobs, size = len(self._sizes), sum(size for _, size in self._sizes)
        too_much = blobs >= MOST_BLOBS or size > LEAST_BYTES + 3 * len(self._logs) * BYTES_PER_ITEM
        if change.drop or (logs and too_much):
            own = own if change.drop else self._sampler.write_anew()
            others = list(self._logs.snapshot())
            self._sizes = [*((len(blob), 0) for blob in own), *((0, len(blob)) for blob in others)]
            return StateChange([*own, *(_joined(b"", blob) for blob in others)], blobs)
        if logs:
            (only,) = own or [b""]
            self._sizes.append((len(only), len(logs)))
            return StateChange([_joined(only, logs)])
        self._sizes += ((len(blob), 0) for blob in own)
        return change


def _joined(own: bytes, logs: bytes) -> bytes:
    return _HEAD.pack(VERSION, len(own)) + own + logs


def _change_of(gone: Items, added: Items) -> bytes:
    return encode_change(gone, added) if len(gone) or len(added) else b""


def _leaving(logs: Items, decided: Rows, flag: np.uint32 | int = 0) -> Items:
    """Logs that leave as their traces were decided."""
    found = _undecided(logs, flag)
    nobody = np.where(decided["home"] == NOWHERE, NO_POLICY, decided["policy"])
    found["bits"] |= nobody.astype(np.uint32)
    found["weight"] = np.where(decided["home"] == SAMPLED_HOME, decided["weight"], 1.0)
    return found


def _undecided(logs: Items, bits: np.uint32 | int) -> Items:
    left = np.zeros(len(logs), LEAVING_SPAN)
    for name in ITEM.names or ():
        left[name] = logs[name]
    left["bits"] = bits
    left["weight"] = 1.0
    return left


def _lowest(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return {place: min(each[place] for each in (one, other) if place in each) for place in {**one, **other}}
