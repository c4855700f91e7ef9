"""``penstock offset ack``, ``rewind``, ``resume`` and ``release``: offset control by hand. The ledger keeps who did it,
and why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.confirm import require_yes
from penstock.cli._support.offset_ranges import range_argument
from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.operator import current_operator
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import JsonValue, counted, note, print_json

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.engine.operate.offset_control import RewindRange

RouteArgument = Annotated[str, typer.Argument(help="The route's name in the config.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="P", help="Which partition; offsets count per partition.")
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the ledger with your name.")]


MIRRORED = (
    "This route mirrors tables. Replaying changes from the middle of the log can move or overwrite newer rows and"
    " duplicate rows of tables without a key. Empty the tables and rewind to the start of the log, or to where a table"
    " was truncated or copied again."
)


TOGETHER = (
    "all partitions go back to one moment: the last record of a key wins, so what came after it in another partition is"
    " delivered again too"
)


def acknowledge_records(
    route: RouteArgument,
    offsets: Annotated[
        str, typer.Argument(metavar="OFFSET[..OFFSET]", help="Offsets, both ends included: 7, 7..9 or 7.. for all.")
    ],
    partition: PartitionOption = None,
    reason: ReasonOption = "",
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Mark records as done without sending them. Also works while the pipeline runs: a batch in progress and tables
    that are waiting leave them out, unless they are already written."""
    from penstock.engine.operate.offset_control import acknowledge

    wanted = range_argument(offsets, "OFFSET[..OFFSET]")
    with open_pipeline(config) as pipeline:
        done = acknowledge(pipeline, route, wanted.first, wanted.last, partition, current_operator(reason))
    if json:
        print_json(asdict(done))
        return
    place = f"{done.first}..{done.last}" if done.last > done.first else f"{done.first}"
    sys.stdout.write(
        f"{route}: {counted(done.records, 'record')} acknowledged at {place} of partition {done.partition};"
        f" the route stands at {done.committed}\n"
    )
    if done.waited_for:
        note(f"{counted(done.waited_for, 'part')} of batches that tables wait for will be without them")
    if done.committed <= done.first:
        note("the route has not reached them yet; it will skip those that are not already written")
    if done.resumes:
        note("the route was halted there and goes on now")


def rewind_route(
    route: RouteArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="OFFSET|TIME", help="An offset, a time (UTC), or how long ago: 90s, 1h, 7d.")
    ],
    partition: PartitionOption = None,
    reason: ReasonOption = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Let a route read and deliver again from an offset or a time on. Asks first; not while the pipeline runs."""
    from penstock.engine.failed.selection import Choice, open_entries
    from penstock.engine.history.takeover import find_conflict, rewind_anyway
    from penstock.engine.operate.offset_control import passed_copies, plan_rewind

    start = _start(to)
    with open_pipeline(config) as pipeline:
        mirrors = pipeline.plan(route).mirrors
        found = plan_rewind(pipeline, route, start, partition)
        for each in found:
            for line in _rewound_lines(each):
                note(line)
        if isinstance(start, int) and len(found) > 1:
            note(TOGETHER)
        if found and mirrors:
            note(MIRRORED)
        copies = passed_copies(pipeline, route, found) if found else {}
        passed = sum(end - start for stretches in copies.values() for start, end in stretches)
        if passed:
            note(f"{counted(passed, 'replayed record')} passed over: what they are copies of is read anyway")
        starts = {each.partition: each.start for each in found}
        failed = [entry.record for entry in open_entries(pipeline, Choice(route))] if found else []
        come = sum(starts.get(record.partition, record.offset + 1) <= record.offset for record in failed)
        if come:
            note(f"{counted(come, 'open failed record')} among them: what is delivered now must not be replayed, too")
        again = {each.partition: each.before for each in found}
        total = sum(each.before - each.start for each in found)
        total -= sum(max(0, min(end, again.get(p, 0)) - start) for p, some in copies.items() for start, end in some)
        conflict = find_conflict(pipeline, route)
        if conflict is not None:
            note(f"this is about what keeps the route from starting: {conflict.what}")
        if found and not yes:
            require_yes(f"Deliver {counted(total, 'record')} again?")
        if conflict is not None and not found:
            note("whatever was delivered from this log before, the route delivers from where it stands")
            if not yes:
                require_yes("Go on from there?")
        rewind_anyway(pipeline, route, found, current_operator(reason), conflict)
    if json:
        warning: dict[str, JsonValue] = {"warning": MIRRORED} if found and mirrors else {}
        print_json(
            {"route": route, "rewound": [rewound_object(each) for each in found], "passed_over": passed, **warning}
        )
    elif found:
        sys.stdout.write(f"{route}: {counted(total, 'record')} will be delivered again at the next start\n")
    elif conflict is not None:
        sys.stdout.write(f"{route}: delivers from where it stands at the next start\n")
    elif isinstance(start, int):
        note(f"the route stands at {start}: there is nothing to do")
    else:
        note("the route has read nothing since then")


def _rewound_lines(each: RewindRange) -> Iterator[str]:
    place = f"partition {each.partition}"
    if each.start < each.before:
        yield f"{each.route} reads {place} ({each.source}) again from {each.start} to {each.before - 1}"
    else:
        yield f"{each.route} stays at {each.start} of {place}"
    if each.gone:
        yield "the log begins there: what was before it is gone"
    for first, end in each.acknowledged:
        yield f"offsets {first}..{end - 1} of {place} are no longer acknowledged: they are delivered too"


def resume_route(
    route: RouteArgument, reason: ReasonOption = "", config: ConfigOption = CONFIG, json: JsonOption = False
) -> None:
    """Let a halted route try its record again."""
    from penstock.engine.operate.offset_control import resume

    with open_pipeline(config) as pipeline:
        now = resume(pipeline, route, current_operator(reason))
    if json:
        print_json({"route": route, "resumes": now})
    else:
        sys.stdout.write(f"{route}: {'tried again now' if now else 'tried again at the next start'}\n")


def release_waiting(
    route: RouteArgument, reason: ReasonOption = "", config: ConfigOption = CONFIG, json: JsonOption = False
) -> None:
    """Let go of everything that waits in a route's step now, as if its time were over. What comes later waits as
    before. Also works while the pipeline runs."""
    from penstock.engine.operate.offset_control import release

    with open_pipeline(config) as pipeline:
        done = release(pipeline, route, current_operator(reason))
    if json:
        print_json({"route": route, "released": False} if done is None else {"released": True, **asdict(done)})
    elif done is None:
        note("nothing waits, and the route has read all that is there: there is nothing to do")
    else:
        when = "with its next batch" if done.now else "at the next start"
        unread = f", and what has to wait among {counted(done.unread, 'unread record')}," if done.unread else ""
        goes = "goes" if done.waiting == 1 else "go"
        sys.stdout.write(f"{route}: {counted(done.waiting, 'record')} that waited{unread} {goes} on {when}\n")


def _start(text: str) -> int | datetime:
    from penstock.cli._support.times import time_since

    if text.isdecimal():
        return int(text)
    try:
        return time_since(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}, and no offset", param_hint="--to") from None


def rewound_object(each: RewindRange) -> dict[str, JsonValue]:
    return {
        "partition": each.partition,
        "source": each.source,
        "from": each.start,
        "before": each.before,
        "gone": each.gone,
        "acknowledged": [{"first": first, "last": end - 1} for first, end in each.acknowledged],
    }
