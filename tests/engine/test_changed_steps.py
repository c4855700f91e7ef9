"""Steps that are changed while a batch is under way: what is at the destination is not taken for what they make now."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event

import duckdb
import pytest

from penstock import faults
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.ledger import Totals
from penstock.engine.pipeline import Pipeline
from penstock.log.read_ranges import Stretch
from tests.engine.projects import append_all, pipeline
from tests.engine.stateful.in_process import Store, run_tasks

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes:
  out: {from: web, steps: %s, to: {type: duckdb, path: ./out.duckdb, table: "%s"}}
"""
COUNT = 9
CHANGES = {
    "other rows, as many": ('[where: "n < 3"]', "rows", '[where: "n > 2 and n < 6"]', "rows"),
    "fewer rows": ('[where: "n < 3"]', "rows", '[where: "n < 2"]', "rows"),
    "another table": ("[]", "rows", "[]", "others"),
    "others wait": (
        "[gather: {key: n, until: 'n < 3', at_most: 1h}]", "rows",
        "[gather: {key: n, until: 'n > 2 and n < 6', at_most: 1h}]", "rows",
    ),
}  # fmt: skip


def deliver(opened: Pipeline) -> None:
    """A batch of all records."""
    plan = opened.plan("out")
    stretch = Stretch(0, 0, COUNT)
    opened.ledger.open_route("out", {0: 0})
    if plan.holding:
        report = run_tasks(plan, opened.log, Store(), [stretch])
    else:
        report = add_up([run_task(plan, opened.log.read(0, 0, COUNT), stretch)])
    destination = plan.destination()
    Delivery(plan, destination, opened.log, opened.ledger, opened.failed_store, Event()).deliver(report)


def die_at(point: str, opened: Pipeline) -> None:
    """Deliver it up to this point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
        with pytest.raises(faults.InjectedFault):
            deliver(opened)


def loaded(folder: Path, table: str) -> list[int]:
    with duckdb.connect(folder / "out.duckdb", read_only=True) as warehouse:
        return [n for (n,) in warehouse.execute(f"SELECT n FROM {table} ORDER BY n").fetchall()]


def begin(folder: Path, change: str, point: str) -> tuple[Pipeline, Pipeline]:
    """A batch that was delivered up to this point: the pipeline that began it, and the same one as changed."""
    steps, table, other_steps, other_table = CHANGES[change]
    before = pipeline(folder, CONFIG % (steps, table))
    append_all(before, "web", [b'{"n": %d}' % n for n in range(COUNT)])
    die_at(point, before)
    return before, pipeline(folder, CONFIG % (other_steps, other_table))


@pytest.mark.parametrize("change", CHANGES)
def test_a_batch_that_is_at_the_destination_is_finished_as_it_was_begun(tmp_path: Path, change: str) -> None:
    before, after = begin(tmp_path, change, "route.before_ledger_commit")
    table = CHANGES[change][1]
    there = loaded(tmp_path, table)
    with pytest.raises(Halted, match=re.escape("PEN-RTE-025")) as halted:
        deliver(after)
    assert "penstock offset rewind out --to 0 --partition 0" in str(halted.value)
    assert after.ledger.totals("out") == Totals()
    deliver(before)
    assert loaded(tmp_path, table) == there
    assert after.ledger.totals("out").loaded == len(there)
    assert after.ledger.totals("out").adds_up


@pytest.mark.parametrize("change", CHANGES)
def test_a_batch_that_is_not_at_the_destination_is_what_the_steps_make_now(tmp_path: Path, change: str) -> None:
    _, after = begin(tmp_path, change, "route.range_fixed")
    die_at("route.before_ledger_commit", after)
    deliver(after)
    assert after.ledger.totals("out").loaded == len(loaded(tmp_path, CHANGES[change][3]))
    assert after.ledger.batches("out")[0].number == 1
