"""``penstock backup`` and ``penstock restore``: a consistent copy of a pipeline's data, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline, read_config
from penstock.cli._support.operator import current_operator
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.progress_bar import progress_bars
from penstock.cli._support.screen import JsonValue, count, counted, note, print_json, size

if TYPE_CHECKING:
    from penstock.engine.backup.manifest import Manifest
    from penstock.engine.backup.restore_backup import ResumedRoute


def back_up(
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A folder that is new, or empty.")],
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Copy log, ledger, failed store and the progress of sources into a folder, also while the pipeline runs."""
    from penstock.engine.backup.create_backup import back_up as make

    with open_pipeline(config) as pipeline, progress_bars() as report:
        manifest = make(pipeline, target.absolute(), partial(report, "copying"))
    if json:
        print_json({"backup": str(target), **_described(manifest)})
        return
    sys.stdout.write(f"{target}: {counted(len(manifest.files), 'file')}, {size(manifest.bytes)}\n")
    if not manifest.has_ledger:
        note("the ledger is a PostgreSQL database and is not in it: back it up with pg_dump, before this")


def restore(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A folder that `penstock backup` made.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing data; the old data is kept in a folder next to it.")
    ] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Replace `data_dir` with a backup, and let every route continue after what its destination has."""
    from penstock.engine.backup.restore_backup import restore as put_back

    with progress_bars() as report:
        report_progress = partial(report, "restoring")
        done = put_back(read_config(config), source.absolute(), current_operator("restore"), force, report_progress)
    if json:
        print_json(
            {
                "restored": str(source),
                "before": None if done.before is None else str(done.before),
                "left": None if done.left is None else str(done.left),
                "routes": [
                    {name: value if name == "adopted" else value or None for name, value in asdict(route).items()}
                    for route in done.routes
                ],
                **_described(done.manifest),
            }
        )
        return
    if done.left is not None:
        note(f"what was there before a restore that was killed is in {done.left}")
    if done.before is not None:
        note(f"what was there before is in {done.before}")
    for route in done.routes:
        for line in _route_lines(route):
            note(line)
    made = done.manifest.made_at
    sys.stdout.write(f"{source}, made at {made}, is restored: {counted(len(done.manifest.files), 'file')}\n")


def _route_lines(route: ResumedRoute) -> Iterator[str]:
    if route.adopted:
        yield f"{route.route}: {count(route.adopted)} offsets are at the destination already; they are not sent again"
    for message in (route.missing, route.replayed):
        if message:
            yield f"{route.route}: {message}"
    if route.unknown:
        yield (
            f"{route.route}: what is at the destination could not be taken over ({route.unknown}); it is checked when"
            " the route starts"
        )


def _described(manifest: Manifest) -> dict[str, JsonValue]:
    return {
        "pipeline": manifest.pipeline,
        "made_at": manifest.made_at,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "has_ledger": manifest.has_ledger,
    }
