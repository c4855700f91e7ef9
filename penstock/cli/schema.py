"""``penstock schema``: the schemas of tables, and the JSON Schema of configs for editors and checkers."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.confirm import require_yes
from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption, NdjsonOption
from penstock.cli._support.screen import (
    JsonValue,
    console,
    count,
    counted,
    moment_of,
    note,
    print_json,
    print_json_line,
    printable,
    show,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.destinations.sql.unmapped.remap import Proposal, Remapped, UnmappedKey
    from penstock.engine.operate.table_schemas import RouteSchema, TableSchema
    from penstock.engine.pipeline import Pipeline

app = typer.Typer(help="The schemas of tables, and of configs.")

RouteOption = Annotated[str | None, typer.Option("--route", help="Only this route.")]
FOLDED_FROM = 3
"""More differences of one kind than this are summed up in one line."""
TableOption = Annotated[str | None, typer.Option("--table", help="Only this table.")]


def schema(context: typer.Context) -> None:
    """The schemas of tables, and of configs. Alone: the JSON Schema of a pipeline's config."""
    if context.invoked_subcommand is None:
        show_config_schema()


def show_config_schema(
    what: Annotated[
        str, typer.Argument(help="`config` for a whole pipeline, or a component such as step/where.")
    ] = "config",
    json: JsonOption = True,
) -> None:
    """Print the JSON Schema of a pipeline's config, or of one component's options."""
    if what == "config":
        from penstock.config.json_schema import pipeline_schema

        print_json(pipeline_schema())
        return
    from penstock.cli._support.component_names import find_component

    print_json(find_component(what).config_class().model_json_schema())


