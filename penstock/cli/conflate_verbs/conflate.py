"""``penstock conflate``: its verbs."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Look at the state that sources report, and forget a source.")
