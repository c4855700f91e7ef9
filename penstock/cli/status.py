"""``penstock status``: what became of every record, per route, and how far behind each route is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption
from penstock.cli._support.screen import (
    JsonValue,
    console,
    count,
    counted,
    moment_of,
    print_json,
    print_json_line,
    printable,
    show,
    size,
    table,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from penstock.engine.ledger import WaitingTable
    from penstock.engine.operate.status import PipelineStatus, RouteStatus, UnderWay
    from penstock.engine.pipeline import Pipeline
    from penstock.failing_targets import FailingTarget

REFRESH = 1.0


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second, until Ctrl-C.")] = False,
    config: ConfigOption = CONFIG,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines; with --watch a line each.")] = False,
) -> None:
    """Show counts, lag, rates and failures of every route, and the log's partitions."""
    from penstock.engine.operate.status import status as look

    with open_pipeline(config) as pipeline:
        if not watch:
            found = look(pipeline)
            if json:
                print_json(status_object(found))
            else:
                show(*status_view(found))
            return
        try:
            _watch(pipeline, json)
        except KeyboardInterrupt:
            return


def _watch(pipeline: Pipeline, as_json: bool) -> None:
    from penstock.engine.operate.status import status as look

    screen = console()
    if as_json or not screen.is_terminal:
        while True:
            if as_json:
                print_json_line(status_object(look(pipeline)))
            else:
                show(*status_view(look(pipeline)))
            time.sleep(REFRESH)
    from rich.console import Group
    from rich.live import Live

    with Live(console=screen, auto_refresh=False, screen=True) as live:
        while True:
            parts = [spaced for part in status_view(look(pipeline)) for spaced in (part, "")]
            live.update(Group(*parts), refresh=True)
            time.sleep(REFRESH)


def status_object(found: PipelineStatus) -> dict[str, JsonValue]:
    return {
        "name": found.name,
        "engine_pid": found.engine_pid,
        "engine_silent_seconds": found.engine_silent,
        "still_seconds": dict(found.still),
        "routes": [route_object(route) for route in found.routes],
        "partitions": [asdict(partition) for partition in found.partitions],
    }


def route_object(route: RouteStatus) -> dict[str, JsonValue]:
    totals = route.totals
    return {
        "route": route.route,
        "state": route.state,
        "message": route.message,
        "in": totals.items,
        "added": totals.added,
        "loaded": totals.loaded,
        "skipped": totals.skipped,
        "failed": totals.failed,
        "failed_open": route.failed_open,
        "waiting": totals.waiting,
        "under_way": route.under_way.records if route.under_way else 0,
        "behind": route.behind,
        "lag": route.lag,
        "to_go": route.to_go,
        "adds_up": route.adds_up,
        "items_per_second": route.items_per_second,
        "last_commit": None if route.last_commit is None else moment_of(route.last_commit),
        "halted_at": None if route.halt is None else asdict(route.halt),
        "skipped_by": dict(route.skipped_by),
        "added_by": dict(route.added_by),
        "tables": {
            name: {"in": tally.rows, "merged": tally.merged, "written": tally.written, "under_way": tally.under_way}
            for name, tally in route.tables.items()
        },
        "tables_waiting": {
            name: {
                "rows": waiting.rows,
                "batches": waiting.batches,
                "first_batch": waiting.first,
                "since": moment_of(waiting.since),
                "attempts": waiting.attempts,
                "reason": waiting.reason,
            }
            for name, waiting in route.waiting.items()
        },
        "held_by_steps": route.held_by_steps,
        "waits_at_destination": route.postponed,
        "failing": None if route.failing is None else _failing_object(route.failing),
        "counted": dict(route.counted),
        "held_bytes": route.held_bytes,
        "batch": None if route.under_way is None else _batch_object(route.under_way),
    }


def _failing_object(failing: FailingTarget) -> dict[str, JsonValue]:
    return {"count": failing.count, "refuses": failing.refuse, "keys": [asdict(key) for key in failing.keys]}


def _batch_object(batch: UnderWay) -> dict[str, JsonValue]:
    return {
        "number": batch.batch,
        "since": moment_of(batch.since),
        "records": batch.records,
        "rows_at_target": batch.rows,
    }


def status_view(found: PipelineStatus) -> Iterator[RenderableType]:
    """The output for people: a line on the engine, the accounting, and further details."""
    from penstock.engine.processes.presence import describe_engine

    yield f"{found.name}: {describe_engine(found.engine_pid, found.engine_silent)}"
    for name, seconds in found.still.items():
        yield f"{name}: its tasks have not moved for {seconds:.0f} s"
    yield routes_table(found)
    for what in ("skipped", "added"):
        by_step = {route.route: route.skipped_by if what == "skipped" else route.added_by for route in found.routes}
        if any(by_step.values()):
            yield _by_step_table(what, by_step)
    if any(route.tables for route in found.routes):
        yield _tables_table(found)
    yield partitions_table(found)
    for route in found.routes:
        if route.under_way is not None:
            yield _batch_line(route.route, route.under_way)
        if route.message:
            yield f"{route.route}: {printable(route.message)}"
        if route.held_by_steps:
            records = counted(route.held_by_steps, "record")
            yield f"{route.route}: its steps keep {records} back, and the log keeps {size(route.held_bytes)} for them"
        if route.postponed:
            records = counted(route.postponed, "record")
            yield f"{route.route}: {records} of committed batches are not at the destination yet, and are tried again"
        if route.counted:
            counts = (f"{name.replace('_', ' ')} {count(number)}" for name, number in route.counted.items())
            yield f"{route.route}: its destination counts {', '.join(counts)}"
        if route.failing is not None:
            yield from _failing_lines(route.failing)
        for name, waiting in route.waiting.items():
            yield _waiting_line(route.route, name, waiting)
    yield from overflow_lines(found)
    yield from failed_line(found)


