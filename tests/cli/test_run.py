"""``penstock run``, for real: processes, Spark, DuckDB."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest

from penstock.cli._support.exit_codes import Exit
from penstock.engine.failed.failed_store import FailedStore
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, RouteState, Totals, sqlite_url
from penstock.testing.waiting import HANG, eventually
from tests.cli.projects import Project, penstock
from tests.engine.test_engine import locked
from tests.support import plain_http
from tests.support.command import run_penstock, start_penstock
from tests.support.ports import free_port, listens
from tests.support.postgres import LOGICAL, Server


def test_a_new_project_runs_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    assert penstock("init", str(folder)).code == 0
    command = [sys.executable, "-m", "penstock.cli.main", "run", "--once", "--json"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    started, ended = map(json.loads, ran.stdout.splitlines())
    assert (started["event"], started["name"], started["once"]) == ("started", "shop", True)
    (route,) = ended["routes"]
    counts = {name: route[name] for name in ("in", "loaded", "skipped", "failed", "waiting", "adds_up", "lag")}
    assert counts == {"in": 20, "loaded": 17, "skipped": 2, "failed": 1, "waiting": 0, "adds_up": True, "lag": 0}
    with duckdb.connect(folder / "data" / "warehouse.duckdb", read_only=True) as warehouse:
        sold = warehouse.execute("SELECT count(*), sum(price), min(user_email) FROM purchase").fetchone()
        assert sold is not None
        assert (sold[0], sold[2]) == (6, "ada@example.com")
        assert warehouse.execute("SELECT count(*) FROM pageview").fetchone() == (10,)

    project = Project(folder)
    (failed,) = project.penstock("failed", "list", "--json").out.splitlines()
    assert json.loads(failed)["record"]["data"] == '{"event_type": "purchase", "item": "mug", "price": 12.5'


def test_ctrl_c_drains_and_ends_with_nothing_left(fresh: Project) -> None:
    port = free_port()
    source = f"{{type: http, listen: '127.0.0.1:{port}', workers: 1, tokens: [{{id: site, client_secret: demo}}]}}"
    fresh.config.write_text(
        f"name: shop\nsources:\n  web: {source}\nroutes:\n  out: {{from: web, to: {{type: file, path: ./out}}}}\n"
    )
    out = fresh.folder / "stdout"
    running = start_penstock(["run"], fresh.folder, out, fresh.folder / "stderr")
    try:
        eventually(lambda: listens(port), "the collector listens")
        url = f"http://127.0.0.1:{port}/api/v1/event?token=demo"
        eventually(lambda: plain_http.post(url, json={"n": 1}, timeout=HANG).status_code == 200, "an event is taken")
        eventually(lambda: "route out: started" in (fresh.folder / "stderr").read_text(), "the route runs")
        status = json.loads(fresh.penstock("status", "--json").out)
        assert status["engine_pid"] is not None
        running.send_signal(signal.SIGINT)
        running.wait(HANG)
    finally:
        running.kill()
    told = (fresh.folder / "stderr").read_text()
    assert running.poll() == 0, told
    assert "draining, up to 30 s" in told
    assert f"127.0.0.1:{port}" in told
    assert ["out", "stopped", "1", "1", "0", "0", "0", "0"] in [
        line.split()[:8] for line in out.read_text().splitlines()
    ]
    assert json.loads(fresh.penstock("status", "--json").out)["engine_pid"] is None


AWKWARD = """
import json

from pydantic import Field

from penstock.destinations.contract import NULL_TABLE_BOOK
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.destination import FileDestination
from penstock.errors import TransientError
from penstock.registry import Component, Kind

component = Component(Kind.DESTINATION, "awkward", "Fails first", "awkward:AwkwardConfig", "awkward:Awkward")


PROBLEMS = {"away": TransientError("PEN-TST-001", "away."), "bug": ValueError("a broken wheel")}


class AwkwardConfig(FileConfig):
    type: str = "awkward"
    problem: str = Field("bug", description="What goes wrong.")
    times: int = Field(0, description="How often.")
    unlucky: int = Field(-1, description="Which number goes wrong, each time.")


