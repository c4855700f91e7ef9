"""``penstock plan``: the schema changes that events would cause, as SQL. Changes nothing, starts no JVM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.exit_codes import Exit, exit_code, print_error
from penstock.cli._support.open_pipeline import open_pipeline, read_config
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import JsonValue, counted, note, print_json, printable
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.config.pipeline_config import PipelineConfig
    from penstock.engine.operate.samples import SampleRange
    from penstock.engine.operate.schema_plan import PlannedChanges
    from penstock.engine.route_plan import RoutePlan

    Sampling = Callable[[RoutePlan], Iterable[SampleRange]]

SampleOption = Annotated[
    Path | None, typer.Option("--sample", metavar="FILE", help="Events to plan for: an NDJSON file, gzipped or not.")
]
ArchiveOption = Annotated[
    list[Path] | None,
    typer.Option("--archive", metavar="PATH", help="Events to plan for: a file or a folder of an archive; repeatable."),
]


def plan(
    route: Annotated[str | None, typer.Option("--route", help="Only this route.")] = None,
    sample: SampleOption = None,
    archive: ArchiveOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Plan as if the destination were empty.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Print the DDL that events would cause at each route's tables, by default those that wait in the log."""
    from penstock.engine.operate.schema_plan import plan_changes
    from penstock.engine.pipeline import route_plan, sources_of

    if sample is not None and archive:
        raise typer.BadParameter("give one of --sample and --archive.", param_hint="--sample")
    read = read_config(config)
    if route is not None:
        sources_of(read, route)
    planned: list[PlannedChanges] = []
    problems: list[PenstockError] = []
    with _sampling(config, sample, archive) as events_for:
        for name in read.routes if route is None else [route]:
            chosen = route_plan(read, name)
            try:
                planned.append(plan_changes(chosen, events_for(chosen), offline))
            except PenstockError as error:
                if route is not None:
                    raise
                problems.append(error)
    if json:
        print_json([planned_object(each) for each in planned])
    else:
        _print(planned, read)
    for problem in problems:
        print_error(problem)
    if problems:
        raise typer.Exit(max(Exit.PROBLEMS, *map(exit_code, problems)))


def planned_object(planned: PlannedChanges) -> dict[str, JsonValue]:
    return {
        "route": planned.route,
        "destination": planned.destination,
        "events": planned.events,
        "staged": planned.staged,
        "skipped": dict(planned.skipped),
        "failed": [asdict(each) for each in planned.failed],
        "statements": None if planned.statements is None else list(planned.statements),
    }


@contextmanager
def _sampling(config: Path, sample: Path | None, archive: list[Path] | None) -> Iterator[Sampling]:
    """The source of the events. Only events in the log need a pipeline that ran."""
    from penstock.engine.operate.samples import archive_sample, file_sample, waiting_sample

    if sample is not None:
        yield lambda plan: file_sample(plan, sample)
    elif archive:
        yield lambda plan: archive_sample(plan, archive)
    else:
        with open_pipeline(config) as pipeline:
            yield lambda plan: waiting_sample(pipeline, plan)


def _print(planned: list[PlannedChanges], config: PipelineConfig) -> None:
    """Print a script that could be run, with everything else in comments; failed events are remarks on stderr."""
    for each in planned:
        heading = f"-- route {each.route} to {each.destination}"
        if each.statements is None:
            sys.stdout.write(f"{heading}: nothing to plan\n")
            continue
        sys.stdout.write(f"{heading}, {counted(each.events, 'event')}\n")
        for statement in each.statements:
            sys.stdout.write(f"{statement};\n")
        if not each.statements:
            sys.stdout.write("-- nothing to change\n")
        for step, number in each.skipped.items():
            note(f"{each.route}: {counted(number, 'event')} skipped by {step}")
        for kind in each.failed:
            note(f"{each.route}: {counted(kind.count, 'event')} failed in {kind.step}: {printable(kind.message)}")
    if not config.routes:
        note("the pipeline has no routes")