def _tables_table(found: PipelineStatus) -> RenderableType:
    """Rows by table: in = merged + written. The sum of in is the route's loaded; under way is counted apart."""
    begun = any(tally.under_way for route in found.routes for tally in route.tables.values())
    counts = ("in", "merged", "written", *(["under way"] if begun else []))
    rows = [
        (
            route.route,
            printable(name),
            *map(count, (each.rows, each.merged, each.written, each.under_way)[: len(counts)]),
        )
        for route in found.routes
        for name, each in route.tables.items()
    ]
    return table("route", "table", *counts, rows=rows, numbers=counts)


def _batch_line(route: str, batch: UnderWay) -> str:
    there = f"; {counted(batch.rows, 'row')} of it at the destination already" if batch.rows else ""
    records = counted(batch.records, "record")
    return f"{route}: batch {batch.batch} with {records} is under way since {moment_of(batch.since)}{there}"


def _failing_lines(failing: FailingTarget) -> Iterator[str]:
    oldest = failing.keys[0]
    yield (
        f"{failing.route}: {counted(failing.count, 'key')} cannot be delivered; for longest {printable(oldest.name)},"
        f" for {oldest.seconds:.0f} s: {printable(oldest.reason)}"
    )
    if failing.refuse:
        yield f"{failing.route}: {' and '.join(failing.sources)} refuse what comes meanwhile: {failing.refuse}"


def _waiting_line(route: str, name: str, waiting: WaitingTable) -> str:
    parts = f"{counted(waiting.rows, 'row')} of {counted(waiting.batches, 'batch', 'batches')}"
    return (
        f"{route}: table {printable(name)} has been waiting for {parts} since {moment_of(waiting.since)}; retried while"
        f" newer batches load: {printable(waiting.reason)}"
    )


def overflow_lines(found: PipelineStatus) -> Iterator[str]:
    """Where the rows of tables beyond a route's limit are."""
    from penstock.destinations.sql.stage.allowed_tables import OVERFLOW_PREFIX

    for route in found.routes:
        for name in route.tables:
            if name.startswith(OVERFLOW_PREFIX):
                yield f"{route.route}: what is meant for more tables than `max_tables` allows is in '{name}'"


def failed_line(found: PipelineStatus) -> Iterator[str]:
    """What waits for an operator in the failed store, if anything does."""
    entries = sum(route.failed_open for route in found.routes)
    if entries:
        yield f"{count(entries)} failed and neither replayed nor dropped. See: penstock failed list"


def _by_step_table(what: str, by_step: Mapping[str, Mapping[str, int]]) -> RenderableType:
    rows = [(route, step, count(items)) for route, steps in by_step.items() for step, items in sorted(steps.items())]
    return table("route", f"{what} by", "items", rows=rows, numbers=("items",))


def routes_table(found: PipelineStatus) -> RenderableType:
    """The accounting, in + added = loaded + skipped + failed + waiting, and what is not counted in it yet."""
    has_added = any(route.totals.added for route in found.routes)
    taken = ["in", *(["added"] if has_added else []), "loaded", "skipped", "failed", "waiting"]
    flows = any(route.items_per_second >= 0.5 for route in found.routes)
    counts = [*taken, "under way", "behind", *(["rate"] if flows else []), "to go"]
    listing = table("route", "state", *counts, numbers=counts)
    for route in found.routes:
        t, begun = route.totals, route.under_way
        numbers = [t.items, *([t.added] if has_added else []), t.loaded, t.skipped, t.failed, t.waiting]
        numbers += [begun.records if begun else 0, route.behind]
        rate = [f"{route.items_per_second:,.0f}/s"] if flows else []
        listing.add_row(route.route, route.state, *map(count, numbers), *rate, _to_go(route))
    return listing


def _to_go(route: RouteStatus) -> Text:
    """Whether everything that was acknowledged is settled; balanced counts alone do not say that."""
    from rich.text import Text

    if not route.adds_up:
        return Text("DOES NOT ADD UP", "bold red")
    return Text(count(route.to_go), "yellow") if route.to_go else Text("✓", "green")


def partitions_table(found: PipelineStatus) -> RenderableType:
    numbers = ("partition", "oldest", "next", "on disk")
    rows = [(str(p.partition), p.source, count(p.oldest), count(p.end), size(p.bytes)) for p in found.partitions]
    return table("partition", "source", *numbers[1:], rows=rows, numbers=numbers)
