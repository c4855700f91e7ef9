"""``penstock log export``: a partition, or a part of it, as a file that other programs read."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._support.offset_ranges import range_argument
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import counted, note, print_json, show, size
from penstock.cli.log_verbs.log import PartitionOption, chosen_partitions, open_log


class LogFormat(StrEnum):
    TRANSPORTER = "transporter"


FormatOption = Annotated[LogFormat, typer.Option("--format", help="The layout of the file.")]


def export_log(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[A..B] FILE", help="Offsets, both ends included, by default all; the file to make."),
    ],
    layout: FormatOption = LogFormat.TRANSPORTER,
    partition: PartitionOption = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Write records to a file in another program's layout."""
    from penstock.log.exchange.export_log import export_transporter

    if len(words) > 2:
        raise typer.BadParameter(f"expected offsets and one file, got {len(words)} words", param_hint="[A..B] FILE")
    wanted = range_argument(words[0], "A..B") if len(words) == 2 else None
    log = open_log(config)
    partitions = chosen_partitions(log, partition)
    if len(partitions) != 1:
        raise typer.BadParameter(
            f"a file holds one partition; the log has {', '.join(map(str, partitions)) or 'none'}",
            param_hint="--partition",
        )
    start = 0 if wanted is None else wanted.first
    end = None if wanted is None or wanted.last is None else wanted.last + 1
    done = export_transporter(log, partitions[0], Path(words[-1]), start, end)
    if json:
        print_json({**asdict(done), "path": str(done.path), "format": layout})
        return
    show(f"{done.path}: {counted(done.entries, 'entry', 'entries')}, {size(done.bytes)}")
    if done.keys_left_out or done.headers_left_out:
        note(
            f"the layout has no room for a record's key ({done.keys_left_out:,} have one) and headers "
            f"({done.headers_left_out:,} have some): they are not in the file"
        )
