"""``penstock offset list`` and ``show``: where every route stands in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import JsonValue, count, moment_of, note, print_json, printable, show, size, table

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.engine.delivery.route_positions import RoutePosition
    from penstock.engine.ledger import CommittedBatch, Intervention, Standing

app = typer.Typer(no_args_is_help=True, help="Where every route stands in the log, and moving it.")


def list_offsets(config: ConfigOption = CONFIG, json: JsonOption = False) -> None:
    """Show committed offset, hold, end and lag of every route, per partition."""
    from penstock.engine.delivery.route_positions import positions

    with open_pipeline(config) as pipeline:
        routes = (*pipeline.config.routes, *pipeline.left_routes())
        found = [position for route in routes for position in positions(pipeline, route)]
    if json:
        print_json([position_object(position) for position in found])
    else:
        show(positions_table(found))


def show_offset(
    route: Annotated[str, typer.Argument(help="The route's name in the config.")],
    batches: Annotated[int, typer.Option(min=0, metavar="N", help="How many of its newest batches to show.")] = 10,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Show one route's offsets, its newest batches, and what operators did to it."""
    from penstock.engine.delivery.route_positions import positions

    with open_pipeline(config) as pipeline:
        found = positions(pipeline, route)
        newest = pipeline.ledger.batches(route, last=batches) if batches else []
        standing = pipeline.ledger.standing(route)
        acts = pipeline.ledger.interventions(route)
    if json:
        print_json(
            {
                "route": route,
                "offsets": [position_object(position) for position in found],
                "halted_at": None if standing.halt is None else asdict(standing.halt),
                "acknowledged": acknowledged_ahead(standing),
                "batches": [batch_object(batch) for batch in newest],
                "interventions": [act_object(act) for act in acts],
            }
        )
        return
    show(
        positions_table(found),
        *([batches_table(newest)] if newest else []),
        *([acts_table(acts)] if acts else []),
    )
    if standing.halt is not None:
        halt = standing.halt
        note(f"halted at {halt.partition}:{halt.offset}: {halt.step}: {printable(halt.message)}")
    for ahead in acknowledged_ahead(standing):
        note(f"acknowledged ahead: partition {ahead['partition']}, offsets {ahead['first']}..{ahead['last']}")


def acknowledged_ahead(standing: Standing) -> list[dict[str, JsonValue]]:
    return [
        {"partition": partition, "first": start, "last": end - 1}
        for partition, stretches in standing.acknowledged.items()
        for start, end in stretches
    ]


def act_object(act: Intervention) -> dict[str, JsonValue]:
    return {
        "act": str(act.act),
        "at": moment_of(act.at),
        "who": act.who,
        "reason": act.reason,
        "partition": act.partition,
        "first": act.start,
        "last": act.end - 1,
    }


def acts_table(acts: Sequence[Intervention]) -> Table:
    listing = table("when", "who", "did", "partition", "offsets", "why", numbers=("partition",), title="by operators")
    for act in acts:
        place = f"{act.start}..{act.end - 1}" if act.end - act.start > 1 else str(act.start)
        listing.add_row(moment_of(act.at), act.who, str(act.act), str(act.partition), place, printable(act.reason))
    return listing


def position_object(position: RoutePosition) -> dict[str, JsonValue]:
    return {
        "route": position.route,
        "partition": position.partition,
        "source": position.source,
        "committed": position.committed,
        "hold": position.hold,
        "end": position.end,
        "lag": position.lag,
        "held_bytes": position.held_bytes,
    }


def batch_object(batch: CommittedBatch) -> dict[str, JsonValue]:
    return {
        **asdict(batch),
        "ranges": {str(partition): [start, end] for partition, (start, end) in batch.ranges.items()},
        "committed_at": moment_of(batch.committed_at),
    }


def positions_table(found: Sequence[RoutePosition]) -> Table:
    holds = any(p.held_bytes for p in found)
    numbers = ("partition", "committed", "hold", "end", "lag", *(["held"] if holds else []))
    rows = [
        (
            p.route, str(p.partition), p.source, *map(count, (p.committed, p.hold, p.end, p.lag)),
            *([size(p.held_bytes)] if holds else []),
        )
        for p in found
    ]  # fmt: skip
    return table("route", "partition", "source", *numbers[1:], rows=rows, numbers=numbers)


def batches_table(newest: Sequence[CommittedBatch]) -> Table:
    numbers = ("batch", "in", "loaded", "skipped", "failed", "seconds")
    listing = table("batch", "committed", "offsets", *numbers[1:], numbers=numbers, title="newest batches")
    for b in newest:
        ranges = ", ".join(f"{partition}: {start}..{end - 1}" for partition, (start, end) in sorted(b.ranges.items()))
        counts = map(count, (b.items, b.loaded, b.skipped, b.failed))
        listing.add_row(str(b.number), moment_of(b.committed_at), ranges, *counts, f"{b.seconds:.3f}")
    return listing
