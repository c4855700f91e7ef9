"""``penstock run``: the supervisor, in this process, until it is told to stop or, with ``--once``, to the end."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.exit_codes import Exit, print_error
from penstock.cli._support.open_pipeline import open_pipeline, read_config_with_warnings
from penstock.cli._support.options import CONFIG, ConfigOption
from penstock.cli._support.screen import JsonValue, counted, note, print_json_line, printable, show
from penstock.cli._support.signals import stop_in_two_steps
from penstock.cli.run_step import step_through
from penstock.config.value_types.quantities import seconds
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.pipeline_config import PipelineConfig


def run(
    once: Annotated[bool, typer.Option("--once", help="Take what is there, deliver it, and end.")] = False,
    patience: Annotated[
        float | None,
        typer.Option(
            "--patience",
            metavar="DURATION",
            parser=seconds,
            help="With --once: how long to wait for an unavailable database (30s, 5m), then end with 3.",
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="ROUTE", help="Deliver what waits in the log for one route, record by record."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --step: do not ask before each record.")] = False,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="now", help="now: new routes skip everything already in the log."),
    ] = None,
    config: ConfigOption = CONFIG,
    json: Annotated[
        bool, typer.Option("--json", help="Print start and end, or with --step each record, as a JSON object.")
    ] = False,
) -> None:
    """Run the pipeline. Ctrl-C stops the sources and delivers what is there; a second one stops now."""
    if start not in (None, "now"):
        raise typer.BadParameter(
            "only `now` is allowed; to start earlier, use penstock offset rewind.", param_hint="--from"
        )
    if patience is not None and not once:
        raise typer.BadParameter("--patience needs --once.", param_hint="--patience")
    if step is not None:
        if once:
            raise typer.BadParameter("it ends by itself; leave --once out.", param_hint="--step")
        raise typer.Exit(step_through(config, step, yes, json))
    if yes:
        raise typer.BadParameter("--yes needs --step.", param_hint="--yes")
    from penstock.engine.data_dir import require_writable
    from penstock.engine.file_permissions import tighten
    from penstock.engine.layout import Layout
    from penstock.engine.processes.supervisor import Supervisor, run_once

    path = config.absolute()
    pipeline = read_config_with_warnings(path)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    os.umask(pipeline.file_mask)
    require_writable(pipeline.data_dir)
    tighten(Layout(pipeline.data_dir), pipeline.file_mask)
    if start is not None:
        _start_at_end(path)
    if json:
        print_json_line({"event": "started", **banner_object(pipeline, once)})
    else:
        for line in banner(pipeline, once):
            note(line)

    with stop_in_two_steps(pipeline.engine.drain) as (stopping, hurry):
        if once:
            code = run_once(path, bounded_sources(pipeline), stopping, hurry, patience)
        else:
            engine, run_dir = pipeline.engine, Layout(pipeline.data_dir).run
            supervisor = Supervisor(path, list(pipeline.sources), engine.drain, run_dir, engine.silence)
            code = supervisor.run(stopping, hurry)
    if code == Exit.START:
        raise typer.Exit(code)
    # A child that was ended by a signal has the negative signal as its code.
    code = Exit.UNFINISHED if code < 0 else code
    _print_account(path, code, json)
    raise typer.Exit(code)


def _start_at_end(path: Path) -> None:
    from penstock.cli._support.operator import current_operator
    from penstock.engine.history.takeover import start_at_end

    with open_pipeline(path, create=True) as pipeline:
        for route in start_at_end(pipeline, current_operator("run --from now")):
            note(f"route {route} begins after all that is in the log now")


def bounded_sources(config: PipelineConfig) -> list[str]:
    """The bounded sources; a server has no end and is left out of a run with ``--once``."""
    return [name for name, source in config.sources.items() if source.bounded]


def banner(config: PipelineConfig, once: bool) -> Iterator[str]:
    yield f"penstock: {config.name}" + (", to the end of what is there" if once else "")
    for name, source in config.sources.items():
        listening = source.listening
        yield f"  source {name}: {source.type}" + (f" on {listening.address}" if listening and not once else "")
    for name, route in config.routes.items():
        way = " > ".join([", ".join(route.from_), *(step for step, _ in route.step_configs), route.to.type])
        yield f"  route {name}: {way}"
    yield f"  data: {config.data_dir}, ledger: {shown_ledger(config)}"


def banner_object(config: PipelineConfig, once: bool) -> dict[str, JsonValue]:
    return {
        "name": config.name,
        "once": once,
        "sources": {
            name: {"type": s.type, "listen": s.listening and s.listening.address} for name, s in config.sources.items()
        },
        "routes": {name: {"from": list(r.from_), "to": r.to.type} for name, r in config.routes.items()},
        "data_dir": str(config.data_dir),
        "ledger": shown_ledger(config),
    }


def shown_ledger(config: PipelineConfig) -> str:
    """The ledger's address, without the password that its URL may hold."""
    if config.ledger.url is None:
        return "SQLite"
    from penstock.engine.ledger import shown_url

    return shown_url(config.ledger.url.get_secret_value())


def _print_account(path: Path, code: int, as_json: bool) -> None:
    """Print what became of every record. Does not change the exit code."""
    from penstock.cli.status import failed_line, routes_table, status_object
    from penstock.engine.operate.status import status

    try:
        with open_pipeline(path) as pipeline:
            found = status(pipeline)
    except PenstockError as error:
        print_error(error)
        if as_json:
            print_json_line({"event": "ended", "code": code})
        return
    unfinished = found.routes if code == Exit.UNFINISHED else ()
    retrying = [route for route in unfinished if route.noted == "retrying"]
    tables = {
        route.route: "; ".join(
            f"table {name} waits for {counted(wait.rows, 'row')}: {wait.reason}" for name, wait in route.waiting.items()
        )
        for route in unfinished
        if route.waiting
    }
    if as_json:
        waiting: dict[str, JsonValue] = {**tables, **{route.route: route.message for route in retrying}}
        waits = {"waits_for": waiting} if waiting else {}
        print_json_line({"event": "ended", "code": code, **waits, **status_object(found)})
        return
    show(routes_table(found))
    for route in found.routes if code == Exit.UNFINISHED else ():
        if route.state == "crashed":
            note(f"route {route.route} gave up: {printable(route.message)}")
        elif route.state == "halted":
            note(f"route {route.route} {printable(route.message)}")
    for route in retrying:
        note(f"route {route.route} still waits, {counted(route.to_go, 'record')} to go: {printable(route.message)}")
    for name, what in tables.items():
        note(f"route {name}: {printable(what)}")
    if code == Exit.UNFINISHED:
        note("stopped before everything was delivered; the rest is in the log and goes on with the next run")
    for line in failed_line(found):
        note(line)
