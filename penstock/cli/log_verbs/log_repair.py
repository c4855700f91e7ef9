"""``penstock log repair``: removes damage from the log, and says exactly which offsets are lost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.confirm import require_yes
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.progress_bar import partition_bars
from penstock.cli._support.screen import JsonValue, counted, note, print_json, show
from penstock.cli.log_verbs.log import PartitionOption, chosen_partitions, open_log
from penstock.cli.log_verbs.log_verify import damage_lines, damage_object, lost_offsets

if TYPE_CHECKING:
    from penstock.log.maintenance.repair import Repaired


def repair_log(
    partition: PartitionOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Move damaged bytes to quarantine/ and continue without them. Asks first. The pipeline must be stopped."""
    from penstock.log.maintenance.repair import repair, require_no_writer
    from penstock.log.maintenance.verify import verify

    log = open_log(config)
    partitions = chosen_partitions(log, partition)
    require_no_writer(log, partitions)
    with partition_bars("checking") as progress:
        found = [check for check in verify(log, partitions, progress) if not check.is_whole]
    if found and not yes:
        for line in damage_lines(found):
            note(line)
        lost = sum(damage.end - damage.first for check in found for damage in check.damage)
        require_yes(f"Give up {counted(lost, 'offset')} for good?")
    done = repair(log, [check.partition for check in found])
    if json:
        print_json([repaired_object(each) for each in done])
        return
    for each in done:
        show(*repaired_lines(each))
    if not done:
        note("nothing is damaged, nothing was done")


def repaired_object(done: Repaired) -> dict[str, JsonValue]:
    lost = [damage_object(damage) for damage in done.lost]
    return {**asdict(done), "lost": lost, "quarantine": str(done.quarantine)}


def repaired_lines(done: Repaired) -> list[str]:
    where = f"partition {done.partition} ({done.source})"
    lines = []
    for damage in done.lost:
        kept = f"{counted(damage.bytes, 'byte')} are in {done.quarantine}" if damage.bytes else "there were no bytes"
        lines.append(f"{where}: {lost_offsets(damage.first, damage.end)} of {damage.segment.name} are gone; {kept}")
    if done.indexes:
        lines.append(f"{where}: {counted(done.indexes, 'index', 'indexes')} written again")
    if done.head_problem is not None:
        lines.append(f"{where}: its end was found again")
    if done.torn:
        lines.append(f"{where}: {counted(done.torn, 'byte')} of a torn write were cut off after the last record")
    return lines
