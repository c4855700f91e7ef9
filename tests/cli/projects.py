"""A pipeline with a history, made with the real log, ledger and failed store, for the verbs to look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config.loading import load
from penstock.destinations.contract import TableReceipt
from penstock.engine.failed.failed_items import failed_items
from penstock.engine.ledger import RouteState, Settlement
from penstock.engine.pipeline import Pipeline
from penstock.record import Record, entries
from penstock.steps.chain import STEP_FAILURE_SCHEMA

CONFIG = """\
name: shop
data_dir: ./data
sources:
  web: {type: file, path: ./events.ndjson}
routes:
  warehouse:
    from: web
    steps:
      - where: "price > 10"
      - pick: [price]
    to: {type: file, path: ./out, format: ndjson}
  audit:
    from: web
    to: {type: 'null'}
"""
FIRST_TIME = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
HOSTILE = b'{"note": "\x1b[2J"'
BINARY = b"\xff\xfe"


@dataclass(frozen=True)
class Result:
    """What a verb printed and how it ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Project:
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "pipeline.yaml"

    def penstock(self, *words: str, answer: str | None = None) -> Result:
        """Run a verb on this project, as if its options had ended with ``--config``."""
        return penstock(*words, "--config", str(self.config), answer=answer)

    def open(self) -> Pipeline:
        return Pipeline.open(load(self.config))


def penstock(*words: str, answer: str | None = None) -> Result:
    ran = CliRunner().invoke(app, list(words), input=answer, catch_exceptions=False)
    return Result(ran.exit_code, ran.stdout, ran.stderr)


def new_project(folder: Path) -> Project:
    """A config, and no history."""
    project = Project(folder)
    project.config.write_text(CONFIG)
    return project


def project_with_history(folder: Path) -> Project:
    """Eight records in the log: prices 5 to 30, one that is hostile to terminals, one that is not text.

    ``warehouse`` took six in two batches (three loaded, one skipped, two failed) and is two behind; ``audit`` has not
    begun.
    """
    project = new_project(folder)
    pipeline = project.open()
    data = [b'{"price": %d}' % price for price in (5, 15, 20)] + [b"nonsense", HOSTILE, b'{"price": 30}']
    records = [_record(number, each) for number, each in enumerate([*data, BINARY, b'{"price": 40}'])]
    with pipeline.log.writer("web") as writer:
        partition = writer.partition
        writer.append(entries(records))
    ledger = pipeline.ledger
    ledger.open_route("warehouse", {partition: 0})
    first = ledger.begin("warehouse", {partition: (0, 3)})
    assert first is not None
    ledger.commit(first, Settlement(3, 2, {"where": 1}, tables=[TableReceipt("out", 2)], seconds=0.5))
    second = ledger.begin("warehouse", {partition: (3, 6)})
    assert second is not None
    failures = pa.RecordBatch.from_pylist(
        [
            _failure(partition, 3, "where", "not_json", "this is not JSON: nonsense"),
            _failure(partition, 4, "pick", "path_blocked", "the way is blocked"),
        ],
        schema=STEP_FAILURE_SCHEMA,
    )
    extent = pipeline.failed_store.append(
        "warehouse", second.number, ledger.failed_extent("warehouse"), failed_items(pipeline.log, [failures])
    )
    settlement = Settlement(3, 1, failed=2, tables=[TableReceipt("out", 1)], failed_extent=extent)
    ledger.commit(second, settlement)
    ledger.set_state("warehouse", RouteState.RETRYING, "PEN-DST-099: the target is unavailable.")
    ledger.close()
    return project


def _record(number: int, data: bytes) -> Record:
    return Record(data, "web", headers={"token": "site"}, timestamp=FIRST_TIME + timedelta(minutes=number))


def _failure(partition: int, offset: int, step: str, code: str, message: str) -> dict[str, object]:
    return {"partition": partition, "offset": offset, "item": 0, "code": code, "message": message, "step": step}
