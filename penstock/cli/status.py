"""``penstock status``: what became of every record, per route, and how far behind each route is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.opening import opened
from penstock.cli.options import CONFIG, ConfigOption
from penstock.cli.screen import (
    JsonValue,
    console,
    count,
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

    from penstock.engine.pipeline import Pipeline
    from penstock.engine.status import PipelineStatus, RouteStatus

REFRESH = 1.0


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every second, until Ctrl-C.")] = False,
    config: ConfigOption = CONFIG,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines; with --watch a line each.")] = False,
) -> None:
    """Show counts, lag, rates and failures of every route, and the log's partitions."""
    with opened(config) as pipeline:
        if not watch:
            found, pid = _look(pipeline)
            if json:
                print_json(status_object(found, pid))
            else:
                show(*status_view(found, pid))
            return
        try:
            _watch(pipeline, json)
        except KeyboardInterrupt:
            return


def _look(pipeline: Pipeline) -> tuple[PipelineStatus, int | None]:
    from penstock.engine.presence import engine_pid
    from penstock.engine.status import status as look

    return look(pipeline), engine_pid(pipeline.layout)


def _watch(pipeline: Pipeline, as_json: bool) -> None:
    screen = console()
    if as_json or not screen.is_terminal:
        while True:
            found, pid = _look(pipeline)
            if as_json:
                print_json_line(status_object(found, pid))
            else:
                show(*status_view(found, pid))
            time.sleep(REFRESH)
    from rich.console import Group
    from rich.live import Live

    with Live(console=screen, auto_refresh=False, screen=True) as live:
        while True:
            parts = [spaced for part in status_view(*_look(pipeline)) for spaced in (part, "")]
            live.update(Group(*parts), refresh=True)
            time.sleep(REFRESH)


def status_object(found: PipelineStatus, pid: int | None) -> dict[str, JsonValue]:
    return {
        "name": found.name,
        "engine_pid": pid,
        "routes": [route_object(route) for route in found.routes],
        "partitions": [asdict(partition) for partition in found.partitions],
    }


def route_object(route: RouteStatus) -> dict[str, JsonValue]:
    totals = route.totals
    return {
        "route": route.route,
        "state": None if route.state is None else str(route.state),
        "message": route.message,
        "in": totals.items,
        "added": totals.added,
        "loaded": totals.loaded,
        "skipped": totals.skipped,
        "failed": totals.failed,
        "failed_open": route.failed_open,
        "waiting": totals.waiting,
        "adds_up": route.adds_up,
        "lag": route.lag,
        "items_per_second": route.items_per_second,
        "last_commit": None if route.last_commit is None else moment_of(route.last_commit),
        "halted_at": None if route.halt is None else asdict(route.halt),
        "skipped_by": dict(route.skipped_by),
        "added_by": dict(route.added_by),
        "tables": dict(route.tables),
    }


def status_view(found: PipelineStatus, pid: int | None) -> Iterator[RenderableType]:
    """What a person sees: a line on the engine, the accounting, and the details that there are."""
    yield f"{found.name}: " + ("the engine does not run" if pid is None else f"the engine runs, pid {pid}")
    yield routes_table(found, pid)
    for what in ("skipped", "added"):
        by_step = {route.route: route.skipped_by if what == "skipped" else route.added_by for route in found.routes}
        if any(by_step.values()):
            yield _by_step_table(what, by_step)
    if any(route.tables for route in found.routes):
        tables = table("route", "table", "rows", numbers=("rows",))
        for route in found.routes:
            for name, rows in route.tables.items():
                tables.add_row(route.route, printable(name), count(rows))
        yield tables
    yield partitions_table(found)
    for route in found.routes:
        if route.message:
            yield f"{route.route}: {printable(route.message)}"
    yield from failed_line(found)


def failed_line(found: PipelineStatus) -> Iterator[str]:
    """What waits for an operator in the failed store, if anything does."""
    entries = sum(route.failed_open for route in found.routes)
    if entries:
        yield f"{count(entries)} failed and neither replayed nor dropped. See: penstock failed list"


def _by_step_table(what: str, by_step: Mapping[str, Mapping[str, int]]) -> RenderableType:
    listing = table("route", f"{what} by", "items", numbers=("items",))
    for route, steps in by_step.items():
        for step, items in sorted(steps.items()):
            listing.add_row(route, step, count(items))
    return listing


def routes_table(found: PipelineStatus, pid: int | None) -> RenderableType:
    """The accounting. Of a route that only says it runs while no engine does, the state is not believed."""
    from rich.text import Text

    has_added = any(route.totals.added for route in found.routes)
    counts = ["in", *(["added"] if has_added else []), "loaded", "skipped", "failed", "waiting", "lag", "rate"]
    listing = table("route", "state", *counts, "adds up", numbers=counts)
    for route in found.routes:
        t = route.totals
        numbers = [t.items, *([t.added] if has_added else []), t.loaded, t.skipped, t.failed, t.waiting, route.lag]
        sum_holds = Text("✓", "green") if route.adds_up else Text("NO", "bold red")
        rate = f"{route.items_per_second:,.0f}/s"
        listing.add_row(route.route, shown_state(route, pid), *map(count, numbers), rate, sum_holds)
    return listing


def shown_state(route: RouteStatus, pid: int | None) -> str:
    if route.state is None:
        return "new"
    return "stopped" if pid is None and route.state not in ("crashed", "halted") else str(route.state)


def partitions_table(found: PipelineStatus) -> RenderableType:
    numbers = ("partition", "oldest", "next", "on disk")
    listing = table("partition", "source", "oldest", "next", "on disk", numbers=numbers)
    for p in found.partitions:
        listing.add_row(str(p.partition), p.source, count(p.oldest), count(p.end), size(p.bytes))
    return listing
