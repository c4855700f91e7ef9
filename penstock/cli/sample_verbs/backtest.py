"""``penstock sample backtest``: what other policies would have kept of the traces in the log. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import note, print_json, show

if TYPE_CHECKING:
    from datetime import datetime

PoliciesArgument = Annotated[
    Path, typer.Argument(metavar="POLICIES", help="A YAML file with the options of a step `sample`, or its policies.")
]
RouteOption = Annotated[
    str | None, typer.Option("--route", help="The route to compare with; needed if several have a step `sample`.")
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Only what came since: 90s, 1h or 7d ago, or a time (UTC)."),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="Only what came before: 90s, 1h or 7d ago, or a time (UTC)."),
]
EveryOption = Annotated[
    str | None,
    typer.Option("--every", metavar="TIME", help="How long a batch lasts, such as 250ms; by default as on the route."),
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page with charts, too; it needs no network.")
]


def backtest(
    policies: PoliciesArgument,
    route: RouteOption = None,
    since: FromOption = None,
    until: ToOption = None,
    every: EveryOption = None,
    html: HtmlOption = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Run other policies over the traces in the log, and compare what they keep with what the route's own keep. Nothing
    is delivered or changed; also works while the pipeline runs."""
    from penstock.cli.sample_verbs.backtest_tables import backtest_tables, report_object
    from penstock.engine.backtest.policy_file import load_policies
    from penstock.engine.backtest.policy_sets import sampled_route
    from penstock.engine.backtest.run_backtest import run_backtest

    first, last = _moment(since, "--from"), _moment(until, "--to")
    if first is not None and last is not None and first >= last:
        raise typer.BadParameter("it is not after --from.", param_hint="--to")
    candidate, seconds = load_policies(policies), _duration(every)
    with open_pipeline(config) as pipeline:
        chosen = sampled_route(pipeline.config, route)
        if not json:
            note("reading the log with Spark; Ctrl-C stops")
        report = run_backtest(pipeline, chosen, candidate, first, last, seconds)
    if html is not None:
        from penstock.cli.sample_verbs.backtest_page import backtest_page

        html.write_text(backtest_page(report), encoding="utf-8")
    if json:
        print_json(report_object(report))
    else:
        show(*backtest_tables(report))


def _moment(text: str | None, option: str) -> datetime | None:
    from penstock.cli._support.times import time_since

    try:
        return None if text is None else time_since(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _duration(text: str | None) -> float | None:
    from penstock.config.value_types.quantities import seconds

    try:
        found = None if text is None else seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--every") from None
    if found is not None and found <= 0:
        raise typer.BadParameter("a batch lasts longer than nothing.", param_hint="--every")
    return found
