"""``penstock log compact``: keeps only the newest record of each key, in segments that no route needs. Works while the
pipeline runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.confirm import require_yes
from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.progress_bar import partition_bars
from penstock.cli._support.screen import JsonValue, count, counted, note, print_json, printable, show, size, table
from penstock.cli.log_verbs.log import PartitionOption, chosen_partitions

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.engine.pipeline import Pipeline
    from penstock.log.maintenance.compaction import Compacted, CompactionPreview, DroppedRecords

_NAMED = 20
"""How many namespaces of a partition are listed to a person."""


def compact_log(
    partition: PartitionOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be dropped, and drop nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Drop records that a newer one of the same key has replaced, from closed segments that no route needs. Asks first.

    A record's key is its namespace and its own key. Of records without an own key, it keeps the newest per namespace.
    """
    from penstock.log.maintenance.compaction import compact

    with open_pipeline(config) as pipeline:
        pipeline.check_log()
        partitions = chosen_partitions(pipeline.log, partition)
        needs, floors = pipeline.needed_offsets(), pipeline.floors()
        sources = {number: owner.source for number, owner in pipeline.log.partitions().items()}
        found = _preview(pipeline, floors, partitions) if dry_run or not yes else []
        if dry_run:
            _show_preview(found, sources, json)
            return
        going = sum(each.dropped for each in found)
        if going:
            for line in preview_lines(found, sources):
                note(line)
            require_yes(f"Drop {counted(going, 'record')} for good?")
        with partition_bars("compacting") as progress:
            done = compact(pipeline.log, floors, partitions, progress)
        ends = {number: pipeline.log.bounds(number).end for number in partitions}
    held = {each.partition: _holders(needs, each, ends[each.partition]) for each in done}
    if json:
        print_json(
            [{**asdict(each), "source": sources[each.partition], "held_by": held[each.partition]} for each in done]
        )
        return
    show(compacted_table(done, sources))
    for each in done:
        if held[each.partition]:
            routes = ", ".join(held[each.partition])
            note(f"partition {each.partition}: offsets from {each.floor} on are held by {routes}")


def _preview(pipeline: Pipeline, floors: Mapping[int, int], partitions: Sequence[int]) -> list[CompactionPreview]:
    from penstock.log.maintenance.compaction import preview_compaction

    with partition_bars("looking through") as progress:
        return preview_compaction(pipeline.log, floors, partitions, progress)


def _show_preview(found: Sequence[CompactionPreview], sources: Mapping[int, str], as_json: bool) -> None:
    if as_json:
        print_json([preview_object(each, sources[each.partition]) for each in found])
        return
    lines = list(preview_lines(found, sources))
    show("\n".join(lines)) if lines else note("nothing would be dropped")


def preview_object(each: CompactionPreview, source: str) -> dict[str, JsonValue]:
    return {
        "partition": each.partition,
        "source": source,
        "floor": each.floor,
        "records": each.records,
        "dropped": each.dropped,
        "namespaces": [asdict(going) for going in each.going],
    }


def preview_lines(found: Sequence[CompactionPreview], sources: Mapping[int, str]) -> Iterator[str]:
    """What would be dropped, by partition and namespace."""
    for each in found:
        if not each.going:
            continue
        where = f"partition {each.partition} ({sources[each.partition]})"
        yield f"{where}: {count(each.dropped)} of {counted(each.records, 'record')} below offset {each.floor} go:"
        yield from (f"  {_dropped_line(going)}" for going in each.going[:_NAMED])
        others = each.going[_NAMED:]
        if others:
            yield f"  {counted(sum(going.dropped for going in others), 'record')} of {len(others)} more namespaces"


def _dropped_line(going: DroppedRecords) -> str:
    line = f"{printable(going.namespace) or '(no namespace)'}: {counted(going.dropped, 'record')}"
    if not going.without_key:
        return line
    return f"{line}, {count(going.without_key)} without a key of their own: keeps only the newest of those"


def _holders(needs: Mapping[str, Mapping[int, int]], done: Compacted, end: int) -> list[str]:
    """The routes that keep more from being compacted."""
    if done.floor >= end:
        return []
    return [route for route, lowest in needs.items() if lowest.get(done.partition) == done.floor]


def compacted_table(done: Sequence[Compacted], sources: Mapping[int, str]) -> Table:
    numbers = ("partition", "below", "dropped", "kept", "segments", "size", "before")
    listing = table("partition", "source", *numbers[1:], numbers=numbers)
    for each in done:
        segments = f"{each.segments_before} → {each.segments_after}"
        listing.add_row(
            str(each.partition), sources[each.partition], *map(count, (each.floor, each.dropped, each.kept)), segments,
            size(each.bytes_after), size(each.bytes_before),
        )  # fmt: skip
    return listing
