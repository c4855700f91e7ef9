"""``penstock validate``: everything that is wrong in a config file, at once. No JVM, nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exits import Exit
from penstock.cli.options import CONFIG, ConfigOption, JsonOption
from penstock.cli.screen import JsonValue, counted, note, print_json

if TYPE_CHECKING:
    from penstock.config.problems import Problem


def validate(
    path: Annotated[Path | None, typer.Argument(help="The config file; by default that of --config.")] = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Check the config: every mistake with its line, and how to mend it. A warning is no mistake: it ends with 0."""
    from penstock.config.loading import load_with_remarks
    from penstock.config.problems import ConfigError

    file = path or config
    try:
        loaded = load_with_remarks(file)
    except ConfigError as error:
        if json:
            print_json([problem_object(problem) for problem in error.problems])
        else:
            for problem in error.problems:
                typer.echo(str(problem))
        raise typer.Exit(Exit.PROBLEMS) from None
    pipeline = loaded.config
    if json:
        print_json([problem_object(remark, "warning") for remark in loaded.remarks])
    else:
        for remark in loaded.remarks:
            note(f"warning: {remark}")
        sources, routes = counted(len(pipeline.sources), "source"), counted(len(pipeline.routes), "route")
        typer.echo(f"{file} is valid: {sources}, {routes}")


def problem_object(problem: Problem, severity: str = "error") -> dict[str, JsonValue]:
    position = problem.position
    return {
        "file": problem.file,
        "line": position.line if position else None,
        "column": position.column if position else None,
        "key": problem.key,
        "message": problem.what,
        "fix": problem.fix,
        "severity": severity,
    }
