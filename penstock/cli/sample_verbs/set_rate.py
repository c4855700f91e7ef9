"""``penstock sample rate``: how many percent a policy samples from now on."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.operator import current_operator
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import print_json


def set_sampling_rate(
    route: Annotated[str, typer.Argument(help="The route's name in the config.")],
    policy: Annotated[str, typer.Argument(help="A policy `remote_probabilistic` with `rate_from: ledger`.")],
    percent: Annotated[float, typer.Argument(help="Percent of traces, from 0 to 100.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with your name.")] = "",
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Set how many percent of traces a policy samples from now on. It holds until you set another percentage, over
    restarts, too. Also works while the pipeline runs."""
    from penstock.engine.operate.samplers import set_rate

    with open_pipeline(config) as pipeline:
        done = set_rate(pipeline, route, policy, percent, current_operator(reason))
    if json:
        print_json(asdict(done))
    else:
        when = "with its next batch" if done.now else "from the next start on"
        sys.stdout.write(f"{route}: policy {policy} samples {percent:g} % of traces {when}\n")
