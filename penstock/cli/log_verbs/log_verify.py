"""``penstock log verify``: reads all of the log and says what is damaged. Changes nothing, takes no lock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from penstock.cli._support.exit_codes import Exit
from penstock.cli._support.open_pipeline import open_pipeline, read_config
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.progress_bar import partition_bars
from penstock.cli._support.screen import JsonValue, count, counted, note, print_json, printable, show, size, table
from penstock.cli.log_verbs.log import PartitionOption, chosen_partitions, open_log
from penstock.errors import LedgerUnavailable, LogError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from penstock.engine.delivery.log_gaps import Gap
    from penstock.log.maintenance.verify import Damage, PartitionCheck, Quarantined


def verify_log(partition: PartitionOption = None, config: ConfigOption = CONFIG, json: JsonOption = False) -> None:
    """Check every byte of the log: checksums, the order of offsets, indexes; and that no record a route still needs is
    missing. Ends with 1 if something is damaged or missing."""
    from penstock.log.maintenance.verify import verify

    log = open_log(config)
    began = time.perf_counter()
    with partition_bars("checking") as progress:
        found = list(verify(log, chosen_partitions(log, partition), progress))
    seconds = time.perf_counter() - began
    missing = [gap for gap in _gaps(config) if partition in (None, gap.partition)]
    if json:
        print_json([check_object(check, missing) for check in found])
    else:
        show(checks_table(found), *damage_lines(found), *(f"partition {gap.partition}: {gap.what}" for gap in missing))
        total = sum(check.bytes for check in found)
        note(f"{size(total)} in {seconds:.1f} s, {total / 1e6 / max(seconds, 1e-9):,.0f} MB/s")
    if not all(check.is_whole for check in found):
        note("Put undamaged copies of these files in their place, or go on without what is lost: penstock log repair")
    for gap in missing:
        note(gap.fix)
    if missing or not all(check.is_whole for check in found):
        raise typer.Exit(Exit.PROBLEMS)


def _gaps(config: Path) -> list[Gap]:
    """What routes have not read and the log no longer has. None for a pipeline that never ran, or whose
    ledger is unavailable, or whose log has no readable end."""
    from penstock.engine.delivery.log_gaps import gaps
    from penstock.engine.layout import Layout

    read = read_config(config)
    if read.ledger.url is None and not Layout(read.data_dir).ledger.exists():
        return []
    try:
        with open_pipeline(config) as pipeline:
            return [
                gap
                for route in read.routes
                for gap in gaps(pipeline.log, pipeline.ledger, route, pipeline.sources_of(route))
            ]
    except (LedgerUnavailable, LogError) as error:
        note(f"what routes have not read was not looked for: {error}")
        return []


def check_object(check: PartitionCheck, missing: Sequence[Gap]) -> dict[str, JsonValue]:
    return {
        **asdict(check),
        "whole": check.is_whole,
        "damage": [damage_object(damage) for damage in check.damage],
        "wrong_indexes": [str(path) for path in check.wrong_indexes],
        "missing": [
            {"route": gap.route, "first": gap.first, "end": gap.last + 1}
            for gap in missing
            if gap.partition == check.partition
        ],
    }


def damage_object(damage: Damage) -> dict[str, JsonValue]:
    return {**asdict(damage), "segment": str(damage.segment)}


def checks_table(found: Sequence[PartitionCheck]) -> Table:
    numbers = ("partition", "segments", "frames", "records", "size", "damaged")
    listing = table("partition", "source", *numbers[1:], numbers=numbers)
    for check in found:
        counts = map(count, (check.segments, check.frames, check.records))
        listing.add_row(str(check.partition), check.source, *counts, size(check.bytes), count(len(check.damage)))
    return listing


def damage_lines(found: Sequence[PartitionCheck]) -> list[str]:
    """A line for each damage, and for each earlier repair."""
    lines: list[str] = []
    for check in found:
        lines += [damage_line(damage) for damage in check.damage]
        lines += [f"partition {check.partition}: {path} does not fit its segment" for path in check.wrong_indexes]
        if check.head_problem is not None:
            lines.append(f"partition {check.partition}: {printable(check.head_problem)}")
        lines += [quarantined_line(check.partition, earlier) for earlier in check.quarantined]
    return lines


def damage_line(damage: Damage) -> str:
    place = f"byte {count(damage.position)}, {counted(damage.bytes, 'byte')}"
    lost = lost_offsets(damage.first, damage.end)
    return f"partition {damage.partition}: {damage.segment}, {place}: {damage.why}; {lost} cannot be read"


def quarantined_line(partition: int, earlier: Quarantined) -> str:
    lost = lost_offsets(earlier.first, earlier.end)
    return f"partition {partition}: {lost} of {earlier.segment} are gone since the repair of {earlier.at}"


def lost_offsets(first: int, end: int) -> str:
    if first == end:
        return "no offsets"
    return f"offset {first}" if end == first + 1 else f"offsets {first}..{end - 1}"