def show_schema(
    route: RouteOption = None,
    only: TableOption = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Show every column that was filled: the JSON paths that fill it, and its type if the destination is reachable."""
    from penstock.engine.operate.table_schemas import inspect_tables

    with open_pipeline(config) as pipeline:
        found = [inspect_tables(pipeline, name, only) for name in _routes(pipeline, route)]
    if json:
        print_json([table_object(each) for routed in found for each in routed.tables])
    else:
        listing = table("route", "table", "column", "type", "JSON paths")
        for each in (each for routed in found for each in routed.tables):
            for column in each.known:
                paths = "\n".join(map(printable, column.paths))
                listing.add_row(each.route, each.name, column.name, _real_type(each, column.name) or "-", paths)
        show(listing)
    _warn_problems(found)


def show_changes(
    route: RouteOption = None,
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Only the newest N per route.")] = None,
    config: ConfigOption = CONFIG,
    json: NdjsonOption = False,
) -> None:
    """Show the schema changes that were made, oldest first."""
    from penstock.engine.operate.table_schemas import changes

    screen = console()
    with open_pipeline(config) as pipeline:
        for name in _routes(pipeline, route):
            for change in changes(pipeline, name, last):
                at = moment_of(change.at)
                if json:
                    print_json_line({"at": at, "route": name, "table": change.table, "statement": change.statement})
                else:
                    screen.print(f"{at}  {name}  {change.table}  {printable(change.statement)}", soft_wrap=True)


def diff_schema(
    route: RouteOption = None,
    only: TableOption = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Show where the ledger and the tables disagree, and what rows keep in _unmapped, by key."""
    from penstock.engine.operate.table_schemas import inspect_tables

    with open_pipeline(config) as pipeline:
        found = [inspect_tables(pipeline, name, only, into_unmapped=True) for name in _routes(pipeline, route)]
    seen = [each for routed in found for each in routed.tables if routed.problem is None or each.real is not None]
    if json:
        print_json([difference_object(each) for each in seen])
    else:
        lines = [line for each in seen for line in _differences(each)]
        for line in lines:
            sys.stdout.write(f"{line}\n")
        if seen and not lines:
            note("no differences")
    _warn_problems(found)


def remap_schema(
    route: Annotated[str, typer.Option("--route", help="The route.")],
    name: Annotated[str, typer.Option("--table", help="The table.")],
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="C", help="Only this column; repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Move values from _unmapped into their columns, which are added or widened for it. Asks first."""
    from penstock.engine.operate.table_schemas import plan_remap

    with open_pipeline(config) as pipeline:
        prepared = plan_remap(pipeline, route, name, columns or ())
        proposal = prepared.proposal
        if not json:
            _print_proposal(proposal)
        done: Remapped | None = None
        if proposal.columns and not dry_run:
            if not yes:
                require_yes(f"Do this to '{name}'?")
            done = prepared.apply()
    if json:
        print_json(remapped_object(route, name, proposal, done))
    elif done is not None:
        _print_done(done)


def table_object(each: TableSchema) -> dict[str, JsonValue]:
    return {
        "route": each.route,
        "table": each.name,
        "columns": [
            {
                "name": column.name,
                "type": _real_type(each, column.name),
                "paths": list(column.paths),
                "since": moment_of(column.since),
            }
            for column in each.known
        ],
    }


def difference_object(each: TableSchema) -> dict[str, JsonValue]:
    return {
        "route": each.route,
        "table": each.name,
        "exists": each.real is not None,
        "missing": [column.name for column in each.missing],
        "foreign": list(each.foreign),
        "unmapped": [kept_object(key) for key in each.kept],
    }


def kept_object(key: UnmappedKey) -> dict[str, JsonValue]:
    return {
        "key": key.name,
        "values": key.values,
        "type": None if key.type is None else key.type.value,
        "column": None if key.column is None else key.column.type,
        "lossy": key.lossy,
    }


def remapped_object(route: str, name: str, proposal: Proposal, done: Remapped | None) -> dict[str, JsonValue]:
    return {
        "route": route,
        "table": name,
        "applied": done is not None,
        "statements": list(proposal.statements),
        "rows": 0 if done is None else done.rows,
        "columns": [
            {
                "name": column,
                **{what: getattr(done, what).get(column, 0) if done else 0 for what in ("moved", "unfit", "occupied")},
            }
            for column in proposal.columns
        ],
        "left": [asdict(left) for left in proposal.left],
    }


def _routes(pipeline: Pipeline, route: str | None) -> list[str]:
    return list(pipeline.config.routes) if route is None else [route]


def _real_type(each: TableSchema, column: str) -> str | None:
    real = each.real.columns.get(column) if each.real is not None else None
    return None if real is None else real.type


def _differences(each: TableSchema) -> list[str]:
    """A line per difference; where many are of one kind, a line for all of them."""
    place = f"{each.route}  {each.name}"
    if each.real is None:
        return [f"{place}: the table does not exist"]
    found: dict[str, list[tuple[str, str]]] = {}
    for column in each.missing:
        line = f"{place}.{column.name}: not in the table; filled from {printable(', '.join(column.paths))}"
        found.setdefault("{} not in the table", []).append((column.name, line))
    for name in each.foreign:
        kind = each.real.columns[name].type
        found.setdefault(f"{{}} not in the ledger; {kind}", []).append(
            (name, f"{place}.{name}: not in the ledger; {kind}")
        )
    lines = [line for kind, members in found.items() for line in _folded(place, kind, "column", members)]
    kept: dict[str, list[UnmappedKey]] = {}
    for key in each.kept:
        there = f", its column is {key.column.type}" if key.column else ""
        kept.setdefault((f", {key.type}" if key.type else "") + there, []).append(key)
    for kind, keys in kept.items():
        members = [
            (key.name, f"{place}._unmapped: {counted(key.values, 'value')} under {printable(key.name)!r}{kind}")
            for key in keys
        ]
        values = counted(sum(key.values for key in keys), "value")
        lines += _folded(f"{place}._unmapped", f"{values} under {{}}{kind}", "key", members)
    return lines


def _folded(place: str, kind: str, noun: str, members: Sequence[tuple[str, str]]) -> list[str]:
    """``kind`` describes all of them, with ``{}`` for how many."""
    if len(members) <= FOLDED_FROM:
        return [line for _, line in members]
    examples = ", ".join(printable(name) for name, _ in members[:FOLDED_FROM])
    return [f"{place}: {kind.replace('{}', counted(len(members), noun))} ({examples}, ...; all: --json)"]


def _warn_problems(found: Sequence[RouteSchema]) -> None:
    for routed in found:
        if routed.problem is not None and (routed.tables or routed.problem.code != "PEN-ENG-012"):
            note(f"{routed.route}: {routed.problem.code}: {routed.problem.what}")


def _print_proposal(proposal: Proposal) -> None:
    for statement in proposal.statements:
        sys.stdout.write(f"{statement};\n")
    if not proposal.columns:
        sys.stdout.write("nothing to remap\n")
    for left in proposal.left:
        note(f"left alone: {counted(left.values, 'value')} under {printable(left.key)!r}: {left.reason}")


def _print_done(done: Remapped) -> None:
    for column in done.proposal.columns:
        stayed = [
            f"{count(number)} {why}"
            for number, why in (
                (done.unfit.get(column, 0), "still do not fit"),
                (done.occupied.get(column, 0), "stay: the column has another value"),
            )
            if number
        ]
        moved = f"{column}: {counted(done.moved.get(column, 0), 'value')} moved"
        sys.stdout.write(", ".join([moved, *stayed]) + "\n")
