"""Secrets are planted everywhere a config can hold them, things go wrong, and nothing that comes out or lies on disk
has one: outputs of every verb, log lines, metrics, files, the ledger's bytes, command lines."""

from __future__ import annotations

import base64
import os
import re
import stat
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
from penstock.testing.waiting import eventually
from tests.cli.processes import Run, running
from tests.support import plain_http
from tests.support.ports import free_port
from tests.support.postgres import Server

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
    metrics: 127.0.0.1:{metrics}
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
    metrics: int
    events: Path
    secrets: dict[str, str] = field(default_factory=lambda: {name: f"zq-{name}!9$x7" for name in NAMES})

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
            # Not `rglob`: what runs meanwhile removes folders.
            for folder, _, names in os.walk(top):
                yield from (path for name in names if (path := Path(folder) / name).is_file())


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


@pytest.fixture(scope="module")
def planted(guarded: Server, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    tmp_path = tmp_path_factory.mktemp("planted")
    project = Planted(tmp_path, free_port(), free_port(), tmp_path / "events")
    project.events.mkdir()
    in_urls = ("source", "url", "query", "ssl", "away")
    words = {n: quote(s, safe="") if n in in_urls else s for n, s in project.secrets.items()}
    text = PIPELINE.format(
        **words,
        events=project.events,
        port=project.port,
        metrics=project.metrics,
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


@dataclass
class Observed:
    """What could be seen of a pipeline while it ran into its errors, was asked about them, and lost its engine."""

    planted: Planted
    said: str = ""
    commands: set[str] = field(default_factory=set)
    outputs: dict[str, str] = field(default_factory=dict)
    listening: set[tuple[str, int, str]] = field(default_factory=set)


@pytest.fixture(scope="module")
def observed(planted: Planted) -> Observed:
    seen = Observed(planted)
    secrets, collector = planted.secrets, f"http://127.0.0.1:{planted.port}"
    loose = planted.folder / "data" / "log"
    loose.mkdir(parents=True, mode=0o755)
    (planted.folder / "data").chmod(0o755)
    with running(planted.folder, {"COLUMNS": "80"}) as run:
        eventually(lambda: _answers(planted.port), "the collector answers")
        for headers in ({"X-Auth-Token": secrets["client"]}, {"Authorization": f"Basic {_basic(secrets['client'])}"}):
            plain_http.post(f"{collector}/api/v1/event", headers=headers, json={"a": 1})
        plain_http.post(f"{collector}/api/v1/event?token={quote(secrets['server'])}", content=b"{broken")
        eventually(lambda: _all_wait(seen.commands, run), "every route has met its error", 600)
        for verb in VERBS:
            for words in ([*verb], [*verb, "--json"]):
                ran = CliRunner().invoke(app, [*words, *_config_of(verb, planted)], env={"COLUMNS": "80"})
                seen.outputs[" ".join(words)] = ran.output
        for page in ("metrics", "healthz", "readyz", "openapi.json", "nothing"):
            answer = plain_http.get(f"{collector}/{page}")
            seen.outputs[page] = answer.text + str(answer.headers)
        shown = plain_http.get(f"http://127.0.0.1:{planted.metrics}/metrics")
        seen.outputs["metrics of the source"] = shown.text + str(shown.headers)
        seen.commands |= _commands(run)
        seen.listening = _listening(run)
        os.kill(run.engine().pid, 9)
        # What is in the files that Spark starts with is removed once it has started.
        eventually(lambda: run.said.count("Spark started") >= 2, "the engine is started again")
    seen.said = run.said
    return seen


pytestmark = pytest.mark.timeout(1500)


def test_no_secret_comes_out_of_a_pipeline_or_lies_on_its_disk(observed: Observed) -> None:
    planted = observed.planted
    outputs = {words: planted.leaks(text) for words, text in observed.outputs.items()}
    assert {words: leaks for words, leaks in outputs.items() if leaks} == {}
    assert planted.leaks("\n".join(observed.commands)) == []
    assert any("SparkSubmit" in line for line in observed.commands), "no JVM was seen"
    assert planted.leaks(observed.said) == []
    assert "password authentication failed" in observed.said
    found = {str(path): planted.leaks(path.read_bytes()) for path in planted.files()}
    assert {path: leaks for path, leaks in found.items() if leaks} == {}
    assert any("ledger" in path for path in found)
    assert any("events" in path for path in found), "Spark wrote no event log"


def test_what_a_pipeline_keeps_is_for_its_user_alone(observed: Observed) -> None:
    data = observed.planted.folder / "data"
    modes = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in (data, *data.rglob("*")) if not path.is_socket()}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert any("checkpoints" in path for path in modes)
    assert any("ledger" in path for path in modes)


def test_nothing_listens_beyond_this_machine(observed: Observed) -> None:
    addresses = {host for host, _, _ in observed.listening}
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, observed.listening
    assert any("SparkSubmit" in command for _, _, command in observed.listening), "the JVM was not looked at"
    assert {observed.planted.port, observed.planted.metrics} <= {port for _, port, _ in observed.listening}


def test_the_counters_are_not_shown_to_those_who_send(observed: Observed) -> None:
    assert "penstock_collector" not in observed.outputs["metrics"]
    assert "penstock_collector_requests_total" in observed.outputs["metrics of the source"]


def test_doctor_says_that_data_is_open_to_others(tmp_path: Path) -> None:
    text = "name: shop\nsources: {a: {type: file, path: x}}\nroutes: {out: {from: a, to: {type: 'null'}}}\n"
    (tmp_path / "pipeline.yaml").write_text(text)
    data = tmp_path / "data"
    data.mkdir()
    for mode, said in ((0o755, True), (0o700, False)):
        data.chmod(mode)
        ran = CliRunner().invoke(app, ["doctor", "--config", str(tmp_path / "pipeline.yaml")])
        assert ("open to others (mode 0755)" in ran.output) is said


def _config_of(verb: list[str], planted: Planted) -> list[str]:
    without = (["list"], ["about", "postgres"], ["schema", "config"])
    return [] if verb in without else ["--config", str(planted.folder / "pipeline.yaml")]


def _answers(port: int) -> bool:
    try:
        return plain_http.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
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


def _listening(run: Run) -> set[tuple[str, int, str]]:
    found = set()
    for process in run.family():
        try:
            command = " ".join(process.cmdline())
            sockets = [each.laddr for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN]
        except psutil.Error:
            continue
        found |= {(address.ip, address.port, command[-200:]) for address in sockets}
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
