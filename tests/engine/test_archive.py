"""The archive's route on a real log and ledger, without Spark: all that sources brought is kept, whatever routes do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest

from penstock import faults
from penstock.destinations.archive import read_archive
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.failed.replay import replay
from penstock.engine.ledger import TableCount, Totals
from penstock.engine.operate.status import status
from penstock.engine.pipeline import Pipeline
from penstock.errors import TransientError
from penstock.log.read_ranges import Stretch
from penstock.record import Record, entries
from tests.engine.projects import commit, pipeline

SHOP = """\
name: shop
log: {segment_bytes: 4KB, retention: {max_age: 1ms}}
sources:
  web: {type: http, tokens: [{id: site, client_secret: a}, {id: app, client_secret: b}]}
  old: {type: file, path: ./old.ndjson}
routes:
  warehouse: {from: web, to: {type: "null", only_keys: [app]}}
archive: true
"""
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def brought(count: int) -> list[Record]:
    """What a collector takes around midnight: two tokens, and now and then a line that it cannot read."""
    return [
        Record(
            b'{"n": %d,\n "pad": "%s"}' % (n, b"x" * 200) if n % 7 else b"torn line %d" % n,
            namespace="web",
            headers={"token": "app" if n % 3 else "site"} | ({} if n % 7 else {"malformed": "not JSON"}),
            timestamp=MIDNIGHT + timedelta(milliseconds=n - count // 2),
        )
        for n in range(count)
    ]


def append(opened: Pipeline, source: str, rows: list[Record]) -> int:
    with opened.log.writer(source) as writer:
        for start in range(0, len(rows), 10):
            writer.append(entries(rows[start : start + 10]))
        return writer.partition


def deliver(opened: Pipeline, route: str, partition: int, cuts: list[int]) -> None:
    """One batch, read by as many tasks as there are stretches between the cuts."""
    plan = opened.plan(route)
    reports = [
        run_task(plan, opened.log.read(partition, start, end), Stretch(partition, start, end))
        for start, end in pairwise(cuts)
    ]
    delivery = Delivery(plan, plan.destination(), opened.log, opened.ledger, opened.failed_store, Event())
    delivery.deliver(add_up(reports))


def opened_shop(folder: Path) -> Pipeline:
    return pipeline(folder, SHOP)


def test_what_sources_brought_is_in_the_archive_or_in_its_failed_store(tmp_path: Path) -> None:
    opened, rows = opened_shop(tmp_path), brought(100)
    partition = append(opened, "web", rows)
    opened.ledger.open_route("archive", {partition: 0})
    deliver(opened, "archive", partition, [0, 20, 45])
    deliver(opened, "archive", partition, [45, 100])
    kept = list(read_archive(tmp_path / "data" / "archive"))
    failed = opened.failed_store.read("archive", opened.ledger.failed_extent("archive"))
    raw = [entry.record.data for entry in failed]
    assert sorted(kept) == sorted(
        (row.data or b"").replace(b"\n", b" ") for row in rows if "malformed" not in row.headers
    )
    assert raw == [row.data for row in rows if "malformed" in row.headers]
    assert opened.ledger.totals("archive") == Totals(items=100, loaded=85, failed=15)
    assert sorted(path.name for path in (tmp_path / "data" / "archive").iterdir()) == ["2026-03-01", "2026-03-02"]


@pytest.mark.parametrize("point", ["destination.writing@2", "destination.committed", "route.before_ledger_commit"])
def test_a_batch_that_a_crash_cut_short_is_archived_once(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, rows = opened_shop(tmp_path), [row for row in brought(50) if "malformed" not in row.headers]
    partition = append(opened, "web", rows)
    opened.ledger.open_route("archive", {partition: 0})
    monkeypatch.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
    try:
        deliver(opened, "archive", partition, [0, len(rows)])
    except faults.InjectedFault:
        deliver(opened, "archive", partition, [0, 10, len(rows)])
    kept = list(read_archive(tmp_path / "data" / "archive"))
    assert sorted(kept) == sorted((row.data or b"").replace(b"\n", b" ") for row in rows)
    assert opened.ledger.totals("archive") == Totals(items=len(rows), loaded=len(rows))


def test_the_log_keeps_what_is_not_archived_yet(tmp_path: Path) -> None:
    opened = opened_shop(tmp_path)
    partition = append(opened, "web", brought(100))
    for route in ("warehouse", "archive"):
        opened.ledger.open_route(route, {partition: 0})
    commit(opened, "warehouse", partition, 100)
    opened.log.holds.set("warehouse", {partition: 100})
    assert opened.floors()[partition] == 0
    commit(opened, "archive", partition, 60)
    opened.log.holds.set("archive", {partition: 60})
    assert opened.floors()[partition] == 60


def test_the_archive_takes_from_every_source_and_shows_in_the_status(tmp_path: Path) -> None:
    opened = opened_shop(tmp_path)
    partition = append(opened, "old", [Record(b"{}", namespace="old")])
    opened.ledger.open_route("archive", {partition: 0})
    (warehouse, archive) = status(opened).routes
    assert (warehouse.route, warehouse.lag) == ("warehouse", 0)
    assert (archive.route, archive.lag) == ("archive", 1)
    deliver(opened, "archive", partition, [0, 1])
    (_, archive) = status(opened).routes
    assert (archive.lag, archive.tables) == (0, {"ns=old": TableCount(1)})


def test_a_route_with_only_keys_takes_its_tokens_and_accounts_for_the_others(tmp_path: Path) -> None:
    opened = opened_shop(tmp_path)
    partition = append(opened, "web", [row for row in brought(30) if "malformed" not in row.headers])
    opened.ledger.open_route("warehouse", {partition: 0})
    deliver(opened, "warehouse", partition, [0, 25])
    assert opened.ledger.totals("warehouse") == Totals(items=25, loaded=17, skipped=8)
    assert opened.ledger.account("warehouse").skipped_by == {"only_keys": 8}


OF_A_ROUTE = """\
name: shop
sources:
  web: {type: http, tokens: [{id: site, client_secret: a}, {id: app, client_secret: b}]}
