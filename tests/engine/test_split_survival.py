"""A route that splits records, killed at every point of a batch, and refused rows of split records: nothing is lost,
nothing is there twice, the books balance."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from threading import Event

import pytest

from penstock import faults
from penstock.config.loading import load
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.failed.replay import replay
from penstock.engine.failed.selection import Choice, open_entries
from penstock.engine.ledger import Operator, Totals
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
    on_error: %s
    steps:
      - split: lines
      - skip: "lines.sku = 'gift'"
    to: {type: duckdb, path: ./out.duckdb, table: lines, adopt: [lines]}
"""
DEAD_LETTER, STOP = CONFIG % "dead_letter", CONFIG % "stop"
MADE = "CREATE TABLE lines (id BIGINT, lines_sku VARCHAR, lines_amount BIGINT CHECK (lines_amount > 0))"

AMOUNTS = {1: [1, 2, 3], 2: [1, 2, 3], 3: [1, -1, 3], 4: [1, 2, 3], 5: [1, 2, 3]}
"""Orders, each with the amounts of its lines; the table takes no line of order 3 that is not positive."""

POINTS = [
    "route.range_fixed",
    "destination.writing",
    "destination.committed",
    "route.destination_done",
    "route.before_ledger_commit",
]


def order(number: int, amounts: list[int]) -> bytes:
    lines = [{"sku": f"{number}-{at}", "amount": amount} for at, amount in enumerate(amounts)]
    return json.dumps({"id": number, "lines": [*lines, {"sku": "gift"}]}).encode()


def shop(folder: Path, config: str, amounts: dict[int, list[int]]) -> Pipeline:
    with open_file(folder / "out.duckdb") as connection:
        connection.execute(MADE)
    opened = pipeline(folder, config)
    append_all(opened, "web", [order(*each) for each in amounts.items()])
    return opened


def deliver(config: Path) -> None:
    """What waits, as the engine would after a start, without Spark."""
    opened = Pipeline.open(load(config))
    plan = opened.plan("out")
    plan.stage_dir.mkdir(parents=True, exist_ok=True)
    clean_stage(plan.stage_dir)
    partitions = opened.log.partitions(opened.sources_of("out"))
    positions = opened.ledger.open_route("out", dict.fromkeys(partitions, 0))
    reports = []
    for partition in partitions:
        start, end = positions[partition].committed, opened.log.bounds(partition).end
        if start < end:
            reports.append(run_task(plan, opened.log.read(partition, start, end), Stretch(partition, start, end)))
    report = add_up(reports)
    Delivery(plan, plan.destination(), opened.log, opened.ledger, opened.failed_store, Event()).deliver(report)


def _deliver_until(config: Path, point: str) -> None:
    faults._armed = faults.parse(f"{point}=kill")
    deliver(config)


def kill_at(config: Path, point: str) -> None:
    """Deliver in a process that is killed when it comes to a point."""
    process = make_process(_deliver_until, config, point)
    process.start()
    process.join(HANG)
    assert process.exitcode == -signal.SIGKILL


def loaded(folder: Path) -> list[tuple[int, int]]:
    with open_file(folder / "out.duckdb", read_only=True) as connection:
        rows: list[tuple[int, int]] = connection.execute("SELECT id, lines_amount FROM lines ORDER BY ALL").fetchall()
    return rows


def let_everything_in(folder: Path) -> None:
    with open_file(folder / "out.duckdb") as connection:
        connection.execute("ALTER TABLE lines RENAME TO strict")
        connection.execute("CREATE TABLE lines AS SELECT * FROM strict; DROP TABLE strict")


def lines_of(amounts: dict[int, list[int]]) -> list[tuple[int, int]]:
    return sorted((number, amount) for number, each in amounts.items() for amount in each)


def failed(opened: Pipeline) -> list[tuple[bytes | None, int, str]]:
    entries = opened.failed_store.read("out", opened.ledger.failed_extent("out"))
    return [(entry.record.data, entry.item, entry.step) for entry in entries]


@pytest.mark.parametrize("point", POINTS)
def test_a_route_that_splits_is_killed_and_every_row_is_there_once(point: str, tmp_path: Path) -> None:
    amounts = {**AMOUNTS, 3: [1, 2, 3]}
    opened = shop(tmp_path, DEAD_LETTER, amounts)
    kill_at(tmp_path / "pipeline.yaml", point)
    deliver(tmp_path / "pipeline.yaml")
    assert loaded(tmp_path) == lines_of(amounts)
    assert opened.ledger.totals("out") == Totals(items=5, added=15, loaded=15, skipped=5)
    assert opened.ledger.account("out").added_by == {"split": 15}
    assert failed(opened) == []


@pytest.mark.parametrize(
    ("point", "refused"),
    [(None, [-1]), (None, [-1, -2]), (None, [-1, -2, -3]), *((point, [-1, -2]) for point in POINTS)],
)
def test_rows_that_a_table_refuses_fail_alone_and_are_replayed_alone(
    point: str | None, refused: list[int], tmp_path: Path
) -> None:
    config, bad = tmp_path / "pipeline.yaml", [n + 1 for n in range(len(refused))]
    taken = [1, 2, 3][len(refused) :]
    amounts = {**AMOUNTS, 3: [*refused, *taken]}
    opened = shop(tmp_path, DEAD_LETTER, amounts)
    if point is not None:
        kill_at(config, point)
    deliver(config)
    assert loaded(tmp_path) == lines_of({**AMOUNTS, 3: taken})
    assert failed(opened) == [(order(3, amounts[3]), item, "destination") for item in bad]
    assert opened.ledger.totals("out") == Totals(
        items=5, added=15, loaded=15 - len(refused), skipped=5, failed=len(refused)
    )
    assert opened.ledger.account("out").skipped_by == {"skip": 5}

    let_everything_in(tmp_path)
    replay("out", list(open_entries(opened, Choice("out"))), opened.log, opened.ledger)
    if point is not None:
        kill_at(config, point)
    deliver(config)
    assert loaded(tmp_path) == lines_of(amounts)
    totals = opened.ledger.totals("out")
    assert (totals.loaded, totals.failed, totals.adds_up) == (15, len(refused), True)
    assert opened.ledger.account("out").skipped_by == {"skip": 5 + len(refused), "of_replayed": 2 * len(refused)}


@pytest.mark.parametrize("point", [None, "route.batch_cut", *POINTS])
def test_a_route_that_stops_at_a_refused_row_has_delivered_nothing_of_its_record(
    point: str | None, tmp_path: Path
) -> None:
    config = tmp_path / "pipeline.yaml"
    opened = shop(tmp_path, STOP, AMOUNTS)
    if point is not None:
        kill_at(config, point)
    with pytest.raises(Halted, match="offset 2 of partition 0"):
        deliver(config)
    assert loaded(tmp_path) == lines_of({1: [1, 2, 3], 2: [1, 2, 3]})
    assert opened.ledger.totals("out") == Totals(items=2, added=6, loaded=6, skipped=2)
    assert opened.ledger.offsets("out")[0].committed == 2
    assert failed(opened) == []
    let_everything_in(tmp_path)
    opened.ledger.resume("out", Operator("ada"))
    deliver(config)
    assert loaded(tmp_path) == lines_of(AMOUNTS)
    assert opened.ledger.totals("out") == Totals(items=5, added=15, loaded=15, skipped=5)
