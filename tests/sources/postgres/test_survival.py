"""Killed at the worst moments, in the copy and after it, the source loses nothing and doubles nothing."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from penstock.record import Header, Mode, Op
from penstock.testing.waiting import HANG, eventually
from tests.sources.postgres.rig import Rig
from tests.support.postgres import LOGICAL, Server

KILLED = -9
TABLES = ("public.a", "public.b", "public.c")
PREPARE = [
    "CREATE TABLE a (id int PRIMARY KEY, v text)",
    "CREATE TABLE b (id int PRIMARY KEY, v text)",
    "CREATE TABLE c (id int, v text)",
    "ALTER TABLE c REPLICA IDENTITY FULL",
    *(f"INSERT INTO {t} SELECT i, repeat('x', 100) FROM generate_series(1, 2000) i" for t in "abc"),
]
CHANGE = [
    "UPDATE a SET v = 'changed' WHERE id <= 100",
    "DELETE FROM b WHERE id <= 50",
    "INSERT INTO c SELECT i, 'again' FROM generate_series(1, 100) i",
    "UPDATE c SET v = 'late' WHERE id % 100 = 0",
    "UPDATE a SET id = id + 100000 WHERE id <= 10",
]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Each fault happens once, however often the source is started again."""
    (tmp_path / "faults").mkdir()
    monkeypatch.setenv("PENSTOCK_FAULTS_ONCE", str(tmp_path / "faults"))
    return monkeypatch


def die(rig: Rig, **options: object) -> None:
    with rig.child(**options) as process:  # type: ignore[arg-type]
        process.join(HANG)
        assert process.exitcode == KILLED


@pytest.mark.parametrize(
    "point",
    [
        "postgres.slot.made",
        "log.append.before_write",
        "log.append.after_fsync",
        "postgres.copy.written",
        "postgres.copy.written@2",
        "postgres.copy.whole@2",
        "postgres.copy.complete@2",
        "log.append.before_fsync@4",
        "postgres.copy.complete@3",
    ],
)
def test_killed_while_copying(rig: Rig, faults: pytest.MonkeyPatch, point: str) -> None:
    rig.ask(*PREPARE)
    faults.setenv("PENSTOCK_FAULTS", f"{point}=kill")
    die(rig, workers=1)
    complete = rig.completed()
    rig.ask(*CHANGE)  # between the two snapshots
    with rig.child() as process:
        eventually(lambda: rig.is_mirrored(*TABLES), "all tables")
        rig.ask("DELETE FROM a WHERE id % 2 = 0", "UPDATE c SET v = 'last' WHERE id < 10")
        eventually(lambda: rig.is_mirrored(*TABLES), "the changes")
        process.terminate()
        process.join(HANG)
        assert process.exitcode == 0
    again = [r.namespace for r in rig.records() if r.op is Op.COMMAND]
    assert not complete & set(again), "a table that was complete was copied again"
    copied = [r for r in rig.records() if r.mode is Mode.COPY and r.namespace in complete]
    assert len(copied) == 2000 * len(complete)


@pytest.mark.parametrize(
    "point",
    [
        "postgres.stream.prepared",
        "log.append.before_write",
        "log.append.before_fsync",
        "log.append.after_fsync",
        "postgres.stream.appended",
        "postgres.stream.appended@2",
        "postgres.stream.appended@5",
        "postgres.stream.confirmed@2",
    ],
)
def test_killed_while_following(rig: Rig, faults: pytest.MonkeyPatch, point: str) -> None:
    rig.ask(*PREPARE)
    rig.catch_up()
    # One transaction of many buffers, so that the kill is in the middle of it, and several small ones.
    rig.ask(
        "BEGIN", *CHANGE, "INSERT INTO a SELECT i, repeat('y', 5000) FROM generate_series(20001, 24000) i", "COMMIT"
    )
    rig.ask("DELETE FROM a WHERE id BETWEEN 20050 AND 20100", "INSERT INTO c VALUES (1, 'x'), (1, 'x')")
    faults.setenv("PENSTOCK_FAULTS", f"{point}=kill")
    die(rig)
    rig.ask("INSERT INTO c VALUES (2, 'y')")
    rig.catch_up()
    assert rig.is_mirrored(*TABLES)  # the mirror refuses doubles and gaps
    places = [json.loads(r.headers[Header.POSITION]) for r in rig.records() if r.mode is Mode.SYNC]
    named = [(place["commit"], place["number"]) for place in places]
    assert len(named) == len(set(named))


def test_killed_again_and_again_under_load(rig: Rig) -> None:
    rig.ask(*PREPARE)
    done = Event()

    def load() -> None:
        for number in count(1):
            rig.ask(
                f"INSERT INTO a VALUES ({100_000 + number}, 'new')",
                f"UPDATE b SET v = v || '{number}' WHERE id % 50 = {number % 50}",
                f"UPDATE c SET v = '{number}' WHERE id = {number % 2000}",
                f"DELETE FROM a WHERE id = {number * 3}",
            )
            if done.wait(0.02):
                return

    loader = Thread(target=load)
    loader.start()
    try:
        for _ in range(4):
            before = len(rig.records())
            with rig.child() as process:
                eventually(lambda known=before: len(rig.records()) > known + 100, "more records")  # type: ignore[misc]
                process.kill()
    finally:
        done.set()
        loader.join()
    rig.catch_up()
    assert rig.is_mirrored(*TABLES)