class Awkward(FileDestination):
    def write(self, batch, parts, book=NULL_TABLE_BOOK):
        tries = self.config.path.with_suffix(".tries")
        said = tries.read_text() if tries.exists() else ""
        if len(said) < self.config.times:
            tries.write_text(said + ".")
            raise PROBLEMS[self.config.problem]
        return super().write(batch, parts, book)

    def stager(self, directory, casts):
        stager = super().stager(directory, casts)
        add, unlucky = stager.add, self.config.unlucky

        def add_unless_unlucky(batch, read=None):
            if unlucky in [json.loads(data)["n"] for data in batch.column("data").to_pylist()]:
                raise KeyError("bad luck")
            return add(batch, read)

        stager.add = add_unless_unlucky
        return stager
"""


def run_once_with_awkward(fresh: Project) -> subprocess.CompletedProcess[str]:
    site = fresh.folder / "site"
    (site / "awkward-1.dist-info").mkdir(parents=True)
    (site / "awkward.py").write_text(AWKWARD)
    (site / "awkward-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: awkward\nVersion: 1\n")
    (site / "awkward-1.dist-info" / "entry_points.txt").write_text(
        "[penstock.components]\nawkward = awkward:component\n"
    )
    return run_penstock(["run", "--once"], fresh.folder, {"PYTHONPATH": str(site)})


def test_what_a_component_was_not_written_for_fails_alone_or_is_given_up_and_said(fresh: Project) -> None:
    (fresh.folder / "web.ndjson").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
    fresh.config.write_text(
        "name: shop\nengine: {restart_backoff: 10ms}\nsources: {web: {type: file, path: ./web.ndjson}}\nroutes:\n"
        "  lenient: {from: web, to: {type: awkward, path: ./lenient, unlucky: 13}}\n"
        "  strict: {from: web, on_error: stop, to: {type: awkward, path: ./strict, unlucky: 13}}\n"
        "  broken: {from: web, to: {type: awkward, path: ./broken, problem: bug, times: 1000}}\n"
        "  fixed: {from: web, to: {type: awkward, path: ./fixed, problem: bug, times: 2}}\n"
        "  away: {from: web, to: {type: awkward, path: ./away, problem: away, times: 6}}\n"
    )
    ran = run_once_with_awkward(fresh)
    assert ran.returncode == Exit.UNFINISHED, ran.stderr
    layout = Layout(fresh.folder / "data")
    ledger = Ledger.open(sqlite_url(layout.ledger), "shop")
    assert ledger.totals("lenient") == Totals(items=20, loaded=19, failed=1)
    (entry,) = FailedStore(layout.failed).read("lenient", ledger.failed_extent("lenient"))
    assert (entry.record.offset, entry.code, entry.error) == (13, "raised", "its task raised KeyError: 'bad luck'")
    assert ledger.totals("strict") == Totals(items=13, loaded=13)
    assert "stopped before offset 13 of partition 0" in ran.stderr
    assert (fresh.folder / "broken.tries").read_text() == "....."
    assert "route broken: gave up after 5 crashes: ValueError: a broken wheel" in ran.stderr
    assert "route broken gave up: ValueError: a broken wheel" in ran.stderr.splitlines()
    assert [ledger.totals(route).loaded for route in ("away", "broken", "fixed")] == [20, 0, 20]
    broken = ledger.activity("broken")
    ledger.close()
    assert broken is not None
    assert (broken.state, broken.message) == (RouteState.CRASHED, "ValueError: a broken wheel")


def test_a_stop_while_the_destination_is_away_is_no_error(fresh: Project) -> None:
    (fresh.folder / "web.ndjson").write_text('{"n": 1}\n')
    fresh.config.write_text(
        "name: shop\nengine: {drain: 0s}\nsources: {web: {type: file, path: ./web.ndjson}}\n"
        "routes: {warehouse: {from: web, to: {type: duckdb, path: ./warehouse.duckdb, every: 100ms}}}\n"
    )
    stderr = fresh.folder / "stderr"
    stderr.touch()
    with locked(fresh.folder / "warehouse.duckdb"):
        running = start_penstock(["run"], fresh.folder, fresh.folder / "stdout", stderr)
        try:
            eventually(lambda: "Trying again in" in stderr.read_text(), "the destination is unavailable")
            running.send_signal(signal.SIGTERM)
            running.wait(HANG)
        finally:
            running.kill()
    told = stderr.read_text()
    assert running.poll() == Exit.UNFINISHED, told
    assert "Traceback" not in told
    assert "ERROR" not in told
    assert "Stopped" not in told
    assert told.count("route warehouse: stopped before batch 1 was delivered") == 1


PATIENT = """
name: shop
sources:
  shop: {{type: postgres, url: "{url}", tables: ["public.orders"], connect_timeout: 2s}}
  web: {{type: file, path: ./web.ndjson}}
