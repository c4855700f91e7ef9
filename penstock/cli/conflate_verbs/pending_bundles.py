"""``penstock conflate pending``: which bundles wait, since when and for what."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import count, moment_of, note, print_json, printable, show, table


def show_pending(
    route: Annotated[str | None, typer.Argument(help="One route; all that keep state, without it.")] = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Show the bundles that wait, the oldest first, and the reason of each."""
    from penstock.engine.operate.conflated_routes import pending_bundles

    with open_pipeline(config) as pipeline:
        found = pending_bundles(pipeline, route)
    if json:
        print_json([asdict(each) for each in found])
        return
    if not found:
        note("no bundle waits")
        return
    rows = [
        (each.route, printable(each.source), printable(each.kind), each.version, count(each.bundles),
         moment_of(each.since), printable(each.reason))
        for each in found
    ]  # fmt: skip
    show(table("route", "source", "kind", "version", "bundles", "since", "reason", rows=rows, numbers=["bundles"]))
