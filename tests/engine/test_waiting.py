"""A table that is locked, or lacks a right, waits for its rows; the others do not wait for it. On a real PostgreSQL."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from penstock import faults
from penstock.config.loading import load
from penstock.destinations.sql import marks
from penstock.engine.delivery.batch_pieces import Ranges, remaining
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.delivery.deliver_batch import Delivery, clean_stage
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.history.settle_adopted import settle_adopted
from penstock.engine.history.takeover import adopt
from penstock.engine.ledger import RouteState, Totals
from penstock.engine.operate.offset_control import acknowledge, plan_rewind, rewind
from penstock.engine.operate.single_step import Stepper
from penstock.engine.operate.status import route_status
from penstock.engine.pipeline import Pipeline
from penstock.engine.retry_lane.retrier import RetryLane
from penstock.errors import ContradictionError, LedgerError, PenstockError
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
from penstock.testing.mirror import Source
from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal
from tests.engine.copies import OPERATOR
from tests.support.database import Database

CONFIG = """\
name: shop
data_dir: ./data
sources:
  web: {{type: file, path: ./web.ndjson}}
routes:
  out:
    from: web
    to:
      type: postgres
      url: "{url}"
      database_schema: "{schema}"
      lock_timeout: 100ms
      {more}
"""
BY_KIND = """table: "{{ kind }}"
      tables: [orders, visits, clicks]
