"""``penstock conflate forget``: deletes what a source has reported."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli._support.confirm import require_yes
from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import counted, print_json, printable


def forget(
    source: Annotated[str, typer.Argument(help="The source, as its bundles name it.")],
    route: Annotated[str | None, typer.Option("--route", metavar="NAME", help="Only at this route's database.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Delete all rows and versions of a source from the database, in one transaction, and what waits of it. Its next
    bundle, whatever its version, makes it known again. Also works while the pipeline runs."""
    from penstock.engine.operate.conflated_routes import forget_source

    if not yes:
        require_yes(f"Delete all rows and versions of source '{printable(source)}'?")
    with open_pipeline(config) as pipeline:
        done = forget_source(pipeline, source, route)
        if json:
            print_json([asdict(each) for each in done])
            return
        for each in done:
            waited = f", {counted(each.waiting, 'bundle')} that waited skipped" if each.waiting else ""
            sys.stdout.write(f"{each.route}: {counted(each.rows, 'row')} of {printable(source)} deleted{waited}\n")
