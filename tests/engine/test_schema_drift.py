"""The log of schema changes is whole although the engine is killed right after a change, before it could note it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from penstock.config.loading import load
from penstock.destinations.postgres.dialect import postgres_dialect
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.schema_drift import drift_statements, to_text
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.ledger import Totals
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.engine.pipeline import Pipeline
from penstock.log.read_ranges import Stretch
from tests.engine.projects import append_all, pipeline
from tests.support.duckdb_file import open_file

ROOT = Path(__file__).parents[2]
FOUND = " -- found when batch {number} was tried again: made by the try before it, or by somebody else"


def project(folder: Path, options: str = "") -> Pipeline:
    return pipeline(
        folder,
        "name: shop\nsources: {web: {type: file, path: ./web.ndjson}}\n"
        "routes:\n  warehouse:\n    from: web\n"
        f"    to: {{type: duckdb, path: ./warehouse.duckdb, adopt: [events]{options}}}\n",
    )


def deliver(config: Path) -> None:
    """Load what waits, as the engine would, without Spark."""
    opened = Pipeline.open(load(config))
    plan = replace(opened.plan("warehouse"), stage_dir=config.parent / "stage")
    (partition,) = opened.log.partitions(["web"])
    end = opened.log.bounds(partition).end
    start = opened.ledger.open_route("warehouse", {partition: 0})[partition].committed
    rows = opened.log.read(partition, start, end)
    report = add_up([run_task(plan, rows, Stretch(partition, start, end))])
    delivery = Delivery(plan, plan.destination(), opened.log, opened.ledger, opened.failed_store, Event())
    delivery.deliver(report)


def killed_at_note(config: Path, nth: int) -> None:
    """Deliver in a process that is killed when it is about to note its nth change."""
    script = f"import pathlib, tests.engine.test_schema_drift as t; t.deliver(pathlib.Path({str(config)!r}))"
    environment = {**os.environ, "PENSTOCK_FAULTS": f"ledger.schema_change@{nth}=kill"}
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()


def noted(opened: Pipeline) -> list[str]:
    return [change.statement for change in RouteBook(opened.ledger, "warehouse").changes()]


A_TABLE = 'CREATE TABLE IF NOT EXISTS "events" ("a" BIGINT, "b" VARCHAR)'
C = 'ALTER TABLE "events" ADD COLUMN "c" BIGINT'
SPARE = 'ALTER TABLE "events" ADD COLUMN "_unmapped" JSON'
D = 'ALTER TABLE "events" ADD COLUMN "d" BOOLEAN'


@pytest.mark.parametrize(
    ("before", "after", "event", "nth", "expected"),
    [
        pytest.param(None, "", b'{"a": 1, "b": "x"}', 1, [A_TABLE + FOUND], id="a table"),
        pytest.param("", "", b'{"a": 1, "c": 2}', 1, [C + FOUND], id="a column"),
        pytest.param("", "", b'{"c": 1, "d": true}', 2, [C, D + FOUND], id="the second of two columns"),
        pytest.param("", "", b'{"a": "x"}', 1, [SPARE + FOUND], id="the spare column"),
        pytest.param(
            ", on_type_conflict: widen", ", on_type_conflict: widen", b'{"a": 1.5}', 1,
            ['ALTER TABLE "events" ALTER COLUMN "a" TYPE DOUBLE' + FOUND], id="a wider column",
        ),
    ],
)  # fmt: skip
def test_a_change_that_could_not_be_noted_is_in_the_log_as_found(
    tmp_path: Path, before: str | None, after: str, event: bytes, nth: int, expected: Sequence[str]
) -> None:
    config = tmp_path / "pipeline.yaml"
    opened = project(tmp_path, before or "")
    earlier = 0
    if before is not None:
        append_all(opened, "web", [b'{"a": 1, "b": "x"}'])
        deliver(config)
        earlier = 1
        assert len(noted(opened)) == 1
    project(tmp_path, after)
    append_all(opened, "web", [event])
    killed_at_note(config, nth)
    assert len(noted(opened)) == earlier + nth - 1, "the engine died before the note"

    deliver(config)
    assert noted(opened)[earlier:] == [statement.format(number=earlier + 1) for statement in expected]
    assert opened.ledger.totals("warehouse") == Totals(items=earlier + 1, loaded=earlier + 1)
    append_all(opened, "web", [event])
    deliver(config)
    assert len(noted(opened)) == earlier + len(expected)


def test_a_column_that_a_person_made_before_the_try_is_not_in_the_log(tmp_path: Path) -> None:
    opened = project(tmp_path)
    with open_file(tmp_path / "warehouse.duckdb") as connection:
        connection.execute("CREATE TABLE events (a BIGINT, c BIGINT)")
    append_all(opened, "web", [b'{"a": 1, "c": 2, "d": true}'])
    killed_at_note(tmp_path / "pipeline.yaml", 1)
    deliver(tmp_path / "pipeline.yaml")
    assert noted(opened) == [(D + FOUND).format(number=1)]


def test_changes_that_are_noted_are_not_found_again(tmp_path: Path) -> None:
    opened = project(tmp_path)
    for event in (b'{"a": 1, "b": "x"}', b'{"c": 1}', b'{"d": true}', b'{"d": false}'):
        append_all(opened, "web", [event])
        deliver(tmp_path / "pipeline.yaml")
    assert noted(opened) == [A_TABLE, C, D]


OURS, WIDER, THEIRS = Key("events_penstock_key", ("a",)), Key("events_penstock_key", ("a", "b")), Key("pk", ("a",))
DROP = 'ALTER TABLE "public"."events" DROP CONSTRAINT "events_penstock_key", ALTER COLUMN "a" DROP NOT NULL'
SET = 'ALTER TABLE "public"."events" ADD CONSTRAINT "events_penstock_key" PRIMARY KEY ({columns})'


@pytest.mark.parametrize(
    ("was", "now", "in_the_log", "found"),
    [
        (None, OURS, [], [SET.format(columns='"a"')]),
        (OURS, None, [], [DROP]),
        (OURS, WIDER, [], [DROP, SET.format(columns='"a", "b"')]),
        (OURS, WIDER, [DROP], [SET.format(columns='"a", "b"')]),
        (OURS, OURS, [], []),
        (None, THEIRS, [], []),
    ],
)
def test_a_key_of_ours_that_changed_is_found_and_a_foreign_one_is_not(
    was: Key | None, now: Key | None, in_the_log: Sequence[str], found: Sequence[str]
) -> None:
    columns = {name: TypedColumn(name, "bigint") for name in ("a", "b")}
    before = to_text(Table("events", columns, was))
    assert (
        drift_statements(postgres_dialect("public"), "events", before, Table("events", columns, now), in_the_log)
        == found
    )
