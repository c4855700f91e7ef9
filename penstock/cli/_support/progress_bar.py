"""Progress bars for verbs that read or copy much. Shown on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.cli._support.screen import console

if TYPE_CHECKING:
    from rich.progress import TaskID

    from penstock.log.maintenance.work_progress import Progress


@contextmanager
def partition_bars(doing: str) -> Iterator[Progress]:
    """Yields the function to call with a partition's progress: a bar each."""
    with progress_bars() as report:
        yield lambda partition, done, total: report(f"{doing} partition {partition}", done, total)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yields the function to call with what is being done and how far it is; shows a line for each on stderr, removed
    at the end."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda doing, done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=screen, transient=True) as bars:
        lines: dict[str, TaskID] = {}

        def update_bar(doing: str, done: int, total: int) -> None:
            if doing not in lines:
                lines[doing] = bars.add_task(doing)
            bars.update(lines[doing], completed=done, total=total)

        yield update_bar