routes:
  warehouse: {from: web, archive: true, only_keys: [app], to: {type: "null"}}
  nightly: {from: web, archive: true, to: {type: "null", mode: batch}}
"""


def archived(folder: Path) -> dict[str, list[bytes]]:
    """The events of every file of an archive, by the beginning of its name."""
    found: dict[str, list[bytes]] = {}
    for path in sorted((folder / "data" / "archive").rglob("*.log.gz")):
        found.setdefault(path.name[:-31], []).extend(read_archive(path))
    return found


@pytest.mark.parametrize("point", ["", "destination.writing@2", "destination.committed", "route.before_ledger_commit"])
def test_a_route_with_an_archive_keeps_what_it_takes_and_what_is_replayed_once_each(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, rows = pipeline(tmp_path, OF_A_ROUTE), [row for row in brought(40) if "malformed" not in row.headers]
    partition = append(opened, "web", rows)
    broken = [replace(row, headers={"token": "app", "malformed": "torn"}) for row in rows[:3]]
    failed = append(opened, "web", broken)
    assert failed == partition
    end = len(rows) + len(broken)
    opened.ledger.open_route("warehouse", {partition: 0})
    deliver(opened, "warehouse", partition, [0, end])
    entries_open = [
        replace(entry, record=replace(entry.record, headers={"token": "app"}))
        for entry in opened.failed_store.read("warehouse", opened.ledger.failed_extent("warehouse"))
    ]
    assert replay("warehouse", entries_open, opened.log, opened.ledger) == 3
    assert set(opened.sources_of("warehouse-archive")) == {"web", "replay:warehouse", "replay:warehouse-archive"}
    (replays,) = opened.log.partitions(["replay:warehouse"])
    opened.ledger.open_route("warehouse-archive", {partition: 0, replays: 0})
    if point:
        monkeypatch.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
    for place, count in ((partition, len(rows)), (replays, 3)):
        with suppress(faults.InjectedFault, TransientError):
            deliver(opened, "warehouse-archive", place, [0, count])
        deliver(opened, "warehouse-archive", place, [0, count // 2, count])
    ours = [(row.data or b"").replace(b"\n", b" ") for row in rows if row.headers["token"] == "app"]
    again = [(row.data or b"").replace(b"\n", b" ") for row in broken]
    kept = archived(tmp_path)
    assert sorted(kept) == ["failed.dst=warehouse", "streaming-archive.dst=warehouse"]
    assert sorted(kept["streaming-archive.dst=warehouse"]) == sorted(ours)
    assert sorted(kept["failed.dst=warehouse"]) == sorted(again)
    assert opened.failed_store.path("warehouse").name == "failed.dst=warehouse.log"


def test_the_archive_of_a_batch_route_is_by_token_as_the_seed_has_it(tmp_path: Path) -> None:
    opened, rows = pipeline(tmp_path, OF_A_ROUTE), [row for row in brought(20) if "malformed" not in row.headers]
    partition = append(opened, "web", rows)
    opened.ledger.open_route("nightly-archive", {partition: 0})
    deliver(opened, "nightly-archive", partition, [0, len(rows)])
    assert sorted(archived(tmp_path)) == ["incoming.tok=app", "incoming.tok=site"]


def test_the_log_keeps_what_is_replayed_until_it_is_archived(tmp_path: Path) -> None:
    opened = pipeline(tmp_path, OF_A_ROUTE)
    partition = append(opened, "replay:warehouse", brought(20))
    opened.ledger.open_route("warehouse", {partition: 0})
    commit(opened, "warehouse", partition, 20)
    opened.log.holds.set("warehouse", {partition: 20})
    assert opened.floors()[partition] == 0
