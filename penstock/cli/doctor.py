"""``penstock doctor``: checks everything that a pipeline needs, and says how to fix what is wrong."""

from __future__ import annotations

from dataclasses import asdict

import typer

from penstock.cli._support.exit_codes import Exit
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import print_json, printable, show, table

_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(config: ConfigOption = CONFIG, json: JsonOption = False) -> None:
    """Check Python, Java, config, disk, ports, log, ledger and destinations."""
    from penstock.engine.operate.doctor import Verdict, run_checks

    findings = list(run_checks(config))
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        from rich.text import Text

        rows = [(Text(f.verdict, _STYLE[f.verdict]), f.subject, printable(f.found), printable(f.fix)) for f in findings]
        show(table("", "what", "found", "what to do", rows=rows))
    if any(f.verdict is Verdict.FAIL for f in findings):
        raise typer.Exit(Exit.PROBLEMS)
