"""``penstock sample flush``: what operators ask of samplers."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.operator import current_operator
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import counted, print_json


def flush_sampler(
    route: Annotated[str, typer.Argument(help="The route's name in the config.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with your name.")] = "",
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Let every trace that waits for a decision go on, and then all decisions, as decision spans, so that another
    pipeline can go on with them. The sampler has forgotten them then. Also works while the pipeline runs."""
    from penstock.engine.operate.samplers import flush

    with open_pipeline(config) as pipeline:
        done = flush(pipeline, route, current_operator(reason))
    if json:
        print_json(asdict(done))
    else:
        when = "with its next batch" if done.now else "at the next start"
        sys.stdout.write(f"{route}: {counted(done.waiting, 'span')} that wait, and all decisions, leave {when}\n")