routes:
  files: {{from: web, to: {{type: file, path: ./out}}}}
  warehouse: {{from: web, to: {{type: postgres, url: "{url}", table: events, connect_timeout: 2s}}}}
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """A database that is there and does not run."""
    made = Server()
    try:
        yield made
    finally:
        made.remove()


def test_once_waits_for_a_database_only_as_long_as_it_is_told_and_goes_on_later(server: Server, fresh: Project) -> None:
    (fresh.folder / "web.ndjson").write_text('{"n": 1}\n{"n": 2}\n')
    fresh.config.write_text(PATIENT.format(url=server.url))

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return run_penstock(["run", "--once", *options], fresh.folder)

    ran = run("--patience", "1s", "--json")
    assert ran.returncode == Exit.UNFINISHED, ran.stderr
    ended = json.loads(ran.stdout.splitlines()[-1])
    assert list(ended["waits_for"]) == ["warehouse"]
    assert "PEN-DST-027" in ended["waits_for"]["warehouse"]
    assert "route warehouse: waits no longer: PEN-DST-027" in ran.stderr
    assert "PEN-PGS-015: PostgreSQL cannot be used now" in ran.stderr
    assert "Run again when it is there." in ran.stderr
    assert "Traceback" not in ran.stderr
    assert {route["route"]: (route["loaded"], route["lag"]) for route in ended["routes"]} == {
        "files": (2, 0),
        "warehouse": (0, 2),
    }
    ran = run("--patience", "200ms")
    assert ran.returncode == Exit.UNFINISHED
    (told,) = [line for line in ran.stderr.splitlines() if line.startswith("route warehouse still waits")]
    assert "2 records to go: PEN-DST-027" in told
    server.start(settings=LOGICAL)
    try:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        assert run("--patience", "1s").returncode == 0
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT array_agg(n ORDER BY n) FROM events").fetchone() == ([1, 2],)
    finally:
        server.kill()
    assert len(list((fresh.folder / "out").iterdir())) == 1


def test_patience_is_for_runs_that_have_an_end(fresh: Project) -> None:
    assert fresh.penstock("run", "--patience", "5s").code == Exit.USAGE
    assert fresh.penstock("run", "--once", "--patience", "soon").code == Exit.USAGE


def test_a_setting_that_spark_refuses_is_one_line_without_a_trace(fresh: Project) -> None:
    fresh.config.write_text(fresh.config.read_text() + "engine: {spark: {spark.sql.session.timeZone: Nowhere}}\n")
    (fresh.folder / "events.ndjson").write_text('{"price": 12}\n')
    ran = run_penstock(["run", "--once"], fresh.folder)
    assert ran.returncode == Exit.START, ran.stderr
    (told,) = [line for line in ran.stderr.splitlines() if "PEN-ENG-003" in line]
    assert "Spark did not start" in told
    assert "Nowhere" in told
    assert "`engine.spark`" in told
    assert "Traceback" not in ran.stderr
    assert not [line for line in ran.stderr.splitlines() if line.startswith("\tat ")]
