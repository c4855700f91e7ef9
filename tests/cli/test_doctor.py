"""``penstock doctor``: what is found, and what to do about it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, RouteState, sqlite_url
from penstock.engine.operate.doctor import Verdict, check_address, check_java, check_python, check_space, java_version
from penstock.log.format.log_files import segment_path
from tests.cli.projects import CONFIG, Project
from tests.support.ports import free_port


def findings(project: Project) -> dict[str, dict[str, str]]:
    return {found["subject"]: found for found in json.loads(project.penstock("doctor", "--json").out)}


def test_a_healthy_pipeline(shop: Project) -> None:
    (shop.folder / "data").chmod(0o700)
    ran = shop.penstock("doctor", "--json")
    assert ran.code == 0
    found = {each["subject"]: each for each in json.loads(ran.out)}
    assert {name: each for name, each in found.items() if each["verdict"] != "ok"} == {}
    assert found["log 0"]["found"] == "web: 0..7"
    assert "warehouse" in found["ledger"]["found"]
    assert {"python", "java", "config", "data_dir", "engine", "route warehouse", "route audit"} <= set(found)
    assert "web: 0..7" in shop.penstock("doctor").out


def test_a_pipeline_before_its_first_run(fresh: Project) -> None:
    assert fresh.penstock("doctor").code == 0
    found = findings(fresh)
    assert "first run" in found["log"]["found"]
    assert "first run" in found["ledger"]["found"]
    assert not (fresh.folder / "data").exists()


def test_a_wrong_config_is_a_finding(fresh: Project) -> None:
    fresh.config.write_text(CONFIG.replace("routes:", "rutes:"))
    ran = fresh.penstock("doctor", "--json")
    assert ran.code == 1
    found = json.loads(ran.out)[-1]
    assert (found["subject"], found["verdict"]) == ("config", "fail")
    assert "rutes" in found["found"]


def test_bytes_behind_the_last_append_are_reported(shop: Project) -> None:
    with segment_path(Layout(shop.folder / "data").log / "0", 0).open("ab") as segment:
        segment.write(b"half a fra")
    found = findings(shop)["log 0"]
    assert found["verdict"] == "warn"
    assert "10 bytes after" in found["found"]


def test_a_damaged_segment_is_a_failure(shop: Project) -> None:
    path = segment_path(Layout(shop.folder / "data").log / "0", 0)
    content = bytearray(path.read_bytes())
    content[-20] ^= 0xFF
    path.write_bytes(content)
    ran = shop.penstock("doctor")
    assert ran.code == 1
    assert findings(shop)["log 0"]["verdict"] == "fail"


def test_a_log_that_is_older_than_the_ledger_is_a_failure(shop: Project) -> None:
    pipeline = shop.open()
    batch = pipeline.ledger.begin("warehouse", {0: (6, 99)})
    assert batch is not None
    from penstock.engine.ledger import Settlement

    pipeline.ledger.commit(batch, Settlement(93, 93))
    pipeline.ledger.close()
    ran = shop.penstock("doctor", "--json")
    assert ran.code == 1
    (failure,) = [each for each in json.loads(ran.out) if each["verdict"] == "fail"]
    assert "up to offset 99, but this log has other records, or none, from offset 8 on" in failure["found"]


def test_a_route_that_crashed_is_a_failure(shop: Project) -> None:
    ledger = Ledger.open(sqlite_url(Layout(shop.folder / "data").ledger), "shop")
    ledger.set_state("warehouse", RouteState.CRASHED, "ValueError: a broken wheel")
    ledger.close()
    ran = shop.penstock("doctor", "--json")
    assert ran.code == 1
    (found,) = [each for each in json.loads(ran.out) if each["verdict"] == "fail"]
    assert (found["subject"], found["found"]) == ("route warehouse", "it crashed: ValueError: a broken wheel")


def test_a_route_that_retries_says_why(shop: Project) -> None:
    ledger = Ledger.open(sqlite_url(Layout(shop.folder / "data").ledger), "shop")
    ledger.set_state("warehouse", RouteState.RETRYING, "PEN-DST-023: it was not written: No space left on device.")
    ledger.close()
    ran = shop.penstock("doctor", "--json")
    found = [each["found"] for each in json.loads(ran.out) if each["subject"] == "route warehouse"]
    assert "its last try failed: PEN-DST-023: it was not written: No space left on device." in found


def test_a_database_that_is_away_is_to_be_started(fresh: Project) -> None:
    away = f"postgresql://penstock@127.0.0.1:{free_port()}/penstock"
    fresh.config.write_text(
        f"name: shop\nsources: {{db: {{type: postgres, url: '{away}', tables: [public.t]}}}}\n"
        f"routes: {{warehouse: {{from: db, to: {{type: postgres, url: '{away}', load: mirror}}}}}}\n"
    )
    found = findings(fresh)
    for subject in ("source db", "route warehouse"):
        assert found[subject]["verdict"] == "fail"
        assert found[subject]["fix"].startswith("Start it, or fix its address")


@contextmanager
def answering(status: int) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "verdict"), [(200, Verdict.OK), (404, Verdict.FAIL)])
def test_a_taken_address_must_answer_as_a_collector(status: int, verdict: Verdict) -> None:
    with answering(status) as address:
        assert check_address("source web", address).verdict is verdict


def test_a_collector_that_answers_while_the_engine_does_not_run_may_be_anothers() -> None:
    with answering(200) as address:
        assert check_address("source web", address, runs=False).verdict is Verdict.WARN


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "[::1]"])
def test_a_free_address_is_fine(host: str) -> None:
    assert check_address("source web", f"{host}:{free_port()}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_391"', 8),
        ("no java here", None),
    ],
)
def test_versions_of_java_are_read(text: str, version: int | None) -> None:
    assert java_version(text) == version


@pytest.mark.parametrize(("version", "verdict"), [("11.0.2", Verdict.FAIL), ("17.0.1", Verdict.OK)])
def test_java_is_looked_for_where_spark_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, verdict: Verdict
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java().verdict is verdict
    java.unlink()
    assert check_java().verdict is Verdict.FAIL


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = check_java()
    assert found.verdict is Verdict.FAIL
    assert "17" in found.fix


def test_an_old_python() -> None:
    assert check_python((3, 10)).verdict is Verdict.FAIL
    assert check_python((3, 11)).verdict is Verdict.OK


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert check_space(blocked / "data").verdict is Verdict.FAIL
    assert check_space(tmp_path / "new" / "data").verdict is Verdict.OK
