"""The server is put back to an earlier state: its history is another than the log's, however far it has gone since."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event

import pytest

from penstock.errors import PenstockError
from penstock.testing.waiting import eventually
from tests.sources.postgres.rig import Rig
from tests.support.postgres import LOGICAL, Server

RESTORED: Mapping[str, str] = {**LOGICAL, "restore_command": "false"}
NOISE = (
    "CREATE TABLE other.noise (t text)",
    "INSERT INTO other.noise SELECT repeat('x', 1000) FROM generate_series(1, 2000)",
)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.start(settings=LOGICAL)
    yield server
    server.kill()
    server.remove()


@pytest.fixture
def rig(server: Server, tmp_path: Path) -> Rig:
    rig = Rig(server.url, tmp_path)
    rig.ask("CREATE SCHEMA other", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 9)")
    rig.catch_up()
    rig.ask("INSERT INTO t VALUES (10)")
    rig.catch_up()
    return rig


def copy_of(server: Server) -> Path:
    server.stop()
    copy = server.copy_files()
    server.start(settings=LOGICAL)
    return copy


def put_back(server: Server, copy: Path) -> None:
    server.stop()
    server.put_back(copy)
    server.start(settings=LOGICAL)


def refusal(rig: Rig) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        rig.source().run(Event(), once=True)
    return caught.value


@pytest.mark.parametrize("since", [(), ("INSERT INTO t VALUES (12)",)], ids=["nothing for us", "other changes"])
@pytest.mark.parametrize("known_by", ["summary", "summary of an earlier release"])
def test_an_older_server_that_has_gone_on_is_refused(
    rig: Rig, server: Server, since: tuple[str, ...], known_by: str
) -> None:
    copy = copy_of(server)
    rig.ask("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (11)")
    rig.catch_up()
    put_back(server, copy)
    rig.ask(*since, *NOISE, *(statement.replace("12", "13") for statement in since))
    summary = rig.folder / "state" / "positions.json"
    if known_by != "summary":
        content = json.loads(summary.read_text())
        del content["timeline"], content["taken"]["time"]
        summary.write_text(json.dumps(content))
    before = rig.log_end()
    error = refusal(rig)
    assert error.code == "PEN-PGS-013"
    assert "that it does not have" in error.what
    assert refusal(rig).code == "PEN-PGS-013", "it is not forgotten by the next start"
    assert rig.log_end() == before
    rig.catch_up(slot="another")
    assert rig.is_mirrored("public.t")


def test_the_tables_of_an_older_server_are_copied_again_if_the_summary_is_lost_too(rig: Rig, server: Server) -> None:
    copy = copy_of(server)
    rig.ask("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (11)")
    rig.catch_up()
    put_back(server, copy)
    rig.ask("INSERT INTO t VALUES (12)", *NOISE)
    (rig.folder / "state" / "positions.json").unlink()
    rig.catch_up()
    assert rig.is_mirrored("public.t")
    rig.ask("INSERT INTO t VALUES (13)")
    rig.catch_up()
    assert rig.is_mirrored("public.t")


def make_it_send_again(rig: Rig, server: Server) -> None:
    """Let the server forget what was confirmed, so that it sends the newest transaction again. It writes that down from
    time to time, so it may not forget at once."""
    confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots"
    for number in range(100, 120):
        before = rig.ask(confirmed)
        server.kill()
        server.start(settings=LOGICAL)
        if rig.ask(confirmed) != before:
            return
        rig.ask(f"INSERT INTO t VALUES ({number})")
        rig.catch_up()
    raise AssertionError("the server forgets nothing")


def test_another_transaction_in_the_same_place_is_known_by_its_time(rig: Rig, server: Server) -> None:
    make_it_send_again(rig, server)
    summary = rig.folder / "state" / "positions.json"
    content = json.loads(summary.read_text())
    content["taken"]["time"] += 1
    summary.write_text(json.dumps(content))
    assert "another time" in refusal(rig).what
    content["taken"]["time"] -= 1
    summary.write_text(json.dumps(content))
    assert rig.catch_up() == []


def test_an_older_server_that_has_everything_that_the_log_has_goes_on(rig: Rig, server: Server) -> None:
    copy = copy_of(server)
    rig.ask("CREATE TABLE other.more (id int)", "INSERT INTO other.more SELECT generate_series(1, 20000)")
    rig.catch_up()
    put_back(server, copy)
    rig.ask(*NOISE, "INSERT INTO t VALUES (11)")
    rig.catch_up()
    assert rig.is_mirrored("public.t")


def test_a_server_on_a_new_timeline_goes_on_if_that_began_after_what_the_log_has(rig: Rig, server: Server) -> None:
    server.stop()
    restart_on_a_new_timeline(rig, server)
    assert rig.ask("SELECT timeline_id FROM pg_control_checkpoint()") == [(2,)]
    rig.ask("INSERT INTO t VALUES (11)")
    rig.catch_up()
    assert rig.is_mirrored("public.t")


def restart_on_a_new_timeline(rig: Rig, server: Server) -> None:
    """It takes questions before it has recovered, and nothing else."""
    server.recover_at_start()
    server.start(settings=RESTORED)
    eventually(lambda: rig.ask("SELECT pg_is_in_recovery()") == [(False,)], "the server has recovered")


def test_a_timeline_that_left_before_what_the_log_has_is_refused(rig: Rig, server: Server) -> None:
    copy = copy_of(server)
    rig.ask("INSERT INTO t VALUES (11)")
    rig.catch_up()
    server.stop()
    server.put_back(copy)
    restart_on_a_new_timeline(rig, server)
    rig.ask(*NOISE)
    error = refusal(rig)
    assert error.code == "PEN-PGS-013"
    assert "its timeline 2 left the timeline 1 at" in error.what


def test_a_timeline_that_does_not_come_from_the_one_of_the_log_is_refused(rig: Rig) -> None:
    summary = rig.folder / "state" / "positions.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "timeline": 5}))
    assert "does not come from the timeline 5" in refusal(rig).what
