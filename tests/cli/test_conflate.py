"""``penstock run`` with a destination that keeps state, from a request to the rows; and ``penstock conflate``."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.testing.waiting import HANG, eventually
from tests.cli.projects import Project
from tests.support.command import run_penstock, start_penstock
from tests.support.database import Database
from tests.support.ports import free_port
from tests.support.postgres import Server

KINDS = """
        - {name: clusters, priority: 0, sync: complete, table: clusters, rows: /items, key: [id]}
        - {name: policies, priority: 1, sync: complete, table: policies, rows: /items, key: [id]}
        - {name: compliance, priority: 2, sync: complete, table: compliance, rows: /items, key: [policy, cluster], depends_on: {kind: policies, match: exact}}
        - {name: compliance_delta, priority: 3, sync: delta, table: compliance, rows: /items, key: [policy, cluster], depends_on: {kind: compliance, match: exact}}
"""  # noqa: E501


def pipeline(source: str, place: str) -> str:
    return (
        f"name: fleet\nsources:\n  hubs: {source}\nroutes:\n  state:\n    from: [hubs]\n"
        f"    to:\n      type: state\n      {place}\n      workers: 4\n      kinds:{KINDS}"
    )


def bundle(kind: str, version: str, *rows: dict[str, object], source: str = "hub1", **more: str) -> dict[str, Any]:
    return {"source": source, "kind": kind, "version": version, **more, "data": {"items": rows}}


def compliance(policy: str, cluster: str, state: str) -> dict[str, object]:
    return {"policy": policy, "cluster": cluster, "state": state}


def test_bundles_of_a_file_end_as_the_newest_state_and_the_verbs_tell_how(fresh: Project) -> None:
    fresh.config.write_text(pipeline("{type: file, path: ./hubs.ndjson}", "path: ./state.duckdb"))
    bundles = [
        bundle("compliance", "0.1", compliance("p1", "c1", "ok"), depends_on="0.1"),
        *(bundle("clusters", f"0.{number}", {"id": "c1", "n": number}) for number in range(50)),
        bundle("policies", "0.1", {"id": "p1"}),
        bundle("compliance_delta", "0.1", compliance("p1", "c2", "bad"), base="0.1"),
        bundle("compliance", "0.9", compliance("p1", "c1", "ok"), depends_on="0.7", source="hub2"),
        {"source": "hub1", "kind": "nonsense", "version": "0.1", "data": {}},
    ]
    (fresh.folder / "hubs.ndjson").write_text("".join(json.dumps(each) + "\n" for each in bundles))
    done = run_penstock(["run", "--once"], fresh.folder)
    with duckdb.connect(fresh.folder / "state.duckdb", read_only=True) as database:
        assert database.execute("SELECT source, id, n FROM clusters").fetchall() == [("hub1", "c1", 49)], done.stderr
        rows = database.execute("SELECT source, cluster, state FROM compliance ORDER BY cluster").fetchall()
        assert rows == [("hub1", "c1", "ok"), ("hub1", "c2", "bad")]
    (status,) = json.loads(fresh.penstock("conflate", "status", "--json").out)
    counts = {(each["source"], each["kind"]): each for each in status["kinds"]}
    clusters = counts["hub1", "clusters"]["counts"]
    assert (clusters["received"], clusters["conflated"], clusters["written"]) == (50, 49, 1)
    assert (counts["hub2", "compliance"]["pending"], status["position_lag"]) == (1, 2)
    assert "clusters" in fresh.penstock("conflate", "status").out
    assert "hub2" in fresh.penstock("conflate", "status", "--sources").out
    (pending,) = json.loads(fresh.penstock("conflate", "pending", "--json").out)
    assert (pending["source"], pending["version"]) == ("hub2", "0.9")
    assert "waits for policies 0.7; none is there" in fresh.penstock("conflate", "pending").out
    assert fresh.penstock("conflate", "forget", "hub1", answer="n\n").code == 1
    assert "4 rows of hub1 deleted" in fresh.penstock("conflate", "forget", "hub1", "--yes").out
    with duckdb.connect(fresh.folder / "state.duckdb", read_only=True) as database:
        assert database.execute("SELECT count(*) FROM penstock_versions").fetchall() == [(0,)]


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    running.start()
    try:
        yield running
    finally:
        running.stop()
        running.remove()


@contextmanager
def run(folder: Path) -> Iterator[None]:
    running = start_penstock(["run"], folder, folder / "stdout", folder / "stderr")
    try:
        yield
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANG) == 0, (folder / "stderr").read_text()
    finally:
        running.kill()
        running.wait()


def test_bundles_over_http_reach_postgres_and_go_on_conflating_while_it_is_away(fresh: Project, server: Server) -> None:
    address = f"127.0.0.1:{free_port()}"
    source = f"{{type: http, listen: '{address}', tokens: [{{id: hubs, server_secret: secret}}]}}"
    fresh.config.write_text(pipeline(source, f"url: {server.url}"))
    database = Database(server.url, "public")

    def send(*bundles: dict[str, Any]) -> bool:
        request = urllib.request.Request(
            f"http://{address}/api/v1/bundles",
            json.dumps(bundles).encode(),
            {"X-Auth-Token": "secret", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def versions() -> dict[str, int]:
        return dict(database.ask("SELECT source || ' ' || kind, generation FROM penstock_versions"))

    with run(fresh.folder):
        eventually(
            lambda: send(bundle("compliance", "0.1", compliance("p1", "c1", "ok"), depends_on="0.1")), "it takes"
        )
        assert send(bundle("clusters", "0.1", {"id": "c1"}))
        eventually(lambda: database.ask("SELECT to_regclass('penstock_versions')") != [(None,)], "tables are made")
        eventually(lambda: versions() == {"hub1 clusters": 1}, "what depends on nothing is written")
        assert send(bundle("policies", "0.1", {"id": "p1"}))
        eventually(lambda: versions().get("hub1 compliance") == 1, "it follows what it depends on")
        # How often a version is written while the server was away and after it.
        database.ask(
            "CREATE TABLE writes (source text, kind text, generation bigint);"
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN INSERT INTO writes VALUES (NEW.source, NEW.kind, NEW.generation); RETURN NEW; END';"
            "CREATE TRIGGER noted AFTER INSERT OR UPDATE OF generation ON penstock_versions"
            " FOR EACH ROW EXECUTE FUNCTION note()"
        )
        server.stop()
        copy = server.copy_files()
        for generation in range(2, 40):
            sources = [f"hub{number}" for number in range(5)]
            assert send(*(bundle("clusters", f"0.{generation}", {"id": "c1"}, source=each) for each in sources))
        eventually(lambda: _is_all_read(fresh), "the route knows all that came")
        assert _pending(fresh) == 5, "the newest of each source waits"
        server.start()
        eventually(lambda: versions().get("hub4 clusters") == 39, "all is caught up")
        eventually(lambda: _pending(fresh) == 0, "nothing waits")
        found = database.ask("SELECT source, count(*), max(generation) FROM writes GROUP BY source ORDER BY source")
        assert found == [(f"hub{number}", 1, 39) for number in range(5)]
        server.stop()
        server.put_back(copy)
        server.start()
        eventually(lambda: send(bundle("clusters", "0.1", {"id": "c1"}, source="last")), "it takes")
        eventually(lambda: versions().get("hub4 clusters") == 39, "an older copy gets again what it lacks")
        eventually(lambda: versions().get("last clusters") == 1, "and goes on")
    told = (fresh.folder / "stderr").read_text()
    assert "PEN-DST-147: the database has gone back" in told
    assert "Traceback" not in told
    assert "at org.apache" not in told
    status = json.loads(fresh.penstock("status", "--json").out)["routes"][0]
    assert (status["adds_up"], status["waiting"], status["behind"]) == (True, 0, 0)


def _is_all_read(project: Project) -> bool:
    """Whether nothing stands in the log that the route does not know."""
    (route,) = json.loads(project.penstock("status", "--json").out)["routes"]
    return bool(route["behind"] == route["under_way"] == 0)


def _pending(project: Project) -> int:
    found = json.loads(project.penstock("conflate", "pending", "--json").out)
    return sum(each["bundles"] for each in found)
