"""``penstock offset adopt`` and ``drop``: adopt an earlier history of a route, or forget a route that has left."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli._support.confirm import require_yes
from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.operator import current_operator
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import count, counted, note, print_json
from penstock.cli.offset_verbs.offset_moves import ReasonOption


def adopt_history(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The name under which the route delivered before.")],
    new: Annotated[
        str | None, typer.Argument(metavar="[NEW]", help="The route that continues after it; OLD itself if left out.")
    ] = None,
    reason: ReasonOption = "",
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Let a route continue after what its destination has: after a rename, a lost ledger, a restored older copy."""
    from penstock.engine.history.takeover import adopt

    route = old if new is None else new
    with open_pipeline(config, create=True) as pipeline:
        done = adopt(pipeline, old, route, current_operator(reason))
    if json:
        places = [{"partition": p, "from": start, "to": end} for p, (start, end) in done.stretches.items()]
        aside = None if done.failed_aside is None else str(done.failed_aside)
        print_json(
            {
                "route": done.route,
                "adopted": done.other,
                "offsets": places,
                "failed_aside": aside,
                "replayed": done.replayed or None,
            }
        )
        return
    for partition, (start, end) in done.stretches.items():
        if end > start:
            note(
                f"partition {partition}: offsets {start}..{end - 1} are at the destination; they are counted, not sent"
            )
        elif end < start:
            note(
                f"partition {partition}: moves back from {start} to {end}, where this log and the delivered history"
                " diverge"
            )
    if done.failed_aside is not None:
        note(f"failed records that another ledger counted are kept in {done.failed_aside}")
    if done.replayed:
        note(done.replayed)
    named = "" if done.other == route else f" what '{done.other}' has delivered"
    sys.stdout.write(f"{route}: continues after{named or ' what the destination has'}\n")


def drop_route(
    route: Annotated[str, typer.Argument(help="A route that the config no longer has.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Forget a route that has left the config: its offsets, counts and failed records. Retention may then remove its
    part of the log."""
    from penstock.engine.history.left_routes import drop, left_route

    with open_pipeline(config) as pipeline:
        found = left_route(pipeline, route)
        note(
            f"{route}: {counted(found.lag, 'record')} that it has not read, {count(found.failed)} in its failed store;"
            " both are given up"
        )
        if found.held:
            note(f"so are {counted(found.held, 'record')} that it has read and that wait in its steps")
        if found.waiting:
            note(f"so are {counted(found.waiting, 'row')} that its tables wait for")
        if not yes:
            require_yes(f"Forget the route '{route}'?")
        drop(pipeline, route)
    if json:
        print_json({"route": route, "unread": found.lag, "failed": found.failed, "waiting": found.waiting + found.held})
    else:
        sys.stdout.write(f"{route}: forgotten\n")
