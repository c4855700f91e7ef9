"""What a backtest has found, as one page with charts: no script, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from penstock.cli._support.screen import count, counted, size
from penstock.cli.sample_verbs.backtest_tables import NO_POLICY, NO_SERVICE, agreement_line, change, heading
from penstock.engine.backtest.backtest_report import Amounts, BacktestReport, share_of, sum_up
from penstock.engine.backtest.policy_sets import PolicySet
from penstock.engine.backtest.trace_tally import Amount
from penstock.engine.backtest.verdicts import Verdict

_TEMPLATE = Path(__file__).with_name("backtest_page.html")
_WIDTH = 520.0
"""Of a bar that is full."""
MOST_BARS = 20
"""Of a chart; a table below has all."""


@dataclass(frozen=True)
class Bar:
    """``name`` says whose it is: its color follows from that."""

    name: str
    start: float
    length: float
    text: str


@dataclass(frozen=True)
class Row:
    label: str
    bars: Sequence[Bar]


def backtest_page(report: BacktestReport) -> str:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"count": count, "size": size, "percent": lambda share: f"{share:.1%}"}
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        report=report,
        heading=heading(report),
        agreement_line=agreement_line(report),
        change=change,
        verdicts=[(verdict.name.lower(), verdict) for verdict in Verdict],
        outcome_rows=[Row(name.value, _stacked(each.amounts)) for name, each in report.sets.items()],
        agreement_bars=_agreement_bars(report),
        service_rows=_service_rows(report),
        left_out=counted(len(report.services) - MOST_BARS, "service") if len(report.services) > MOST_BARS else "",
        span_rows=_policy_rows(report, lambda amount: amount.spans, count),
        byte_rows=_policy_rows(report, lambda amount: amount.bytes, size),
        services=[
            (NO_SERVICE if service is None else service, [each.services[service] for each in report.sets.values()])
            for service in report.services
        ],
        policies=[
            (NO_POLICY if policy is None else policy, [each.decided_by(policy) for each in report.sets.values()])
            for policy in report.policies
        ],
        sum_up=sum_up,
        share_of=share_of,
        kept=Verdict.KEPT,
        width=_WIDTH,
    )


def _service_rows(report: BacktestReport) -> list[Row]:
    """The share of spans that each set keeps of each service. The longest bar is full."""
    shares = {
        service: {name: share_of(each.services[service]) for name, each in report.sets.items()}
        for service in report.services[:MOST_BARS]
    }
    most = max((share for each in shares.values() for share in each.values()), default=0.0)
    return [
        Row(NO_SERVICE if service is None else service, _side_by_side(each, most, lambda share: f"{share:.1%}"))
        for service, each in shares.items()
    ]


def _policy_rows(report: BacktestReport, measure: Callable[[Amount], int], shown: Callable[[int], str]) -> list[Row]:
    """How much each policy keeps in each set that has it. The longest bar is full."""
    found = {
        policy: {
            name: float(measure(decided.kept))
            for name, each in report.sets.items()
            if (decided := each.decided_by(policy)) is not None
        }
        for policy in report.policies
    }
    most = max((number for each in found.values() for number in each.values()), default=0.0)
    return [
        Row(NO_POLICY if policy is None else policy, _side_by_side(each, most, lambda number: shown(int(number))))
        for policy, each in found.items()
    ]


def _side_by_side(values: dict[PolicySet, float], most: float, shown: Callable[[float], str]) -> list[Bar]:
    return [
        Bar(name.value, 0.0, _WIDTH * value / most if most else 0.0, shown(value)) for name, value in values.items()
    ]


def _stacked(amounts: Amounts) -> list[Bar]:
    total = sum_up(amounts).spans
    return _end_to_end({verdict.name.lower(): amount.spans for verdict, amount in amounts.items()}, total)


def _agreement_bars(report: BacktestReport) -> list[Bar]:
    found = report.agreement
    numbers = {
        "both keep": found.both,
        "only live": found.only_live,
        "only candidate": found.only_candidate,
        "neither": found.neither,
    }
    return _end_to_end(numbers, report.traces)


def _end_to_end(numbers: dict[str, int], total: int) -> list[Bar]:
    bars, start = [], 0.0
    for name, number in numbers.items():
        length = _WIDTH * number / total if total else 0.0
        bars.append(Bar(name, start, length, f"{count(number)} ({number / total if total else 0:.1%})"))
        start += length
    return bars
