"""Logs that follow traces, in plain Python: the plain sampler, and a dictionary of logs that wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sampling.reference import Left, Reference, Result, Span, Verdict, Waiting


@dataclass(frozen=True)
class Log:
    """A log record; ``at`` is its place in the log, and its name in results."""

    trace: bytes
    at: int


@dataclass
class Decided:
    sampled: bool
    policy: str | None
    weight: float


@dataclass
class FollowedResult:
    spans: Result
    left: list[Left] = field(default_factory=list)
    """Logs, in any order."""
    reasons: dict[str, int] = field(default_factory=dict)


class FollowedReference(Reference):
    """One shard of so many."""

    noted: dict[bytes, Decided]
    """What this batch has decided, or known to be decided."""

    def follow(
        self,
        spans: list[Span],
        logs: list[Log],
        waiting: dict[bytes, list[Log]],
        releases: list[int],
        rates: dict[str, float],
        flush: bool,
        limit: int,
    ) -> FollowedResult:
        known = {trace: Decided(True, *self.sampled[trace]) for trace in self.sampled}
        known |= {trace: Decided(False, policy, 1.0) for trace, policy in self.not_sampled.items()}
        self.noted = {}
        found = FollowedResult(self.decide(spans, releases, rates, flush))
        decided = {log.trace: known[log.trace] for log in logs if log.trace in known} | self.noted
        for trace in [*waiting, *dict.fromkeys(log.trace for log in logs)]:
            came = [log for log in logs if log.trace == trace]
            if trace in decided:
                self._end(found, decided[trace], waiting.pop(trace, []) + came)
                logs = [log for log in logs if log.trace != trace]
        for trace, old in list(waiting.items()):
            if any(log.at // 3 <= stamp // 3 for log in old for stamp in releases):
                self._drop(found, "logs_evicted_release", waiting.pop(trace))
        for log in logs:
            if any(log.at // 3 <= stamp // 3 for stamp in releases):
                self._drop(found, "logs_evicted_release", [log])
            else:
                waiting.setdefault(log.trace, []).append(log)
        if len(waiting) > limit:
            most = len(waiting) - limit + limit // 8
            alone = [trace for trace in waiting if trace not in self.primary and trace not in self.secondary]
            for trace in sorted(alone, key=lambda trace: waiting[trace][0].at)[:most]:
                self._drop(found, "logs_evicted", waiting.pop(trace))
        if flush:
            found.left += [Left(log.at, "flushed", None, 1.0) for each in waiting.values() for log in each]
            waiting.clear()
        return found

    def _end(self, found: FollowedResult, decided: Decided, logs: list[Log]) -> None:
        if decided.sampled:
            found.left += [Left(log.at, "sampled", decided.policy, decided.weight) for log in logs]
        else:
            self._drop(found, "logs_not_sampled", logs, decided.policy)

    def _drop(self, found: FollowedResult, reason: str, logs: list[Log], policy: str | None = None) -> None:
        if self.dry_run:
            found.left += [Left(log.at, "not_sampled", policy, 1.0) for log in logs]
        elif logs:
            found.reasons[reason] = found.reasons.get(reason, 0) + len(logs)

    # Where decisions are made, or met

    def arrive(self, trace: bytes, spans: list[Span]) -> None:
        if trace in self.sampled:
            self.noted[trace] = Decided(True, *self.sampled[trace])
        elif trace in self.not_sampled:
            self.noted[trace] = Decided(False, self.not_sampled[trace], 1.0)
        super().arrive(trace, spans)

    def settle(
        self, trace: bytes, earlier: Waiting, spans: list[Span], verdict: Verdict, policy: str | None, reason: str
    ) -> None:
        super().settle(trace, earlier, spans, verdict, policy, reason)
        self.noted[trace] = Decided(verdict.answer == "Sampled", policy, verdict.weight)

    def remember_not_sampled(self, trace: bytes, policy: str | None) -> None:
        super().remember_not_sampled(trace, policy)
        self.noted[trace] = Decided(False, policy, 1.0)
