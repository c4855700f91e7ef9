"""``penstock log import``: imports a file of another program into the log, with its offsets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._support.open_pipeline import read_config
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import counted, note, print_json, show, size
from penstock.cli.log_verbs.log import open_log
from penstock.cli.log_verbs.log_export import FormatOption, LogFormat


def import_log(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The file to read.")],
    source: Annotated[
        str, typer.Option("--source", metavar="NAME", help="Routes from this source take the records.")
    ] = "import",
    layout: FormatOption = LogFormat.TRANSPORTER,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Append the entries of a file to a partition of its own. Refuses a damaged file completely."""
    from penstock.config.pipeline_config import checked_name
    from penstock.log.exchange.import_log import import_transporter

    try:
        checked_name(source)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--source") from None
    done = import_transporter(open_log(config), file, source)
    if json:
        print_json({**asdict(done), "format": layout})
    else:
        new = counted(done.entries - done.there_before, "entry", "entries")
        before = f"; {done.there_before:,} were there from an earlier import" if done.there_before else ""
        show(f"partition {done.partition} ({done.source}): {new} of {size(done.bytes)}{before}")
    read = read_config(config)
    if not any(source in route.from_ for route in read.routes.values()):
        note(f"no route takes records from '{source}': nothing holds them against the log's retention")
        note(f"give them to a route with --source: {', '.join(read.sources)}")
