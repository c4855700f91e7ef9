"""``penstock test``: runs the cases that a project has for its routes and steps. Starts no JVM, delivers nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.exit_codes import Exit
from penstock.cli._support.open_pipeline import read_config
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import JsonValue, counted, print_json, printable
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.cases.case_runner import Verdict


def run_cases(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", help="Files of cases; by default tests/*.yaml beside the config."),
    ] = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Run cases: records that go in, and what must become of them."""
    from penstock.engine.cases.case import load_cases
    from penstock.engine.cases.case_runner import require_steps, run_case

    cases = [case for file in files or _files_beside(config) for case in load_cases(file)]
    pipeline = read_config(config) if any(each.case.route is not None for each in cases) else None
    require_steps(cases, pipeline)
    verdicts = [run_case(each, pipeline) for each in cases]
    if json:
        print_json(_report(verdicts))
    else:
        _print(verdicts)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(Exit.PROBLEMS)


def _files_beside(config: Path) -> list[Path]:
    folder = config.parent / "tests"
    found = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if not found:
        raise PenstockError(
            "PEN-CLI-004", f"there are no cases: {folder} has no YAML file.", "Write one, or name the files to run."
        )
    return found


def _report(verdicts: list[Verdict]) -> dict[str, JsonValue]:
    passed = sum(verdict.passed for verdict in verdicts)
    return {
        "passed": passed,
        "failed": len(verdicts) - passed,
        "cases": [
            {
                "file": verdict.placed.file,
                "line": verdict.placed.line,
                "name": verdict.placed.case.name,
                "passed": verdict.passed,
                "mismatches": [{"about": each.about, "lines": list(each.lines)} for each in verdict.mismatches],
            }
            for verdict in verdicts
        ],
    }


def _print(verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        place = f"{verdict.placed.file}:{verdict.placed.line}"
        word = "passed" if verdict.passed else "FAILED"
        sys.stdout.write(f"{word}  {place}  {printable(verdict.placed.case.name)}\n")
        for mismatch in verdict.mismatches:
            sys.stdout.write(f"  {mismatch.about}:\n")
            for line in mismatch.lines:
                sys.stdout.write(f"    {printable(line)}\n")
    failed = sum(not verdict.passed for verdict in verdicts)
    total = counted(len(verdicts), "case")
    sys.stdout.write(f"{total}, {failed} failed\n" if failed else f"{total}, all passed\n")
