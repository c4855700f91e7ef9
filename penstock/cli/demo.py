"""``penstock demo``: the whole pipeline on this machine, with one command."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[Path, typer.Option(help="Where the demo's pipeline and data go.")] = Path("demo"),
    events: Annotated[int, typer.Option(min=1_000, help="How many events to send.")] = 200_000,
    singles: Annotated[int, typer.Option(min=0, help="How many of them one by one.")] = 2_000,
) -> None:
    """Start a pipeline, send it events (a few bad on purpose), show where each one went, stop clean."""
    from rich.console import Console

    from penstock.demo.show import demo as run

    # The default would end only this process, and leave the pipeline that it started running.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if not run(folder, events, singles, Console()).whole:
        raise typer.Exit(1)
