"""``penstock sample``: its verbs."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Look at tail sampling, and change its course.")
