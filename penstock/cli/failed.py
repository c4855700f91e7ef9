"""``penstock failed``: records that could not be delivered, with their original bytes and the reason."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.confirm import require_yes
from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption, NdjsonOption
from penstock.cli._support.record_lines import data_text
from penstock.cli._support.screen import (
    JsonValue,
    console,
    counted,
    moment,
    note,
    print_json,
    print_json_line,
    printable,
)

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.engine.failed.failed_store import FailedEntry
    from penstock.engine.failed.selection import Choice
    from penstock.engine.pipeline import Pipeline

app = typer.Typer(no_args_is_help=True, help="Records that could not be delivered, and what to do with them.")

RouteOption = Annotated[str | None, typer.Option("--route", help="Only of this route.")]
StepOption = Annotated[str | None, typer.Option("--step", help="Only what failed in this step.")]
CodeOption = Annotated[str | None, typer.Option("--code", help="Only what failed with this code.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only what failed since: 90s, 1h or 7d ago, or a time (UTC)."),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only what failed before: 90s, 1h or 7d ago, or a time (UTC)."),
]
IdsArgument = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Entries by id; needs --route.")]
AllOption = Annotated[bool, typer.Option("--all", help="Every open entry of every route.")]


def list_failed(
    route: RouteOption = None,
    step: StepOption = None,
    code: CodeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show at most so many, and how many there are in all.")
    ] = None,
    config: ConfigOption = CONFIG,
    json: NdjsonOption = False,
) -> None:
    """List the entries that are open: neither replayed nor dropped."""
    from penstock.engine.failed.selection import chosen_routes, open_entries

    choice = _choice(None, route, step, code, since, until)
    screen = console()
    found = shown = 0
    with open_pipeline(config) as pipeline:
        width = max(map(len, chosen_routes(pipeline, route)))
        for entry in open_entries(pipeline, choice):
            found += 1
            if limit is not None and shown == limit:
                continue
            if json:
                print_json_line(entry_object(entry))
            else:
                screen.print(entry_line(entry, width), soft_wrap=True)
            shown += 1
    if shown < found:
        note(f"{_entries(found, 'open')}, the first {shown:,} shown")
    elif not json:
        note(_entries(found, "open"))


def show_failed(
    route: Annotated[str, typer.Argument(help="The route's name.")],
    number: Annotated[int, typer.Argument(metavar="ID", help="The entry's id, as `failed list` shows it.")],
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Show one entry in full: why it failed, and the record as it was."""
    from penstock.engine.failed.selection import find_entry

    with open_pipeline(config) as pipeline:
        entry, action = find_entry(pipeline, route, number)
    if json:
        print_json({**entry_object(entry), "settled": action})
        return
    screen = console()
    for name, value in _facts(entry, action).items():
        screen.print(f"{name:<10} {printable(value)}", soft_wrap=True)


