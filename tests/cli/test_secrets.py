"""Secrets are planted everywhere a config can hold them, things go wrong, and nothing that comes out or lies on disk
has one: outputs of every verb, log lines, metrics, files, the ledger's bytes, command lines."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import httpx
import psutil
import psycopg
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.cli.processes import Run, running
from tests.support.ports import free_port
from tests.support.postgres import Server
from tests.support.waiting import eventually

PIPELINE = """\
name: shop
data_dir: ./data
engine:
  master: local[1]
  spark:
    spark.hadoop.fs.s3a.secret.key: "{s3}"
    spark.driver.extraJavaOptions: "-Dstore.password={java}"
    spark.eventLog.enabled: "true"
    spark.eventLog.dir: "file://{events}"
sources:
  web:
    type: http
    listen: 127.0.0.1:{port}
    workers: 1
    tokens: [{{id: site, client_secret: "{client}", server_secret: "{server}"}}]
  mirrored: {{type: postgres, url: "postgresql://me:{source}@127.0.0.1:{closed}/x", tables: public.x}}
routes:
  wrong:
    from: web
    to: {{type: postgres, url: "postgresql://guarded:{url}@127.0.0.1:{pg}/postgres"}}
  query:
    from: web
    to: {{type: postgres, url: "postgresql://guarded@127.0.0.1:{pg}/postgres?password={query}&sslpassword={ssl}"}}
  away:
    from: web
    to: {{type: clickhouse, url: "clickhouse://me:{away}@127.0.0.1:{closed}"}}
"""
NAMES = ("s3", "java", "client", "server", "source", "url", "query", "ssl", "away")


@dataclass
class Planted:
    """A project whose every secret is a text that occurs nowhere else."""

    folder: Path
    port: int
    events: Path
    secrets: dict[str, str] = field(default_factory=lambda: {name: f"zq-{name}!9$x7" for name in NAMES})
    heard: list[str] = field(default_factory=list)

    def leaks(self, text: str | bytes) -> list[str]:
        """The secrets that a text shows, in any spelling."""
        data = text.encode() if isinstance(text, str) else text
        return [
            f"{name}: {form!r}"
            for name, secret in self.secrets.items()
            for form in (secret, quote(secret, safe=""), quote(secret), _core(secret))
            if form.encode() in data
        ]

    def files(self) -> Iterator[Path]:
        for top in (self.folder / "data", self.events):
            yield from (path for path in top.rglob("*") if path.is_file())


def _core(secret: str) -> str:
    return base64.b64encode(f"{secret}:".encode()).decode()[:12]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that wants a password of one of its users."""
    server = Server()
    rules = server._directory / "data" / "pg_hba.conf"
    rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    server.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'another one'")
    yield server
    server.kill()
    server.remove()


@pytest.fixture
def planted(guarded: Server, tmp_path: Path) -> Planted:
    project = Planted(tmp_path, free_port(), tmp_path / "events")
    project.events.mkdir()
    in_urls = ("source", "url", "query", "ssl", "away")
    words = {n: quote(s, safe="") if n in in_urls else s for n, s in project.secrets.items()}
    text = PIPELINE.format(
        **words,
        events=project.events,
        port=project.port,
        pg=guarded.port,
        closed=free_port(),
    )
    (tmp_path / "pipeline.yaml").write_text(text)
    return project


VERBS = [
    ["validate"],
    ["status"],
    ["doctor"],
    ["list"],
    ["about", "postgres"],
    ["failed", "list"],
    ["offset", "list"],
    ["schema", "config"],
    ["log", "show", "0..9"],
]