"""
KINDS = ("orders", "visits")


class Shop:
    """A route into three tables of one schema, with nothing running: batches without Spark."""

    def __init__(self, folder: Path, database: Database, more: str = BY_KIND) -> None:
        self.folder, self.database, self.route = folder, database, "out"
        text = CONFIG.format(url=database.dsn, schema=database.schema, more=more)
        (folder / "pipeline.yaml").write_text(text)
        self.pipeline = self.open()
        self.stopping = Event()

    def open(self) -> Pipeline:
        return Pipeline.open(load(self.folder / "pipeline.yaml"))

    def reopen(self) -> None:
        self.pipeline.ledger.close()
        self.pipeline = self.open()

    def append(self, *events: tuple[str, int], source: str = "web", **fields: object) -> None:
        data = [json.dumps({"kind": kind, "n": n, **fields}).encode() for kind, n in events]
        self.log(*(Record(each, namespace="web") for each in data), source=source)

    def log(self, *records: Record, source: str = "web") -> None:
        with LocalLog(self.folder / "data" / "log", self.pipeline.config.log).writer(source) as writer:
            writer.append(entries(records))

    @property
    def delivery(self) -> Delivery:
        p = self.pipeline
        plan = p.plan(self.route)
        plan.stage_dir.mkdir(parents=True, exist_ok=True)
        return Delivery(
            plan, plan.destination(), p.log, p.ledger, p.failed_store, self.stopping, history=p.history()
        )  # fmt: skip

    def deliver(self) -> None:
        """All that is there, as one batch."""
        delivery, ledger = self.delivery, self.pipeline.ledger
        delivery.check_history()
        positions = open_route(self.pipeline.log, ledger, self.route, delivery.plan.sources)
        settle_adopted(delivery)
        clean_stage(delivery.plan.stage_dir)
        committed = {p: ledger.offsets(self.route)[p].committed for p in positions}
        ends = {p: (committed[p], self.pipeline.log.bounds(p).end) for p in positions}
        pending = ledger.standing(self.route).pending
        ranges: Ranges = remaining(ends, committed) if pending is None else pending.ranges
        if ranges:
            delivery.deliver(stage_ranges(delivery.plan, self.pipeline.log, ranges))

    def retry(self) -> None:
        """As if every table were due."""
        layout, delivery = self.pipeline.layout, self.delivery
        beside = replace(delivery, plan=replace(delivery.plan, stage_dir=layout.retry_stage(self.route)))
        RetryLane(beside, layout.waiting_stage(self.route)).retry_due_tables()

    @property
    def totals(self) -> Totals:
        return self.pipeline.ledger.totals(self.route)

    @property
    def waiting(self) -> dict[str, tuple[int, int]]:
        """Rows and batches by table."""
        return {t: (each.rows, each.batches) for t, each in self.pipeline.ledger.waiting_tables(self.route).items()}

    @property
    def held(self) -> int:
        """From which offset on the log is kept."""
        (needs,) = self.pipeline.needed_offsets()[self.route].values()
        (position,) = self.pipeline.ledger.offsets(self.route).values()
        assert needs <= position.hold
        return position.hold

    def rows(self, table: str) -> list[int]:
        return [n for (n,) in self.database.ask(f"SELECT n FROM {table} ORDER BY n")]

    @contextmanager
    def locked(self, *tables: str) -> Iterator[None]:
        with psycopg.connect(self.database.dsn) as connection:
            for table in tables:
                connection.execute(f'LOCK TABLE "{self.database.schema}"."{table}"'.encode())
            yield

    def check_books(self) -> None:
        status = route_status(self.pipeline, self.route)
        assert status.adds_up
        assert sum(each.rows for each in status.waiting.values()) == status.totals.waiting


@pytest.fixture
def shop(tmp_path: Path, database: Database) -> Shop:
    """With a row in each of two tables."""
    made = Shop(tmp_path, database)
    made.append(("orders", 0), ("visits", 0))
    made.deliver()
    return made


def test_a_table_that_is_locked_waits_and_the_others_do_not(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
        shop.append(("visits", 2), ("orders", 2), ("orders", 3))
        shop.deliver()
        shop.append(("clicks", 4))
        shop.deliver()
        assert shop.rows("visits") == [0, 1, 2]
        assert shop.rows("clicks") == [4]
        assert shop.totals == Totals(items=8, loaded=5, waiting=3)
        assert shop.waiting == {"orders": (3, 2)}
        assert shop.held == 2
        shop.check_books()
        shop.retry()
        told = shop.pipeline.ledger.waiting_tables("out")["orders"]
        assert told.attempts == 1
        assert "lock" in told.reason
    shop.retry()
    assert shop.rows("orders") == [0, 1, 2, 3]
    assert shop.totals == Totals(items=8, loaded=8)
    assert shop.waiting == {}
    assert shop.held == 8
    shop.check_books()
    shop.append(("orders", 5))
    shop.deliver()
    assert shop.rows("orders") == [0, 1, 2, 3, 5]


def test_a_right_that_is_missing_is_waited_for(tmp_path: Path, database: Database) -> None:
    role = f"writer_{database.schema}"
    schema = database.schema
    database.ask(f'CREATE SCHEMA "{schema}"; CREATE ROLE "{role}"; GRANT ALL ON SCHEMA "{schema}" TO "{role}"')
    shop = Shop(tmp_path, replace(database, dsn=f"{database.dsn}?options=-crole%3D{role}"))
    shop.append(("orders", 0), ("visits", 0))
    shop.deliver()
    database.ask(f'REVOKE ALL ON orders FROM "{role}"')
    shop.append(("orders", 1), ("visits", 1))
    shop.deliver()
    assert shop.waiting == {"orders": (1, 1)}
    assert shop.rows("visits") == [0, 1]
    database.ask(f'GRANT ALL ON orders TO "{role}"')
    shop.retry()
    assert shop.rows("orders") == [0, 1]


def test_the_newest_value_of_a_key_stays_the_newest(tmp_path: Path, database: Database) -> None:
    shop = Shop(tmp_path, database, f"{BY_KIND}      primary_key: [n]")
    shop.append(("orders", 0), ("visits", 0), at=0)
    shop.deliver()
    with shop.locked("orders"):
        for at in range(1, 4):
            shop.append(("orders", 0), ("visits", 0), at=at)
            shop.deliver()
    shop.append(("orders", 0), at=4)
    shop.deliver()
    assert database.ask("SELECT n, at FROM orders") == [(0, 0)], "it waits behind what waits"
    shop.retry()
    assert database.ask("SELECT n, at FROM orders") == [(0, 4)]
    assert shop.totals == Totals(items=9, loaded=9)


@pytest.mark.parametrize(
    "point", ["destination.writing", "destination.committed", "retry.destination_done", "retry.before_ledger_commit"]
)
def test_a_crash_while_it_is_tried_again_doubles_nothing(
    shop: Shop, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
        shop.append(("orders", 2))
        shop.deliver()
    with monkeypatch.context() as patched:
        patched.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
        with pytest.raises(faults.InjectedFault):
            shop.retry()
    shop.reopen()
    shop.retry()
    assert shop.rows("orders") == [0, 1, 2]
    assert shop.totals == Totals(items=5, loaded=5)
    shop.check_books()


@pytest.mark.parametrize("point", ["route.destination_done", "route.before_ledger_commit"])
def test_a_crash_before_it_is_put_off_doubles_nothing(shop: Shop, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.append(("orders", 1), ("visits", 1))
    with shop.locked("orders"):
        with monkeypatch.context() as patched:
            patched.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
            with pytest.raises(faults.InjectedFault):
                shop.deliver()
        assert shop.waiting == {}
    shop.reopen()
    shop.deliver()
    assert (shop.rows("orders"), shop.rows("visits")) == ([0, 1], [0, 1])
    assert shop.totals == Totals(items=4, loaded=4)


def test_a_mark_is_kept_for_as_long_as_an_older_batch_waits(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "KEPT_MARKS", 2)
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    with monkeypatch.context() as patched:
        patched.setattr(faults, "_armed", faults.parse("retry.destination_done=raise"))
        with pytest.raises(faults.InjectedFault):
            shop.retry()
    for n in range(2, 8):
        shop.append(("visits", n))
        shop.deliver()
    shop.retry()
    assert shop.rows("orders") == [0, 1]
    assert shop.totals.waiting == 0
    shop.append(("visits", 8))
    shop.deliver()
    assert database_marks(shop) == [8, 9]


def database_marks(shop: Shop) -> list[int]:
    return [n for (n,) in shop.database.ask("SELECT DISTINCT batch FROM _penstock_loads ORDER BY 1")]


def test_the_only_table_that_there_is_holds_its_route_for_there_is_nobody_to_go_on_for(
    tmp_path: Path, database: Database
) -> None:
    shop = Shop(tmp_path, database)
    shop.append(("orders", 0))
    shop.deliver()
    shop.append(("orders", 1))
    shop.stopping.set()
    with shop.locked("orders"), pytest.raises(Stopped):
        shop.deliver()
    assert shop.totals == Totals(items=1, loaded=1)
    shop.stopping.clear()
    shop.deliver()
    assert shop.rows("orders") == [0, 1]


def test_where_all_tables_are_away_the_route_waits_for_the_last_of_them(shop: Shop) -> None:
    with shop.locked("orders", "visits"):
        shop.append(("orders", 1))
        shop.deliver()
        assert shop.waiting == {"orders": (1, 1)}
        shop.append(("visits", 1))
        shop.stopping.set()
        with pytest.raises(Stopped):
            shop.deliver()
    assert shop.waiting == {"orders": (1, 1)}


def test_rows_that_are_refused_when_it_is_tried_again_fail_alone(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("orders", 2), ("visits", 1))
        shop.deliver()
    shop.database.ask("ALTER TABLE orders ADD CONSTRAINT odd CHECK (n <> 2)")
    shop.retry()
    assert shop.rows("orders") == [0, 1]
    assert shop.totals == Totals(items=5, loaded=4, failed=1)
    (entry,) = shop.pipeline.failed_store.read("out", shop.pipeline.ledger.failed_extent("out"))
    assert json.loads(entry.record.data) == {"kind": "orders", "n": 2}
    shop.check_books()


def test_records_that_a_table_waits_for_can_be_declared_done(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1), ("orders", 2))
        shop.deliver()
        with pytest.raises(PenstockError, match="is past offset 1"):
            acknowledge(shop.pipeline, "out", 0, 1, None, OPERATOR)
        done = acknowledge(shop.pipeline, "out", 2, 2, None, OPERATOR)
        assert done.waited_for == 1
    shop.retry()
    assert shop.rows("orders") == [0, 2]
    assert shop.totals == Totals(items=5, loaded=4, skipped=1)
    assert shop.pipeline.ledger.account("out").skipped_by == {"acknowledged": 1}
    shop.check_books()


def test_a_route_that_is_moved_back_gets_each_row_of_what_waited_once(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
        shop.append(("orders", 2), ("visits", 2))
        shop.deliver()
    with pytest.raises(LedgerError, match="PEN-LGR-018"):
        move_back(shop, 3)
    move_back(shop, 4)
    assert shop.waiting == {"orders": (1, 1)}
    assert shop.totals == Totals(items=6, loaded=4, waiting=1, skipped=1)
    shop.deliver()
    assert shop.waiting == {"orders": (2, 2)}
    shop.retry()
    assert shop.rows("orders") == [0, 1, 2]
    assert shop.rows("visits") == [0, 1, 2, 2], "as after any rewind, of a table without a key"
    shop.check_books()


def move_back(shop: Shop, offset: int) -> None:
    rewind(shop.pipeline, plan_rewind(shop.pipeline, "out", offset, None), OPERATOR)


def test_an_older_copy_does_not_load_again_what_has_come_to_its_table_since(shop: Shop, tmp_path: Path) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
        shop.append(("orders", 2))
        shop.deliver()
    shutil.copytree(shop.folder / "data", tmp_path / "older")
    shop.retry()
    shop.append(("orders", 3), ("visits", 3))
    shop.deliver()
    shop.pipeline.ledger.close()
    shutil.rmtree(shop.folder / "data")
    shutil.copytree(tmp_path / "older", shop.folder / "data")
    shop.pipeline = shop.open()
    with pytest.raises(Halted):
        shop.deliver()
    adopt(shop.pipeline, "out", "out", OPERATOR)
    assert shop.waiting == {}
    shop.append(("orders", 4))
    shop.deliver()
    assert shop.rows("orders") == [0, 1, 2, 3, 4]
    shop.check_books()


def losing_the_ledger(shop: Shop) -> None:
    shop.pipeline.ledger.close()
    for file in (shop.folder / "data").glob("ledger.db*"):
        file.unlink()
    shop.pipeline = shop.open()


@pytest.mark.parametrize("later", [(), (("visits", 5),), (("orders", 5),), (("orders", 5), ("visits", 6))])
def test_a_lost_ledger_does_not_lose_what_waited(shop: Shop, later: Sequence[tuple[str, int]]) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
        shop.append(("orders", 2))
        shop.deliver()
        if later:
            shop.append(*later)
            shop.deliver()
    losing_the_ledger(shop)
    with pytest.raises(Halted):
        shop.deliver()
    adopt(shop.pipeline, "out", "out", OPERATOR)
    shop.deliver()
    shop.deliver()
    shop.retry()
    more = {kind: [n for k, n in later if k == kind] for kind in ("orders", "visits")}
    assert shop.rows("orders") == [0, 1, 2, *more["orders"]]
    assert shop.rows("visits") == [0, 1, *more["visits"]]
    shop.check_books()


def test_a_table_that_still_waits_when_a_history_is_taken_over_waits_on(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
        shop.append(("orders", 2), ("visits", 2))
        shop.deliver()
        losing_the_ledger(shop)
        with pytest.raises(Halted):
            shop.deliver()
        adopt(shop.pipeline, "out", "out", OPERATOR)
        shop.deliver()
        assert shop.waiting["orders"][0] == 2
    shop.retry()
    assert (shop.rows("orders"), shop.rows("visits")) == ([0, 1, 2], [0, 1, 2])
    shop.check_books()


@pytest.mark.parametrize("drop", [None, "where"])
def test_steps_that_have_changed_meanwhile_are_told_from_what_was_lost(shop: Shop, drop: str | None) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("orders", 2), ("visits", 1))
        shop.deliver()
    config = shop.folder / "pipeline.yaml"
    if drop:
        config.write_text(config.read_text().replace("from: web\n", "from: web\n    steps:\n      - where: n <> 2\n"))
    shop.reopen()
    shop.retry()
    assert shop.rows("orders") == ([0, 1] if drop else [0, 1, 2])
    assert shop.pipeline.ledger.account("out").skipped_by == ({"changed": 1} if drop else {})
    shop.check_books()


def test_changes_of_a_mirrored_table_wait_in_order_while_other_tables_are_followed(
    tmp_path: Path, database: Database
) -> None:
    shop = Shop(tmp_path, database, "load: mirror")
    orders, visits = (Source({"id": "bigint", "name": "text"}, namespace=f"public.{name}") for name in KINDS)
    shop.log(orders.insert(id=1, name="a"), visits.insert(id=1, name="a"), visits.insert(id=2, name="b"))
    shop.deliver()
    with shop.locked("orders"):
        shop.log(orders.update(id=1, name="b"), visits.update(id=1, name="b"))
        shop.deliver()
        shop.log(orders.delete(id=1), orders.insert(id=2, name="c"), visits.delete(id=2))
        shop.deliver()
        assert database.ask("SELECT id, name FROM visits") == [(1, "b")]
    shop.log(orders.update(id=2, name="d"))
    shop.deliver()
    assert database.ask("SELECT id, name FROM orders") == [(1, "a")]
    assert shop.totals.waiting == 4
    shop.retry()
    assert database.ask("SELECT id, name FROM orders") == [(2, "d")]
    assert shop.totals.waiting == 0
    shop.check_books()


def test_a_mirror_whose_ledger_is_lost_gets_the_changes_that_waited(tmp_path: Path, database: Database) -> None:
    shop = Shop(tmp_path, database, "load: mirror")
    orders, visits = (Source({"id": "bigint", "name": "text"}, namespace=f"public.{name}") for name in KINDS)
    shop.log(orders.insert(id=1, name="a"), visits.insert(id=1, name="a"))
    shop.deliver()
    with shop.locked("orders"):
        for name in "bcd":
            shop.log(orders.update(id=1, name=name), visits.update(id=1, name=name))
            shop.deliver()
    losing_the_ledger(shop)
    with pytest.raises(Halted):
        shop.deliver()
    adopt(shop.pipeline, "out", "out", OPERATOR)
    shop.deliver()
    assert database.ask("SELECT name FROM orders UNION ALL SELECT name FROM visits") == [("d",), ("d",)]
    shop.check_books()


def test_a_batch_that_waits_for_the_last_table_goes_on_when_another_is_free_again(shop: Shop) -> None:
    with shop.locked("visits"):
        with shop.locked("orders"):
            shop.append(("orders", 1))
            shop.deliver()
            shop.append(("visits", 1))
            delivering = Thread(target=shop.deliver, daemon=True)
            delivering.start()
            eventually(lambda: shop.pipeline.ledger.standing("out").pending, "the route waits for visits")
        shop.retry()
        assert shop.rows("orders") == [0, 1]
        delivering.join(HANG)
        assert shop.waiting == {"visits": (1, 1)}
    shop.retry()
    assert shop.totals == Totals(items=4, loaded=4)


def test_a_run_with_an_end_gives_a_table_its_rows_before_a_batch_that_must_be_whole(shop: Shop, tmp_path: Path) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    shop.pipeline.ledger.close()
    config = tmp_path / "pipeline.yaml"
    config.write_text(config.read_text().replace("from: web\n", "from: web\n    on_error: stop\n"))
    (tmp_path / "web.ndjson").write_text('{"kind": "orders", "n": 2}\n')
    ran = Terminal(tmp_path).run_once()
    assert ran.returncode == 0, ran.stderr
    assert shop.rows("orders") == [0, 1, 2]


def test_what_a_table_waits_for_is_kept_also_of_a_source_that_the_route_no_longer_reads(shop: Shop) -> None:
    config = shop.folder / "pipeline.yaml"
    only_web = config.read_text().replace("sources:\n", "sources:\n  app: {type: file, path: ./app.ndjson}\n")
    config.write_text(only_web.replace("from: web", "from: [web, app]"))
    shop.reopen()
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1), source="app")
        shop.deliver()
    config.write_text(only_web)
    shop.reopen()
    (app,) = shop.pipeline.log.partitions(["app"])
    assert shop.pipeline.floors()[app] == 0
    shop.retry()
    assert shop.rows("orders") == [0, 1]
    shop.check_books()
    assert shop.pipeline.floors()[app] == 2


def test_a_table_that_cannot_be_tried_does_not_keep_the_others_waiting(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.locked("orders", "visits"):
        shop.append(("orders", 1), ("visits", 1), ("clicks", 1))
        shop.deliver()
    assert shop.waiting == {"orders": (1, 1), "visits": (1, 1)}
    monkeypatch.setattr(faults, "_armed", faults.parse("retry.destination_done=raise"))
    with pytest.raises(faults.InjectedFault):
        shop.retry()
    assert len(shop.waiting) == 1


def test_what_contradicts_the_ledger_halts_no_route_behind_its_back(shop: Shop, tmp_path: Path) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    shutil.copytree(shop.folder / "data", tmp_path / "older")
    shop.append(("visits", 2))
    shop.deliver()
    shop.pipeline.ledger.close()
    shutil.rmtree(shop.folder / "data")
    shutil.copytree(tmp_path / "older", shop.folder / "data")
    shop.pipeline = shop.open()
    with pytest.raises(ContradictionError, match="PEN-RTE-017"):
        shop.retry()
    activity = shop.pipeline.ledger.activity("out")
    assert activity is None or activity.state is not RouteState.HALTED
    assert shop.rows("orders") == [0]


def test_what_is_declared_done_while_its_batch_is_tried_does_not_come_to_a_table_that_waits(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reach(point: str) -> None:
        if point == "route.destination_done":
            acknowledge(shop.pipeline, "out", 2, 2, None, OPERATOR)

    with shop.locked("orders"), monkeypatch.context() as patched:
        patched.setattr(faults, "reach", reach)
        shop.append(("orders", 1), ("visits", 1), ("orders", 2))
        shop.deliver()
    shop.retry()
    assert shop.rows("orders") == [0, 2]
    assert shop.totals == Totals(items=5, loaded=4, skipped=1)
    shop.check_books()


def test_a_table_gets_what_an_older_log_still_has_of_what_it_waits_for(shop: Shop, tmp_path: Path) -> None:
    shop.append(("orders", 1), ("visits", 1))
    shutil.copytree(shop.folder / "data" / "log", tmp_path / "older")
    shop.append(("orders", 2), ("visits", 2))
    with shop.locked("orders"):
        shop.deliver()
    shutil.rmtree(shop.folder / "data" / "log")
    shutil.copytree(tmp_path / "older", shop.folder / "data" / "log")
    shop.append(("orders", 3), ("visits", 3))
    shop.reopen()
    with pytest.raises(Halted):
        shop.deliver()
    adopt(shop.pipeline, "out", "out", OPERATOR)
    shop.deliver()
    shop.retry()
    assert shop.rows("orders") == [0, 1, 3]
    assert shop.rows("visits") == [0, 1, 2, 3]
    shop.check_books()


def test_what_a_table_has_got_before_all_of_it_was_declared_done_counts_as_loaded(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    with monkeypatch.context() as patched:
        patched.setattr(faults, "_armed", faults.parse("retry.destination_done=raise"))
        with pytest.raises(faults.InjectedFault):
            shop.retry()
    acknowledge(shop.pipeline, "out", 2, 2, None, OPERATOR)
    shop.retry()
    assert shop.rows("orders") == [0, 1]
    assert shop.totals == Totals(items=4, loaded=4)
    shop.check_books()


def test_a_route_that_must_be_whole_is_not_stepped_through_while_a_table_waits(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    config = shop.folder / "pipeline.yaml"
    config.write_text(config.read_text().replace("from: web\n", "from: web\n    on_error: stop\n"))
    shop.reopen()
    with pytest.raises(PenstockError, match="wait for earlier batches"):
        Stepper(shop.pipeline, "out")
