"""What a backtest has found: what becomes of traces under each of two sets of policies, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.engine.backtest.policy_sets import SETS, ComparedSets, PolicySet
from penstock.engine.backtest.trace_tally import Amount, Cell, Level, Tally
from penstock.engine.backtest.verdicts import NOBODY, Verdict

Amounts = Mapping[Verdict, Amount]


@dataclass(frozen=True)
class PolicyCount:
    """What a policy has decided; ``None`` for what no policy has: evicted from a full cache, over a limit of the trace,
    or decided by another sampler."""

    policy: str | None
    kept: Amount
    dropped: Amount

    def of(self, verdict: Verdict) -> Amount:
        """Nothing waits because of a policy."""
        return {Verdict.KEPT: self.kept, Verdict.DROPPED: self.dropped}.get(verdict, Amount())


@dataclass(frozen=True)
class SetCounts:
    """What becomes of the traces under one set."""

    amounts: Amounts
    policies: Sequence[PolicyCount]
    """All of the set, in their order; last what none of them has decided."""
    services: Mapping[str | None, Amounts]
    """By name; ``None`` for spans without one."""

    def decided_by(self, policy: str | None) -> PolicyCount | None:
        """``None`` if the set has no such policy."""
        return next((each for each in self.policies if each.policy == policy), None)

    @property
    def total(self) -> Amount:
        """Spans and bytes of all; a trace counts once for every verdict that spans of it have."""
        return sum_up(self.amounts)

    @property
    def kept_share(self) -> float:
        """Of the spans."""
        return share_of(self.amounts)


@dataclass(frozen=True)
class Agreement:
    """How many traces are kept by which set. One of which any span is kept counts as kept."""

    both: int
    only_live: int
    only_candidate: int
    neither: int


@dataclass(frozen=True)
class BacktestReport:
    route: str
    since: datetime | None
    until: datetime | None
    """As they were asked for; ``None`` is all that the log has."""
    records: int
    """In the range, whatever they are."""
    batch_seconds: float
    traces: int
    agreement: Agreement
    sets: Mapping[PolicySet, SetCounts]

    @property
    def live(self) -> SetCounts:
        return self.sets[PolicySet.LIVE]

    @property
    def candidate(self) -> SetCounts:
        return self.sets[PolicySet.CANDIDATE]

    @property
    def services(self) -> list[str | None]:
        """Of either set, those with the most spans first."""
        spans = {
            service: sum_up(amounts).spans for each in self.sets.values() for service, amounts in each.services.items()
        }
        return sorted(spans, key=lambda service: (-spans[service], service is None, service))

    @property
    def policies(self) -> list[str | None]:
        """Of either set, in their order; last the place of those that no policy has decided."""
        names = dict.fromkeys(count.policy for each in self.sets.values() for count in each.policies)
        return [name for name in names if name is not None] + [None] * (None in names)


def sum_up(amounts: Amounts) -> Amount:
    return sum(amounts.values(), Amount())


def share_of(amounts: Amounts) -> float:
    """The share of spans that are kept; 0 if there are none."""
    spans = sum_up(amounts).spans
    return amounts[Verdict.KEPT].spans / spans if spans else 0.0


def set_counts(tally: Tally, sets: ComparedSets) -> dict[PolicySet, SetCounts]:
    return {name: _counts(tally, sets, number) for number, name in enumerate(SETS)}


def agreement(tally: Tally) -> Agreement:
    kept = [tally.get(Cell(Level.VERDICT, number, Verdict.KEPT), Amount()).traces for number in range(len(SETS))]
    both = tally.get(Cell(Level.KEPT_BY_ALL), Amount()).traces
    only_live, only_candidate = (number - both for number in kept)
    return Agreement(both, only_live, only_candidate, all_traces(tally) - both - only_live - only_candidate)


def all_traces(tally: Tally) -> int:
    return tally.get(Cell(Level.ALL), Amount()).traces


def _counts(tally: Tally, sets: ComparedSets, number: int) -> SetCounts:
    def by_verdict(level: Level, policy: int | None = None, service: str | None = None) -> dict[Verdict, Amount]:
        return {each: tally.get(Cell(level, number, each, policy, service), Amount()) for each in Verdict}

    names = sets.policy_names(number)
    policies = []
    for policy in [*sets.asked_policies(number), None]:
        found = by_verdict(Level.POLICY, policy=NOBODY if policy is None else names.index(policy))
        count = PolicyCount(policy, found[Verdict.KEPT], found[Verdict.DROPPED])
        if policy is not None or count.kept.spans or count.dropped.spans:
            policies.append(count)
    known = {cell.service for cell in tally if cell.level is Level.SERVICE}
    services = {service: by_verdict(Level.SERVICE, service=service) for service in known}
    return SetCounts(by_verdict(Level.VERDICT), policies, services)
