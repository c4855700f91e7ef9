"""A sender who names tables as they like: what the ledger, the status and the target then say, also after a kill."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event

import pytest

from penstock import faults
from penstock.config.loading import load
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.ledger import Totals
from penstock.engine.pipeline import Pipeline
from penstock.log.read_ranges import Stretch
from penstock.testing.forked import make_process
from penstock.testing.waiting import HANG
from tests.engine.projects import append_all, pipeline
from tests.support.duckdb_file import open_file

CONFIG = """\
name: shop
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  out:
    from: web
    to: {type: duckdb, path: ./out.duckdb, table: "{{ kind }}", tables: ["/t[0-9]+/", customers], max_tables: %d}
"""
POINTS = ["destination.tables_placed", "destination.writing@3", "destination.committed@3", "route.destination_done"]
KINDS = ["customers", "t1", "t2", "t3", "evil", "t4", "t5", "t3", "_penstock_loads"]


def deliver(config: Path) -> None:
    """What waits, as the engine would after a start, without Spark."""
    opened = Pipeline.open(load(config))
    plan = opened.plan("out")
    plan.stage_dir.mkdir(parents=True, exist_ok=True)
    clean_stage(plan.stage_dir)
    (partition,) = opened.log.partitions(["web"])
    start, end = opened.ledger.open_route("out", {partition: 0})[partition].committed, opened.log.bounds(partition).end
    report = add_up([run_task(plan, opened.log.read(partition, start, end), Stretch(partition, start, end))])
    Delivery(plan, plan.destination(), opened.log, opened.ledger, opened.failed_store, Event()).deliver(report)


def _deliver_until(config: Path, point: str) -> None:
    faults._armed = faults.parse(f"{point}=kill")
    deliver(config)


@pytest.mark.parametrize("point", POINTS)
def test_a_sender_makes_no_more_tables_than_allowed_and_every_row_is_there_once_after_a_kill(
    point: str, tmp_path: Path
) -> None:
    with open_file(tmp_path / "out.duckdb") as connection:
        connection.execute("CREATE TABLE customers (id BIGINT)")
    opened = pipeline(tmp_path, CONFIG % 2)
    append_all(opened, "web", [b'{"id": %d, "kind": "%s"}' % (n, kind.encode()) for n, kind in enumerate(KINDS)])
    config = tmp_path / "pipeline.yaml"
    process = make_process(_deliver_until, config, point)
    process.start()
    process.join(HANG)
    assert process.exitcode == -signal.SIGKILL
    # The operator raises the limit before the next start: the batch stays where it was.
    config.write_text(CONFIG % 100)
    deliver(config)
    assert opened.ledger.totals("out") == Totals(items=9, loaded=6, failed=3)
    entries = opened.failed_store.read("out", opened.ledger.failed_extent("out"))
    assert [(entry.record.offset, entry.code) for entry in entries] == [
        (4, "table_not_allowed"),
        (8, "table_name"),
        (0, "table_not_ours"),
    ]
    with open_file(tmp_path / "out.duckdb", read_only=True) as connection:
        ask = connection.execute
        assert ask("SELECT (SELECT count(*) FROM t1), (SELECT count(*) FROM t2)").fetchall() == [(1, 1)]
        assert ask("SELECT count(*) FROM customers").fetchall() == [(0,)]
        rows = ask("SELECT _penstock_table, id FROM _penstock_overflow_out ORDER BY id").fetchall()
        assert rows == [("t3", 3), ("t4", 5), ("t5", 6), ("t3", 7)]
    assert opened.ledger.table_counts("out")["_penstock_overflow_out"].rows == 4
