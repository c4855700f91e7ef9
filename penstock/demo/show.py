"""``penstock demo``: start the pipeline, send events, wait until they are in the warehouse, show it, stop clean."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.config.loading import load
from penstock.demo.held_signals import HeldSignals
from penstock.demo.project import MARKER, DemoProject, write_project
from penstock.demo.sample_events import shop_events
from penstock.demo.sender import Client, Sent, send_all
from penstock.engine.operate.status import RouteStatus, route_status
from penstock.engine.pipeline import Pipeline
from penstock.errors import PenstockError

ROUTE = "warehouse"
PATIENCE = 600.0
"""Seconds after which we assume a hang: a machine may be slow."""
QUERY = """\
SELECT event_type, count(*) AS events, count(DISTINCT country) AS countries, round(sum(price), 2) AS revenue
FROM events GROUP BY event_type ORDER BY events DESC"""


@dataclass(frozen=True)
class Result:
    """What the demo saw. ``whole`` is the promise: everything taken is accounted for, and the rows are really there."""

    sent: Sent
    route: RouteStatus
    rows: int
    distinct: int
    send_seconds: float
    deliver_seconds: float
    exit_code: int

    @property
    def whole(self) -> bool:
        totals = self.route.totals
        return (
            totals.adds_up
            and totals.items == self.sent.accepted + self.sent.malformed
            and totals.loaded == self.rows == self.distinct
            and totals.failed == self.sent.malformed
            and self.route.lag == 0
            and self.exit_code == 0
        )


def demo(folder: Path, events: int, singles: int, console: Console) -> Result:
    """Run the whole demo in ``folder`` and return what was seen. Only an earlier demo there is removed."""
    _make_room(folder)
    project = write_project(folder)
    console.print(f"Pipeline: [bold]{project.config}[/]   log: {project.folder / 'run.log'}")
    with (project.folder / "run.log").open("wb") as log:
        command = [sys.executable, "-m", "penstock.cli.main", "run", "-c", str(project.config)]
        held = HeldSignals()  # one in the middle of the next line would leave a pipeline that nobody knows of
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            held.release()
            _wait(lambda: Client(project.port).ready(), process, "the collector to listen")
            console.print("The collector listens; Spark starts beside it. Sending.")
            result = _send_and_watch(project, events, singles, process, console)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=PATIENCE)
    result = Result(**{**vars(result), "exit_code": code})
    _show(project, result, console)
    return result


def _make_room(folder: Path) -> None:
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / MARKER).exists():
        raise PenstockError(
            "PEN-DMO-003", f"{folder} holds something that is not a demo.", "Name another: penstock demo --folder NAME"
        )
    shutil.rmtree(folder)


def _send_and_watch(
    project: DemoProject, events: int, singles: int, process: subprocess.Popen[bytes], console: Console
) -> Result:
    began = time.monotonic()
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        sending = progress.add_task("sent", total=events)
        loading = progress.add_task("delivered", total=events)
        sent = send_all(project.port, shop_events(events), singles, lambda n: progress.advance(sending, n))
        send_seconds = time.monotonic() - began
        pipeline = Pipeline.open(load(project.config))
        taken = sent.accepted + sent.malformed

        def delivered() -> bool:
            totals = pipeline.ledger.totals(ROUTE)
            progress.update(loading, completed=min(events, totals.items))
            return totals.items >= taken

        _wait(delivered, process, "the route to catch up")
        route = route_status(pipeline, ROUTE)
        deliver_seconds = _delivery_seconds(pipeline)
        pipeline.ledger.close()
    rows, distinct = _ask(project.warehouse, "SELECT count(*), count(DISTINCT eventn_ctx_event_id) FROM events")[0]
    return Result(sent, route, int(str(rows)), int(str(distinct)), send_seconds, deliver_seconds, -1)


def _delivery_seconds(pipeline: Pipeline) -> float:
    """From the first batch's start to the last one's commit."""
    batches = pipeline.ledger.batches(ROUTE, last=10_000)
    return max(0.001, batches[0].committed_at - batches[-1].committed_at + batches[-1].seconds)


def _ask(warehouse: Path, query: str) -> list[tuple[object, ...]]:
    """Query the warehouse; retries while the route has it open for a batch."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with duckdb.connect(str(warehouse), read_only=True) as connection:
                return connection.execute(query).fetchall()
        except duckdb.IOException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _wait(look: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not look():
        if process.poll() is not None:
            raise PenstockError(
                "PEN-DMO-001", f"the pipeline ended with {process.returncode}.", "See run.log beside it."
            )
        if time.monotonic() > deadline:
            raise PenstockError("PEN-DMO-002", f"waited {PATIENCE:g} s for {what}.", "See run.log beside it.")
        time.sleep(0.1)


def _show(project: DemoProject, result: Result, console: Console) -> None:
    totals, sent = result.route.totals, result.sent
    table = Table(title="Accounting", title_justify="left")
    for heading in ("", "events"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("acknowledged by the collector (200)", f"{sent.accepted:,}")
    table.add_row("kept although malformed", f"{sent.malformed:,}")
    table.add_row("refused with a 4xx, on purpose", f"{sent.refused:,}")
    table.add_section()
    table.add_row("taken by the route", f"{totals.items:,}")
    table.add_row("= loaded", f"{totals.loaded:,}")
    for step, count in result.route.skipped_by.items():
        table.add_row(f"+ skipped by '{step}'", f"{count:,}")
    table.add_row("+ failed (see: penstock failed list)", f"{totals.failed:,}")
    table.add_row("+ waiting", f"{totals.waiting:,}")
    table.add_section()
    table.add_row("rows in DuckDB / distinct event ids", f"{result.rows:,} / {result.distinct:,}")
    console.print(table)

    answer = Table(title=QUERY, title_justify="left", title_style="dim")
    for heading in ("event_type", "events", "countries", "revenue"):
        answer.add_column(heading, justify="left" if heading == "event_type" else "right")
    for row in _ask(project.warehouse, QUERY):
        answer.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
    console.print(answer)

    taken = sent.accepted + sent.malformed
    console.print(
        f"Sent {taken:,} events in {result.send_seconds:.1f} s ({taken / result.send_seconds:,.0f}/s, each on disk "
        f"before its 200); delivered in {result.deliver_seconds:.1f} s ({taken / result.deliver_seconds:,.0f}/s). "
        f"Stopped clean: {'yes' if result.exit_code == 0 else f'no, exit code {result.exit_code}'}."
    )
    if result.whole:
        console.print("[bold green]Every event is accounted for.[/]")
    else:
        console.print("[bold red]The accounting does not add up.[/]")
