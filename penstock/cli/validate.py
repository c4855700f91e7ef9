"""``penstock validate``: everything that is wrong in a config file, at once. No JVM, nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.exit_codes import Exit
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import JsonValue, counted, note, print_json

if TYPE_CHECKING:
    from penstock.config.loading import Loaded
    from penstock.config.problems import Problem
    from penstock.engine.operate.template_fields import Findings


def validate(
    path: Annotated[Path | None, typer.Argument(help="The config file; by default that of --config.")] = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Check the config: every mistake with its line, and how to fix it. Warnings alone end with 0."""
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
    pipeline, found = loaded.config, _template_findings(loaded)
    said = [("warning", remark) for remark in (*loaded.remarks, *(found.warnings if found else ()))]
    said += [("note", remark) for remark in (found.unchecked if found else ())]
    if json:
        print_json([problem_object(remark, severity) for severity, remark in said])
    else:
        for severity, remark in said:
            note(f"{severity}: {remark}")
        sources, routes = counted(len(pipeline.sources), "source"), counted(len(pipeline.routes), "route")
        typer.echo(f"{file} is valid: {sources}, {routes}")


def _template_findings(loaded: Loaded) -> Findings | None:
    """The findings on templates. Loads Jinja only if there are any."""
    if not any(route.to.templates() for route in loaded.config.routes.values()):
        return None
    from penstock.engine.operate.template_fields import check_templates

    return check_templates(loaded)


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
