"""A progress bar for verbs that read whole partitions. Shown on a terminal only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.cli._support.screen import console

if TYPE_CHECKING:
    from rich.progress import TaskID

    from penstock.log.maintenance.work_progress import Progress


@contextmanager
def progress_bar(doing: str) -> Iterator[Progress]:
    """Yields the function to call with the progress; shows a line per partition on stderr, removed at the end."""
    from penstock.log.maintenance.work_progress import silent

    screen = console(stderr=True)
    if not screen.is_terminal:
        yield silent
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=screen, transient=True) as bars:
        lines: dict[int, TaskID] = {}

        def told(partition: int, done: int, total: int) -> None:
            if partition not in lines:
                lines[partition] = bars.add_task(f"{doing} partition {partition}")
            bars.update(lines[partition], completed=done, total=total)

        yield told
