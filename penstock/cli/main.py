"""The command ``penstock``: puts the verbs together. Importing it is cheap, so that ``--help`` is quick.

A verb's module imports what is heavy (Arrow, Spark, SQL) inside its function, never at its top.
"""

from __future__ import annotations

import gc
import os
from functools import cache
from typing import Annotated, Any

import typer

from penstock import __version__
from penstock.cli import about, backup, demo, doctor, failed, init, plan, run, schema, status, tap, test, validate
from penstock.cli import list as listing
from penstock.cli._support.exit_codes import report_errors
from penstock.cli.conflate_verbs import conflate, conflation_status, forget, pending_bundles
from penstock.cli.log_verbs import log, log_compact, log_export, log_import, log_repair, log_verify
from penstock.cli.offset_verbs import offset, offset_history, offset_moves
from penstock.cli.sample_verbs import backtest, flush, sample, sampler_status, set_rate
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


app.command("init")(report_errors(init.init))
app.command("validate")(report_errors(validate.validate))
app.command("test")(report_errors(test.run_cases))
app.command("run")(report_errors(run.run))
app.command("status")(report_errors(status.status))
app.command("tap")(report_errors(tap.tap))
app.command("doctor")(report_errors(doctor.doctor))
app.command("list")(report_errors(listing.list_components))
app.command("about")(report_errors(about.about))
app.command("plan")(report_errors(plan.plan))
app.command("backup")(report_errors(backup.back_up))
app.command("restore")(report_errors(backup.restore))

schema.app.callback(invoke_without_command=True)(report_errors(schema.schema))
schema.app.command("show")(report_errors(schema.show_schema))
schema.app.command("diff")(report_errors(schema.diff_schema))
schema.app.command("remap")(report_errors(schema.remap_schema))
schema.app.command("log")(report_errors(schema.show_changes))
schema.app.command("config")(report_errors(schema.show_config_schema))
app.add_typer(schema.app, name="schema")

failed.app.command("list")(report_errors(failed.list_failed))
failed.app.command("show")(report_errors(failed.show_failed))
failed.app.command("replay")(report_errors(failed.replay_failed))
failed.app.command("drop")(report_errors(failed.drop_failed))
app.add_typer(failed.app, name="failed")

log.app.command("show")(report_errors(log.show_log))
log.app.command("current")(report_errors(log.current))
log.app.command("oldest")(report_errors(log.oldest))
log.app.command("verify")(report_errors(log_verify.verify_log))
log.app.command("repair")(report_errors(log_repair.repair_log))
log.app.command("compact")(report_errors(log_compact.compact_log))
log.app.command("export")(report_errors(log_export.export_log))
log.app.command("import")(report_errors(log_import.import_log))
app.add_typer(log.app, name="log")

offset.app.command("list")(report_errors(offset.list_offsets))
offset.app.command("show")(report_errors(offset.show_offset))
offset.app.command("ack")(report_errors(offset_moves.acknowledge_records))
offset.app.command("rewind")(report_errors(offset_moves.rewind_route))
offset.app.command("resume")(report_errors(offset_moves.resume_route))
offset.app.command("release")(report_errors(offset_moves.release_waiting))
offset.app.command("adopt")(report_errors(offset_history.adopt_history))
offset.app.command("drop")(report_errors(offset_history.drop_route))
app.add_typer(offset.app, name="offset")

sample.app.command("status")(report_errors(sampler_status.show_samplers))
sample.app.command("flush")(report_errors(flush.flush_sampler))
sample.app.command("rate")(report_errors(set_rate.set_sampling_rate))
sample.app.command("backtest")(report_errors(backtest.backtest))
app.add_typer(sample.app, name="sample")

conflate.app.command("status")(report_errors(conflation_status.show_conflation))
conflate.app.command("pending")(report_errors(pending_bundles.show_pending))
conflate.app.command("forget")(report_errors(forget.forget))
app.add_typer(conflate.app, name="conflate")

app.command("demo")(report_errors(demo.demo))


@cache
def command() -> Any:
    """All verbs, as one command that can be called again."""
    return typer.main.get_command(app)


def main() -> None:
    # Files that verbs write are for the user who runs them; `run` follows the config.
    os.umask(0o077)
    redact_stderr()
    # Imports create many objects and little garbage: the quick verbs need fewer collections.
    gc.set_threshold(50_000, 20, 20)
    command()()


if __name__ == "__main__":
    main()
