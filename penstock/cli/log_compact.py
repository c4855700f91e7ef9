"""``penstock log compact``: keeps the newest record of each key in what every route is done with. Works while the
pipeline runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.log import PartitionOption, chosen_partitions
from penstock.cli.log_progress import progress_bar
from penstock.cli.opening import opened
from penstock.cli.options import CONFIG, ConfigOption, JsonOption
from penstock.cli.screen import count, note, print_json, show, size, table

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.log.compaction import Compacted


def compact_log(partition: PartitionOption = None, config: ConfigOption = CONFIG, json: JsonOption = False) -> None:
    """Drop records that a newer one of the same key has replaced, from closed segments that no route needs."""
    from penstock.log.compaction import compact

    with opened(config) as pipeline:
        pipeline.check_log()
        partitions = chosen_partitions(pipeline.log, partition)
        needs = pipeline.needs()
        with progress_bar("compacting") as progress:
            done = compact(pipeline.log, pipeline.floors(), partitions, progress)
        ends = {number: pipeline.log.bounds(number).end for number in partitions}
        sources = {number: owner.source for number, owner in pipeline.log.partitions().items()}
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


def _holders(needs: Mapping[str, Mapping[int, int]], done: Compacted, end: int) -> list[str]:
    """The routes because of which no more could be compacted."""
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
