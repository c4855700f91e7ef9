"""What is left of a batch that was set aside, or refused as a whole, behind a holding step: it goes through the steps
behind that one by itself, and is counted as it would have been."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from penstock import faults
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.item_staging import stage_items
from penstock.engine.ledger import Postponed, Settlement, Totals
from penstock.engine.pipeline import Pipeline
from penstock.engine.retry_lane.choose_groups import REFUSED_BATCH
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.errors import TransientError
from penstock.outcome import PLACE_SCHEMA
from tests.engine.projects import append_all, pipeline
from tests.support.duckdb_file import open_file

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes:
  out:
    from: web
    steps: [{gather: {key: n, until: "true", at_most: 1h}}, %s]
    to: {type: duckdb, path: ./out.duckdb, table: rows}
"""
EVEN, ODD = '{where: "n % 2 = 0"}', '{where: "n % 2 = 1"}'
SPLIT = "{split: xs}"


def set_aside(folder: Path, steps: str, count: int) -> Pipeline:
    """A route whose first batch waits as a whole, as the holding step has released it."""
    opened = pipeline(folder, CONFIG % steps)
    append_all(opened, "web", [b'{"n": %d, "xs": [1, 2, 3]}' % n for n in range(count)])
    opened.ledger.open_route("out", {0: 0})
    batch = opened.ledger.begin("out", {0: (0, count)})
    assert batch is not None
    places = pa.RecordBatch.from_pylist([{"partition": 0, "offset": n, "item": 0} for n in range(count)], PLACE_SCHEMA)
    opened.ledger.commit(batch, Settlement(count, 0, postponed=[Postponed(REFUSED_BATCH, places, "a worker was lost")]))
    return opened


def retrier(opened: Pipeline) -> PostponedRetrier:
    plan = opened.plan("out")
    plan.stage_dir.mkdir(parents=True, exist_ok=True)
    delivery = Delivery(plan, plan.destination(), opened.log, opened.ledger, opened.failed_store, Event())
    return PostponedRetrier(delivery, lambda places: stage_items(plan, opened.log, places))


def rows(folder: Path) -> list[int]:
    with open_file(folder / "out.duckdb") as connection:
        return [n for (n,) in connection.execute("SELECT n FROM rows ORDER BY n").fetchall()]


def test_what_a_step_behind_skips_is_skipped(tmp_path: Path) -> None:
    opened = set_aside(tmp_path, EVEN, 8)
    retrier(opened).settle_refused()
    assert rows(tmp_path) == [0, 2, 4, 6]
    assert opened.ledger.totals("out") == Totals(items=8, loaded=4, skipped=4)
    assert opened.ledger.account("out").skipped_by == {"where": 4}


def test_what_a_step_behind_adds_is_added(tmp_path: Path) -> None:
    opened = set_aside(tmp_path, SPLIT, 4)
    retrier(opened).settle_refused()
    assert rows(tmp_path) == sorted([*range(4)] * 3)
    assert opened.ledger.totals("out") == Totals(items=4, added=8, loaded=12)


def test_a_retry_that_is_at_the_destination_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = set_aside(tmp_path, EVEN, 8)
    with monkeypatch.context() as patched:
        patched.setattr(faults, "_armed", faults.parse("postponed.destination_done=raise"))
        with pytest.raises(faults.InjectedFault):
            retrier(opened).settle_refused()
    opened.ledger.close()
    changed = pipeline(tmp_path, CONFIG % ODD)
    number = changed.ledger.postponed("out")[0].number
    assert number is not None
    with pytest.raises(TransientError, match="PEN-RTE-028"):
        retrier(changed)._retry(number, changed.ledger.postponed("out"))
    changed.ledger.close()
    again = pipeline(tmp_path, CONFIG % EVEN)
    retrier(again).settle_refused()
    assert rows(tmp_path) == [0, 2, 4, 6]
    assert again.ledger.totals("out") == Totals(items=8, loaded=4, skipped=4)


def test_one_that_is_not_there_yet_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = set_aside(tmp_path, EVEN, 8)
    with monkeypatch.context() as patched:
        patched.setattr(faults, "_armed", faults.parse("destination.tables_placed=raise"))
        with pytest.raises(faults.InjectedFault):
            retrier(opened).settle_refused()
    opened.ledger.close()
    changed = pipeline(tmp_path, CONFIG % ODD)
    retrier(changed).settle_refused()
    assert rows(tmp_path) == [1, 3, 5, 7]
    assert changed.ledger.totals("out") == Totals(items=8, loaded=4, skipped=4)