def test_the_slot_is_confirmed_only_for_what_is_in_the_log(rig: Rig, faults: pytest.MonkeyPatch) -> None:
    rig.ask(*PREPARE)
    rig.catch_up()
    rig.ask("INSERT INTO a VALUES (5000, 'x')")
    confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'penstock'"
    before = rig.ask(confirmed)
    faults.setenv("PENSTOCK_FAULTS", "log.append.before_write=kill")
    die(rig)
    assert rig.ask(confirmed) == before
    rig.catch_up()
    after = rig.ask(f"SELECT confirmed_flush_lsn > '{before[0][0]}'::pg_lsn FROM pg_replication_slots")
    assert after == [(True,)]


def test_a_server_with_nothing_for_us_need_not_keep_its_log(rig: Rig) -> None:
    rig.ask(*PREPARE, "CREATE SCHEMA other", "CREATE TABLE other.noise (id int)")
    with rig.child():
        eventually(lambda: rig.completed() == set(TABLES), "the copy")
        rig.ask("INSERT INTO other.noise SELECT generate_series(1, 20000)")
        (end,) = rig.ask("SELECT pg_current_wal_lsn()")[0]
        eventually(
            lambda: rig.ask(f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots")[0][0],
            "confirmed past the changes of others",
        )


def test_a_log_that_syncs_on_a_clock_is_confirmed_later(rig: Rig) -> None:
    rig.log_options = {"fsync": {"interval": "1s"}}
    rig.ask(*PREPARE)
    with rig.child():
        eventually(lambda: rig.completed() == set(TABLES), "the copy")
        rig.ask(*CHANGE)
        (end,) = rig.ask("SELECT pg_current_wal_lsn()")[0]
        eventually(
            lambda: rig.ask(f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots")[0][0], "confirmed"
        )
    assert rig.is_mirrored(*TABLES)


class TestTheServerGoesAway:
    @pytest.fixture
    def server(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        server = Server()
        server.start(settings=LOGICAL)
        yield server
        server.kill()
        server.remove()

    @pytest.fixture
    def rig(self, server: Server, tmp_path: Path) -> Rig:
        return Rig(server.url, tmp_path)

    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_while_copying(self, rig: Rig, server: Server, how: str) -> None:
        rig.ask(*PREPARE, "INSERT INTO a SELECT i, repeat('x', 5000) FROM generate_series(10000, 25000) i")
        other = psycopg.connect(rig.url)  # it ends with the server
        with rig.child(workers=1) as process:
            eventually(lambda: rig.log_end() > 0, "the copy has begun", every=0.002)
            other.execute("LOCK TABLE c")
            eventually(
                lambda: rig.completed() == {"public.a", "public.b"}, "two tables, and the third waits for a lock"
            )
            getattr(server, how)()
            server.start(settings=LOGICAL)
            rig.ask(*CHANGE)
            eventually(lambda: rig.is_mirrored(*TABLES), "all tables")
            assert process.is_alive()
        assert [r.namespace for r in rig.records() if r.op is Op.COMMAND] == []

    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_while_following(self, rig: Rig, server: Server, how: str) -> None:
        rig.ask(*PREPARE)
        with rig.child() as process:
            eventually(lambda: rig.completed() == set(TABLES), "the copy")
            for _ in range(2):
                rig.ask("UPDATE a SET v = v || 'x' WHERE id < 50", "INSERT INTO c VALUES (1, 'x')")
                getattr(server, how)()
                server.start(settings=LOGICAL)
                rig.ask("DELETE FROM a WHERE id % 30 = 0", "INSERT INTO c VALUES (1, 'x')")
                eventually(lambda: rig.is_mirrored(*TABLES), "the changes")
            assert process.is_alive()

    def test_before_we_begin(self, rig: Rig, server: Server) -> None:
        rig.ask(*PREPARE)
        server.stop()
        with rig.child():
            eventually(lambda: (rig.folder / "state" / "positions.json").exists(), "the source waits")
            server.start(settings=LOGICAL)
            eventually(lambda: rig.is_mirrored(*TABLES), "all tables")


def test_a_snapshot_that_is_gone_in_the_middle_is_taken_again(rig: Rig) -> None:
    """Somebody ends the idle connection that holds it; what is complete stays, the rest comes with another."""
    rig.ask(*PREPARE)
    with rig.child() as process:
        eventually(lambda: rig.completed() == set(TABLES), "the copy")
        other = psycopg.connect(rig.url)
        other.execute("CREATE TABLE d (id int PRIMARY KEY)")
        other.execute("INSERT INTO d VALUES (1)")
        other.commit()
        other.execute("LOCK TABLE d")
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'd'::regclass"
        eventually(lambda: rig.ask(waits), "the copy waits for the lock")
        rig.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'walsender' AND datname = current_database()"
        )
        other.commit()
        other.close()
        eventually(lambda: rig.is_mirrored(*TABLES, "public.d"), "all tables")
        assert process.is_alive()
    assert [r.namespace for r in rig.records() if r.op is Op.COMMAND] == []


def test_a_full_disk_is_waited_for_and_the_server_hears_from_us_meanwhile(rig: Rig) -> None:
    rig.ask(*PREPARE)
    reader = "SELECT active_pid FROM pg_replication_slots WHERE active AND slot_name = 'penstock'"
    with rig.child() as process:
        eventually(lambda: rig.completed() == set(TABLES), "the copy")
        before = eventually(lambda: rig.ask(reader), "the stream")
        assert process.pid is not None
        (segment,) = (rig.folder / "log" / "0").glob("*.seg")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (segment.stat().st_size + 16, resource.RLIM_INFINITY))
        end = rig.log_end()
        rig.ask(*CHANGE)
        patience = time.monotonic() + 7  # the server gives up on whoever is silent for 5 s
        eventually(lambda: time.monotonic() > patience or rig.ask(reader) != before, "the server's timeout")
        assert rig.ask(reader) == before
        assert rig.log_end() == end
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        eventually(lambda: rig.is_mirrored(*TABLES), "the changes")
        assert rig.ask(reader) == before
