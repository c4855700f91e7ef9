"""What a backtest has found, as tables for people and as JSON for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli._support.screen import JsonValue, count, counted, moment, printable, size, table
from penstock.engine.backtest.backtest_report import Amounts, BacktestReport, SetCounts, share_of, sum_up
from penstock.engine.backtest.trace_tally import Amount
from penstock.engine.backtest.verdicts import Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

NO_POLICY, NO_SERVICE = "(no policy)", "(no name)"


def backtest_tables(report: BacktestReport) -> list[RenderableType]:
    found: list[RenderableType] = [heading(report), _outcomes(report), _policies(report)]
    if report.services:
        found.append(_services(report))
    return [*found, agreement_line(report)]


def heading(report: BacktestReport) -> str:
    """What was looked at, in one line."""
    since = "the oldest record" if report.since is None else moment(report.since)
    until = "the newest" if report.until is None else moment(report.until)
    records = counted(report.records, "record")
    return f"route {report.route}, from {since} to {until}: {records}, in batches of {report.batch_seconds:g} s"


def agreement_line(report: BacktestReport) -> str:
    """Which set keeps how many traces."""
    found = report.agreement
    return (
        f"of {counted(report.traces, 'trace')} both sets keep {count(found.both)}, only live {count(found.only_live)},"
        f" only candidate {count(found.only_candidate)}, neither {count(found.neither)}"
    )


def change(live: int, candidate: int) -> str:
    """``+1,200``"""
    return f"{candidate - live:+,}" if candidate != live else "="


def report_object(report: BacktestReport) -> dict[str, JsonValue]:
    agreement = report.agreement
    return {
        "route": report.route,
        "from": None if report.since is None else moment(report.since),
        "to": None if report.until is None else moment(report.until),
        "records": report.records,
        "batch_seconds": report.batch_seconds,
        "traces": {
            "all": report.traces,
            "kept_by_both": agreement.both,
            "kept_only_by_live": agreement.only_live,
            "kept_only_by_candidate": agreement.only_candidate,
            "kept_by_neither": agreement.neither,
        },
        "sets": {name.value: _set_object(each) for name, each in report.sets.items()},
    }


def _set_object(found: SetCounts) -> dict[str, JsonValue]:
    by_name = sorted(found.services.items(), key=lambda each: (each[0] is None, each[0] or ""))
    return {
        **_amounts_object(found.amounts),
        "estimated_traces": _estimated(found.amounts[Verdict.KEPT]),
        "policies": [
            {
                "policy": each.policy,
                "kept": _amount_object(each.kept),
                "dropped": _amount_object(each.dropped),
                "estimated_traces": _estimated(each.kept),
            }
            for each in found.policies
        ],
        "services": [{"service": service, **_amounts_object(amounts)} for service, amounts in by_name],
    }


def _amounts_object(amounts: Amounts) -> dict[str, JsonValue]:
    return {verdict.name.lower(): _amount_object(amount) for verdict, amount in amounts.items()}


def _amount_object(amount: Amount) -> dict[str, JsonValue]:
    return {"traces": amount.traces, "spans": amount.spans, "bytes": amount.bytes}


def _estimated(kept: Amount) -> float:
    return round(kept.weight, 1)


def _outcomes(report: BacktestReport) -> Table:
    rows = []
    for verdict in Verdict:
        for place, (name, each) in enumerate(report.sets.items()):
            found, total = each.amounts[verdict], each.total
            share = f"{found.spans / total.spans:.1%}" if total.spans else "-"
            label = "" if place else verdict.name.lower()
            rows.append((label, name.value, count(found.traces), count(found.spans), size(found.bytes), share))
    numbers = ("traces", "spans", "bytes", "of spans")
    return table("", "policies", *numbers, rows=rows, numbers=numbers)


def _policies(report: BacktestReport) -> Table:
    rows = []
    for policy in report.policies:
        name = NO_POLICY if policy is None else printable(policy)
        found = [each.decided_by(policy) for each in report.sets.values()]
        for verdict in (Verdict.KEPT, Verdict.DROPPED):
            amounts = [None if each is None else each.of(verdict) for each in found]
            expected = policy is not None and verdict is Verdict.KEPT
            if expected or any(each is not None and each.spans for each in amounts):
                traces = [None if each is None else each.traces for each in amounts]
                spans = [None if each is None else each.spans for each in amounts]
                rows.append((name, verdict.name.lower(), *_compared(*traces), *_compared(*spans)))
    numbers = ("traces live", "candidate", "change", "spans live", "candidate", "change")
    return table("policy", "", *numbers, rows=rows, numbers=numbers)


def _compared(live: int | None, candidate: int | None) -> list[str]:
    """Both numbers, and by how much they differ; a set that lacks the policy has none."""
    shown = ["-" if number is None else count(number) for number in (live, candidate)]
    return [*shown, change(live or 0, candidate or 0)]


def _services(report: BacktestReport) -> Table:
    rows = []
    for service in report.services:
        amounts = [each.services[service] for each in report.sets.values()]
        kept = [each[Verdict.KEPT].spans for each in amounts]
        shares = [f"{share_of(each):.1%}" for each in amounts]
        name = NO_SERVICE if service is None else printable(service)
        rows.append((name, count(sum_up(amounts[0]).spans), *map(count, kept), change(*kept), *shares))
    numbers = ("spans", "kept live", "candidate", "change", "share live", "candidate")
    return table("service", *numbers, rows=rows, numbers=numbers)
