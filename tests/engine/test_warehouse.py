"""Routes into a real PostgreSQL, with a real Spark: what happens when the server dies, and when two engines meet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest

from penstock.engine.engine import Engine
from penstock.engine.ledger import RouteState, Totals
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.engine.pipeline import Pipeline
from penstock.testing.waiting import HANG, eventually
from tests.engine.projects import append_all, pipeline
from tests.engine.test_engine import running
from tests.support.postgres import Server

TO_POSTGRES = """\
name: {name}
sources:
  web: {{type: file, path: ./web.ndjson}}
routes:
  warehouse:
    from: web
    max_records: {most}
    to: {{type: postgres, url: "{dsn}", {options}}}
"""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.kill()
    server.remove()


def project(
    folder: Path, server: Server, options: str = "every: 100ms", name: str = "shop", most: int = 500
) -> Pipeline:
    folder.mkdir(exist_ok=True)
    return pipeline(folder, TO_POSTGRES.format(name=name, dsn=server.url, options=options, most=most))


def ask(server: Server, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.url) as connection:
        return connection.execute(query.encode()).fetchall()


def test_a_server_that_dies_in_the_middle_of_a_load_has_every_event_once_when_it_is_back(
    tmp_path: Path, server: Server
) -> None:
    opened = project(tmp_path, server)
    count = 5_000
    append_all(opened, "web", [b'{"n": %d, "text": "%s"}' % (n, b"x" * 300) for n in range(count)])
    with running(opened):
        eventually(lambda: opened.ledger.totals("warehouse").loaded > 0, "the first batch is loaded")
        server.kill()
        eventually(lambda: _state(opened) is RouteState.RETRYING, "the route says that it waits")
        assert opened.ledger.totals("warehouse").loaded < count
        server.start()
        eventually(lambda: opened.ledger.totals("warehouse").loaded == count, "all is loaded")
    assert ask(server, "SELECT count(*), count(DISTINCT n), min(n), max(n) FROM events") == [
        (count, count, 0, count - 1)
    ]
    assert opened.ledger.totals("warehouse") == Totals(items=count, loaded=count)


def _state(opened: Pipeline) -> RouteState | None:
    activity = opened.ledger.activity("warehouse")
    return None if activity is None else activity.state


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_equal_events_with_a_key_are_one_row_in_either_mode(tmp_path: Path, server: Server, mode: str) -> None:
    opened = project(tmp_path, server, f"mode: {mode}, primary_key: [eventn_ctx_event_id]", most=2)
    append_all(opened, "web", [b'{"eventn_ctx": {"event_id": "e1"}, "v": 1}'] * 5)
    assert Engine(opened, once=True).run(Event())
    assert ask(server, "SELECT eventn_ctx_event_id, v FROM events") == [("e1", 1)]
    assert opened.ledger.totals("warehouse") == Totals(items=5, loaded=5)


def test_two_engines_that_need_the_same_fifty_columns_add_each_of_them_once(tmp_path: Path, server: Server) -> None:
    engines = [project(tmp_path / name, server, name=name) for name in ("one", "other")]
    wide = b", ".join(b'"new_%d": %d' % (n, n) for n in range(50))
    for opened in engines:
        append_all(opened, "web", [b'{"id": %d, %s}' % (n, wide) for n in range(400)])
    script = (
        "import sys; from pathlib import Path; from threading import Event\n"
        "from penstock.config.loading import load; from penstock.engine.engine import Engine\n"
        "from penstock.engine.pipeline import Pipeline\n"
        "sys.exit(0 if Engine(Pipeline.open(load(Path(sys.argv[1]))), once=True).run(Event()) else 1)\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / name / "pipeline.yaml")])
        for name in ("one", "other")
    ]
    assert [process.wait(timeout=2 * HANG) for process in processes] == [0, 0]
    assert ask(server, "SELECT count(*), count(new_0), count(new_49) FROM events") == [(800, 800, 800)]
    made = [change.statement for opened in engines for change in RouteBook(opened.ledger, "warehouse").changes()]
    assert len(made) == len(set(made))
    columns = RouteBook(engines[0].ledger, "warehouse").columns("events")
    assert {column.name: column.paths for column in columns}["new_7"] == ("/new_7",)
