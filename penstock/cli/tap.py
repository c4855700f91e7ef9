"""``penstock tap``: what flows through a route, after any of its steps. It touches nothing and starts no Spark."""

from __future__ import annotations

from itertools import islice
from threading import Event
from typing import Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, FullOption, NdjsonOption
from penstock.cli._support.record_lines import print_records
from penstock.cli._support.screen import note
from penstock.stop_signals import call_on_stop_signals


def tap(
    where: Annotated[str, typer.Argument(metavar="ROUTE[:STEP]", help="A route, or the place after one of its steps.")],
    oldest: Annotated[bool, typer.Option("--oldest", help="Begin with the oldest record, not with the next.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more at the end of the log.")] = True,
    full: FullOption = False,
    config: ConfigOption = CONFIG,
    json: NdjsonOption = False,
) -> None:
    """Show records as they are after a step, from now on, until Ctrl-C."""
    from penstock.engine.operate.tap import tap as records_of

    route, _, step = where.partition(":")
    stopping = Event()
    with open_pipeline(config) as pipeline, call_on_stop_signals(stopping.set):
        flowing = records_of(pipeline, route, step or None, oldest, follow, stopping)
        if follow and not json:
            note("waiting for records; Ctrl-C stops")
        print_records(islice(flowing, limit), json, full)