@pytest.mark.timeout(1500)
def test_no_secret_comes_out_of_a_pipeline_or_lies_on_its_disk(planted: Planted) -> None:
    secrets = planted.secrets
    with running(planted.folder, {"COLUMNS": "80"}) as run:
        eventually(lambda: _answers(planted.port), "the collector answers", 300)
        for headers in ({"X-Auth-Token": secrets["client"]}, {"Authorization": f"Basic {_basic(secrets['client'])}"}):
            httpx.post(f"http://127.0.0.1:{planted.port}/api/v1/event", headers=headers, json={"a": 1})
        httpx.post(f"http://127.0.0.1:{planted.port}/api/v1/event?token={quote(secrets['server'])}", content=b"{broken")
        lines = _commands(run)
        eventually(lambda: _all_wait(lines, run), "every route has met its error", 600)
        for verb in VERBS:
            for words in ([*verb], [*verb, "--json"]):
                ran = CliRunner().invoke(app, [*words, *_config_of(verb, planted)], env={"COLUMNS": "80"})
                assert planted.leaks(ran.output) == [], words
        for path in ("metrics", "healthz", "readyz", "openapi.json", "nothing"):
            answer = httpx.get(f"http://127.0.0.1:{planted.port}/{path}")
            assert planted.leaks(answer.text + str(answer.headers)) == [], path
        lines |= _commands(run)
        os.kill(run.engine().pid, 9)
        eventually(lambda: run.said.count("engine: started") >= 2, "the engine is started again", 300)
    assert planted.leaks("\n".join(lines)) == []
    assert any("SparkSubmit" in line for line in lines), "no JVM was seen"
    assert planted.leaks(run.said) == []
    assert "password authentication failed" in run.said
    found = {str(path): planted.leaks(path.read_bytes()) for path in planted.files()}
    assert {path: leaks for path, leaks in found.items() if leaks} == {}
    assert any("ledger" in path for path in found)
    assert any("events" in path for path in found), "Spark wrote no event log"


def _config_of(verb: list[str], planted: Planted) -> list[str]:
    without = (["list"], ["about", "postgres"], ["schema", "config"])
    return [] if verb in without else ["--config", str(planted.folder / "pipeline.yaml")]


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def _basic(user: str) -> str:
    return base64.b64encode(f"{user}:".encode()).decode()


def _commands(run: Run) -> set[str]:
    found = set()
    for process in run.family():
        try:
            found.add(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def _all_wait(lines: set[str], run: Run) -> bool:
    """Looks at command lines on the way: Spark's launcher is gone again in a moment."""
    lines |= _commands(run)
    return len(set(re.findall(r"route (\w+): PEN-", run.said))) == 3


@pytest.mark.parametrize("verb", [["validate"], ["status"], ["doctor"], ["plan", "--sample", "x"], ["failed", "list"]])
@pytest.mark.parametrize(
    "broken",
    [
        "ledger: {url: 'postgresql://me:zq-un@escaped9@127.0.0.1/x'}",
        "ledger: {url: 'postgresql://me:zq-escaped9@127.0.0.1:99999/x'}",
        "ledger: {url: 'postgresql://me:zq-escaped9@nowhere.invalid/x?sslpassword=zq-escaped9'}",
        "ledger: {urll: 'postgresql://me:zq-escaped9@127.0.0.1/x'}",
        "ledger: {url: 'postgresql://me@127.0.0.1/x?password=zq-escaped9'}",
    ],
)
def test_an_address_that_is_wrong_is_told_without_its_password(broken: str, verb: list[str], tmp_path: Path) -> None:
    around = "name: shop\nsources: {a: {type: file, path: x}}\nroutes: {out: {from: a, to: {type: 'null'}}}"
    (tmp_path / "pipeline.yaml").write_text(f"{around}\n{broken}\n")
    ran = CliRunner().invoke(app, [*verb, "--config", str(tmp_path / "pipeline.yaml")])
    said = ran.output
    assert said
    for part in ("escaped9", "zq-un", "zq-"):
        assert part not in said
    assert "bug of Penstock" not in said
    if "un@escaped" in broken:
        assert "pipeline.yaml:4" in said
        assert "percent-encoded" in said
