"""The command ``penstock``: puts the verbs together. Importing it is cheap, so that ``--help`` is quick.

A verb's module imports what is heavy (Arrow, Spark, SQL) inside its function, never at its top.
"""

from __future__ import annotations

import gc
import os
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import about, backup, demo, doctor, failed, init, plan, run, schema, status, tap, test, validate
from penstock.cli import list as listing
from penstock.cli._support.exit_codes import guarded
from penstock.cli.log_verbs import log, log_compact, log_export, log_import, log_repair, log_verify
from penstock.cli.offset_verbs import offset, offset_moves, offset_past
from penstock.redaction import redact_stderr

app = typer.Typer(
    name="penstock",
    help="One pipeline for events, telemetry, table changes and state reports, on Apache Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """One pipeline for events, telemetry, table changes and state reports, on Apache Spark."""


app.command("init")(guarded(init.init))
app.command("validate")(guarded(validate.validate))
app.command("test")(guarded(test.run_cases))
app.command("run")(guarded(run.run))
app.command("status")(guarded(status.status))
app.command("tap")(guarded(tap.tap))
app.command("doctor")(guarded(doctor.doctor))
app.command("list")(guarded(listing.list_components))
app.command("about")(guarded(about.about))
app.command("plan")(guarded(plan.plan))
app.command("backup")(guarded(backup.back_up))
app.command("restore")(guarded(backup.restore))

schema.app.callback(invoke_without_command=True)(guarded(schema.schema))
schema.app.command("show")(guarded(schema.show_schema))
schema.app.command("diff")(guarded(schema.diff_schema))
schema.app.command("remap")(guarded(schema.remap_schema))
schema.app.command("log")(guarded(schema.show_changes))
schema.app.command("config")(guarded(schema.show_config_schema))
app.add_typer(schema.app, name="schema")

failed.app.command("list")(guarded(failed.list_failed))
failed.app.command("show")(guarded(failed.show_failed))
failed.app.command("replay")(guarded(failed.replay_failed))
failed.app.command("drop")(guarded(failed.drop_failed))
app.add_typer(failed.app, name="failed")

log.app.command("show")(guarded(log.show_log))
log.app.command("current")(guarded(log.current))
log.app.command("oldest")(guarded(log.oldest))
log.app.command("verify")(guarded(log_verify.verify_log))
log.app.command("repair")(guarded(log_repair.repair_log))
log.app.command("compact")(guarded(log_compact.compact_log))
log.app.command("export")(guarded(log_export.export_log))
log.app.command("import")(guarded(log_import.import_log))
app.add_typer(log.app, name="log")

offset.app.command("list")(guarded(offset.list_offsets))
offset.app.command("show")(guarded(offset.show_offset))
offset.app.command("ack")(guarded(offset_moves.acknowledge_records))
offset.app.command("rewind")(guarded(offset_moves.rewind_route))
offset.app.command("resume")(guarded(offset_moves.resume_route))
offset.app.command("adopt")(guarded(offset_past.adopt_past))
offset.app.command("drop")(guarded(offset_past.drop_route))
app.add_typer(offset.app, name="offset")

app.command("demo")(guarded(demo.demo))


def main() -> None:
    # What verbs write is for whoever runs them; `run` asks the config.
    os.umask(0o077)
    redact_stderr()
    # Importing makes many objects and little garbage: the quick verbs need not look for it so often.
    gc.set_threshold(50_000, 20, 20)
    app()


if __name__ == "__main__":
    main()
