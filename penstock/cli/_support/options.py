"""Options that verbs share, declared once, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CONFIG = Path("pipeline.yaml")

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", metavar="PATH", envvar="PENSTOCK_CONFIG", help="The pipeline's config file.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
NdjsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for machines.")]
FullOption = Annotated[bool, typer.Option("--full", help="Show data in full on a terminal; by default a line each.")]
