"""Records that a step made several rows of: counted to the last row, each of which fails alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from penstock.destinations.contract import NULL_TABLE_BOOK, Batch, Part, Receipt, TableBook
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.engine import Engine
from penstock.engine.ledger import Totals
from penstock.engine.pipeline import Pipeline
from penstock.errors import RefusedError
from penstock.log.read_ranges import Stretch
from penstock.outcome import FAILURE_SCHEMA
from tests.engine.projects import append_all, pipeline
from tests.support.duckdb_file import open_file

SPLIT_TO = """\
name: shop
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  out:
    from: web
    steps:
      - split: lines
      - skip: "lines.sku = 'gift'"
      - set: {lines.seen: "true"}
    to: %s
"""
TO_FILES = SPLIT_TO % "{type: file, path: ./out}"
TO_DUCKDB = SPLIT_TO % "{type: duckdb, path: ./out.duckdb, table: lines, primary_key: [lines_sku]}"

ORDERS = [
    b'{"id": 1, "lines": [{"sku": "a"}, {"sku": "b"}, {"sku": "gift"}]}',
    b'{"id": 2, "lines": [{"sku": "c"}, "broken", {"sku": "gift"}, {"sku": "d"}]}',
    b'{"id": 3, "lines": []}',
    b'{"id": 4, "lines": [{"sku": "e"}, {}, {"no": 1}]}',
]


def deliver(opened: Pipeline, destination: Any = None, start: int = 0, source: str = "web") -> None:
    """One batch with all that the log has, without Spark."""
    plan = opened.plan("out")
    (partition,) = opened.log.partitions([source])
    end = opened.log.bounds(partition).end
    opened.ledger.open_route("out", {partition: 0})
    report = add_up([run_task(plan, opened.log.read(partition, start, end), Stretch(partition, start, end))])
    chosen = destination or plan.destination()
    Delivery(plan, chosen, opened.log, opened.ledger, opened.failed_store, Event()).deliver(report)


def failed(opened: Pipeline) -> list[tuple[int, int, str, str]]:
    entries = opened.failed_store.read("out", opened.ledger.failed_extent("out"))
    return sorted((json.loads(e.record.data or b"")["id"], e.item, e.step, e.code) for e in entries)


def test_in_and_added_is_loaded_and_skipped_and_failed(tmp_path: Path) -> None:
    opened = pipeline(tmp_path, TO_FILES)
    append_all(opened, "web", ORDERS)
    deliver(opened)
    lines = [json.loads(line) for file in (tmp_path / "out").glob("*.ndjson") for line in file.read_text().splitlines()]
    assert [(line["id"], line["lines"].get("sku")) for line in lines] == [
        (1, "a"),
        (1, "b"),
        (2, "c"),
        (2, "d"),
        (4, "e"),
        (4, None),
        (4, None),
    ]
    # Order 3 fails because there is nothing to set a field in.
    assert failed(opened) == [(2, 2, "set", "path_blocked"), (3, 0, "set", "path_blocked")]
    assert opened.ledger.totals("out") == Totals(items=4, added=2 + 3 + 2, loaded=7, skipped=2, failed=2)
    assert opened.ledger.account("out").added_by == {"split": 7}


def test_a_batch_that_is_refused_keeps_each_item_once(tmp_path: Path) -> None:
    opened = pipeline(tmp_path, TO_FILES)
    append_all(opened, "web", ORDERS)
    real = opened.plan("out").destination()

    class Refusing(type(real)):  # type: ignore[misc]
        def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
            raise RefusedError("PEN-TST-002", "no.")

    deliver(opened, Refusing(real.config))
    items = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 4), (3, 0), (4, 1), (4, 2), (4, 3)]
    assert [(order, item) for order, item, _, _ in failed(opened)] == items
    assert opened.ledger.totals("out") == Totals(items=4, added=7, skipped=2, failed=9)


def test_rows_that_are_refused_one_by_one_fail_alone(tmp_path: Path) -> None:
    opened = pipeline(tmp_path, TO_FILES)
    partition = append_all(opened, "web", ORDERS)
    real = opened.plan("out").destination()

    class Picky(type(real)):  # type: ignore[misc]
        def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
            row = {"partition": partition, "offset": 3, "code": "refused", "message": "no sku"}
            (table,) = super().write(batch, parts).tables
            refused = [{**row, "item": 2}, {**row, "item": 3}]
            failures = pa.RecordBatch.from_pylist(refused, schema=FAILURE_SCHEMA)
            return Receipt([replace(table, rows=table.rows - 2, failures=failures)])

    deliver(opened, Picky(real.config))
    assert failed(opened)[-2:] == [(4, 2, "destination", "refused"), (4, 3, "destination", "refused")]
    assert opened.ledger.totals("out") == Totals(items=4, added=7, loaded=5, skipped=2, failed=4)


def test_a_row_that_does_not_fit_its_table_fails_alone(tmp_path: Path) -> None:
    opened = pipeline(tmp_path, TO_DUCKDB)
    append_all(opened, "web", ORDERS)
    deliver(opened)
    with open_file(tmp_path / "out.duckdb", read_only=True) as connection:
        loaded = connection.execute("SELECT id, lines_sku FROM lines ORDER BY 2").fetchall()
    assert loaded == [(1, "a"), (1, "b"), (2, "c"), (2, "d"), (4, "e")]
    assert failed(opened)[-2:] == [(4, 2, "destination", "no_key"), (4, 3, "destination", "no_key")]
    assert opened.ledger.totals("out") == Totals(items=4, added=7, loaded=5, skipped=2, failed=4)


TWO_ROUTES = """\
name: shop
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  public:
    from: web
    steps: [{omit: [card]}, {split: lines}]
    to: {type: file, path: ./public}
  full: {from: web, to: {type: file, path: ./full}}
"""


def written(folder: Path) -> list[Any]:
    return [json.loads(line) for file in sorted(folder.glob("*.ndjson")) for line in file.read_text().splitlines()]


@pytest.mark.timeout(180)
def test_two_routes_from_one_source_never_see_each_others_changes(tmp_path: Path) -> None:
    opened = pipeline(tmp_path, TWO_ROUTES)
    orders = [{"id": n, "card": {"number": "4"}, "lines": [1, 2]} for n in range(5)]
    append_all(opened, "web", [json.dumps(order).encode() for order in orders])
    assert Engine(opened, once=True).run(Event())
    assert written(tmp_path / "full") == orders
    assert written(tmp_path / "public") == [{"id": n, "lines": line} for n in range(5) for line in (1, 2)]
    assert opened.ledger.totals("public") == Totals(items=5, added=5, loaded=10)
    assert opened.ledger.totals("full") == Totals(items=5, loaded=5)