def replay_failed(
    ids: IdsArgument = None,
    route: RouteOption = None,
    step: StepOption = None,
    code: CodeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllOption = False,
    not_delivered: Annotated[
        bool,
        typer.Option(
            "--not-delivered",
            help="Replay although they may already be delivered. Use only after checking that the destination has none"
            " of them (needed after a restore).",
        ),
    ] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Put entries through their route again, each exactly once. Works while the pipeline runs."""
    from penstock.engine.failed.replay import replay
    from penstock.engine.failed.selection import open_entries
    from penstock.engine.history.takeover import check_history
    from penstock.engine.operate.offset_control import running_engine

    choice = _choice(ids, route, step, code, since, until)
    _require_deliberate(choice, everything)
    with open_pipeline(config) as pipeline:
        # Only routes in the config: nobody would read what is appended for another.
        names = [route] if route is not None else list(pipeline.config.routes)
        done: dict[str, int] = {}
        for name in names:
            pipeline.sources_of(name)
            entries = list(open_entries(pipeline, replace(choice, route=name)))
            _warn_missing(choice, [entry.id for entry in entries], name)
            if entries or pipeline.ledger.replay_under_way(name) is not None:
                if pipeline.plan(name).mirrors:
                    note(f"route '{name}' mirrors tables: what is replayed is put over changes that came after it")
                elif pipeline.plan(name).last_record_wins:
                    note(
                        f"route '{name}' has a key and no version_column: what is replayed is put over what came after"
                        " it for the same key"
                    )
                if running_engine(pipeline) is None:
                    check_history(pipeline, name)
                done[name] = replay(name, entries, pipeline.log, pipeline.ledger, not_delivered)
    _report(done, "replayed", json)


def drop_failed(
    ids: IdsArgument = None,
    route: RouteOption = None,
    step: StepOption = None,
    code: CodeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Give entries up: they are no longer open and cannot be replayed. Asks first."""
    from penstock.engine.failed.selection import drop

    choice = _choice(ids, route, step, code, since, until)
    _require_deliberate(choice, everything)
    with open_pipeline(config) as pipeline:
        chosen = _ids_by_route(pipeline, choice)
        total = sum(map(len, chosen.values()))
        if total and not yes:
            require_yes(f"Drop {counted(total, 'entry', 'entries')} for good?")
        done = {name: drop(pipeline, name, numbers) for name, numbers in chosen.items()}
    _report(done, "dropped", json)


def entry_object(entry: FailedEntry) -> dict[str, JsonValue]:
    return {**entry.facts(), "record": entry.record.facts()}


def entry_line(entry: FailedEntry, route_width: int) -> str:
    place = f"{entry.record.partition}:{entry.record.offset}" + (f":{entry.item}" if entry.item else "")
    reason = f"{printable(entry.step)}  {printable(entry.code)}  {printable(entry.error)}"
    return f"{entry.route:<{route_width}}  {entry.id:>6}  {moment(entry.failed_at)}  {place:<10}  {reason}"


def _facts(entry: FailedEntry, action: str | None) -> dict[str, str]:
    record = entry.record
    return {
        "route": entry.route,
        "id": str(entry.id),
        "failed at": moment(entry.failed_at),
        "batch": str(entry.batch),
        "step": entry.step,
        "code": entry.code,
        "error": entry.error,
        "settled": action or "no",
        "event id": entry.event_id or "-",
        "place": f"partition {record.partition}, offset {record.offset}"
        + (f", item {entry.item}" if entry.item else ""),
        "time": moment(record.timestamp),
        "namespace": record.namespace,
        "op, mode": f"{record.op}, {record.mode}",
        "key": record.key or "-",
        "headers": ", ".join(f"{name}={value}" for name, value in record.headers.items()) or "-",
        "data": data_text(record.data),
    }


def _choice(
    ids: list[int] | None, route: str | None, step: str | None, code: str | None, since: str | None, until: str | None
) -> Choice:
    from penstock.engine.failed.selection import Choice

    return Choice(route, step, code, _moment(since, "--since"), _moment(until, "--until"), frozenset(ids or ()))


def _moment(text: str | None, option: str) -> datetime | None:
    from penstock.cli._support.times import time_since

    try:
        return None if text is None else time_since(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _require_deliberate(choice: Choice, everything: bool) -> None:
    """For a verb that changes something: leaving out a filter never selects all entries."""
    if choice.ids and choice.route is None:
        raise typer.BadParameter("ids count per route: say which with --route.", param_hint="ID")
    if not everything and not any(vars(choice).values()):
        raise typer.BadParameter("say which entries: ids, --route, --step, --code, --since, --until, or --all.")


def _ids_by_route(pipeline: Pipeline, choice: Choice) -> dict[str, list[int]]:
    from penstock.engine.failed.selection import chosen_routes, open_entries

    chosen: dict[str, list[int]] = {}
    for name in chosen_routes(pipeline, choice.route):
        numbers = [entry.id for entry in open_entries(pipeline, replace(choice, route=name))]
        _warn_missing(choice, numbers, name)
        if numbers:
            chosen[name] = numbers
    return chosen


def _warn_missing(choice: Choice, found: list[int], route: str) -> None:
    """Warn about given ids that are not open. The open ones are handled all the same."""
    missing = sorted(set(choice.ids) - set(found))
    if missing:
        note(f"not open in route '{route}', left alone: {', '.join(map(str, missing))}")


def _report(done: dict[str, int], action: str, as_json: bool) -> None:
    if as_json:
        print_json({action: sum(done.values()), "routes": done})
        return
    for name, number in done.items():
        sys.stdout.write(f"{name}: {_entries(number, action)}\n")
    if not done:
        note("no open entries match")


def _entries(number: int, state: str) -> str:
    return f"{counted(number, 'entry', 'entries')} {state}"
