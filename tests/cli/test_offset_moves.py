"""``penstock offset ack``, ``rewind`` and ``resume``: what an operator may do, what is refused, what is on record."""

from __future__ import annotations

import fcntl
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.cli._support.exit_codes import Exit
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, RouteState, Settlement, sqlite_url
from tests.cli.stops import Shop, order, shop


@pytest.fixture(scope="module")
def first_halted(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    project = shop(tmp_path_factory.mktemp("shop"))
    assert project.penstock("run", "--step", "warehouse", "--yes").code == Exit.UNFINISHED
    return project


@pytest.fixture
def halted(first_halted: Shop, tmp_path: Path) -> Shop:
    """The route stands before the seventh order. Each test has a copy."""
    shutil.copytree(first_halted.folder, tmp_path, dirs_exist_ok=True)
    return Shop(tmp_path)


def deliver(project: Shop) -> None:
    assert project.penstock("run", "--step", "warehouse", "--yes").code == Exit.OK


def an_engine_runs(project: Shop) -> None:
    """As far as anybody can see: this process is it, under another number."""
    lock = Layout(project.folder / "data").run / "engine.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(str(os.getppid()))


def note(project: Shop, state: RouteState) -> None:
    ledger = Ledger.open(sqlite_url(Layout(project.folder / "data").ledger), "shop")
    ledger.set_state("warehouse", state)
    ledger.close()


def state(project: Shop) -> Any:
    warehouse, _ = project.json("status")["routes"]
    return warehouse["state"]


# Before: what an operator sees


def test_status_says_what_stopped_the_route_and_how_to_go_on(halted: Shop) -> None:
    warehouse, audit = halted.json("status")["routes"]
    assert (warehouse["state"], warehouse["lag"], audit["state"]) == ("halted", 4, "new")
    assert (warehouse["halted_at"]["partition"], warehouse["halted_at"]["offset"]) == (0, 6)
    assert "stopped before offset 6 of partition 0: destination: " in warehouse["message"]
    assert "CHECK constraint failed" in warehouse["message"]
    assert "penstock offset ack warehouse 6 --partition 0" in warehouse["message"]
    shown = halted.penstock("status").out
    assert ["warehouse", "halted", "6", "6"] in [line.split()[:4] for line in shown.splitlines()]
    assert "penstock offset resume warehouse" in shown.replace("\n", " ")


def test_the_doctor_sees_it_too(halted: Shop) -> None:
    (finding,) = [found for found in halted.json("doctor") if "stopped before offset 6" in found["found"]]
    assert (finding["subject"], finding["verdict"]) == ("route warehouse", "warn")


def test_the_record_can_be_looked_at_where_it_is(halted: Shop) -> None:
    halt = halted.json("offset", "show", "warehouse")["halted_at"]
    assert (halt["partition"], halt["offset"], halt["step"], halt["code"]) == (0, 6, "destination", "refused")
    (record,) = halted.lines("log", "show", "6")
    assert '"amount": -7' in record["data"]
    assert "halted at 0:6" in halted.penstock("offset", "show", "warehouse").err


# Acknowledging


def test_an_acknowledged_record_is_skipped_and_the_route_goes_on(halted: Shop) -> None:
    done = halted.json("offset", "ack", "warehouse", "6", "--reason", "a test order")
    assert (done["partition"], done["first"], done["last"], done["records"]) == (0, 6, 6, 1)
    assert (done["committed"], done["resumes"]) == (7, False)
    deliver(halted)
    assert halted.loaded() == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    warehouse, _ = halted.json("status")["routes"]
    assert (warehouse["in"], warehouse["loaded"], warehouse["skipped"]) == (10, 9, 1)
    assert warehouse["skipped_by"] == {"acknowledged": 1}
    (act,) = halted.json("offset", "show", "warehouse")["interventions"]
    assert (act["act"], act["first"], act["last"], act["reason"]) == ("ack", 6, 6, "a test order")
    assert "@" in act["who"]
    assert act["at"]


def test_records_ahead_of_the_route_are_passed_over_later(halted: Shop) -> None:
    said = halted.penstock("offset", "ack", "warehouse", "8..9")
    assert said.out == "warehouse: 2 records acknowledged at 8..9 of partition 0; the route stands at 6\n"
    assert "it will skip those that are not already written" in said.err
    assert state(halted) == "halted"
    assert halted.json("offset", "show", "warehouse")["acknowledged"] == [{"partition": 0, "first": 8, "last": 9}]
    assert halted.json("offset", "ack", "warehouse", "6")["committed"] == 7
    deliver(halted)
    assert halted.loaded() == [1, 2, 3, 4, 5, 6, 8]
    assert halted.committed() == 10
    assert halted.json("offset", "show", "warehouse")["acknowledged"] == []


def test_acknowledging_up_to_what_was_acknowledged_ahead_takes_both(halted: Shop) -> None:
    halted.json("offset", "ack", "warehouse", "8..9")
    assert halted.json("offset", "ack", "warehouse", "6..7")["committed"] == 10
    warehouse, _ = halted.json("status")["routes"]
    assert (warehouse["skipped"], warehouse["lag"]) == (4, 0)


def test_an_open_end_is_everything_that_is_there(halted: Shop) -> None:
    done = halted.json("offset", "ack", "warehouse", "6..")
    assert (done["last"], done["records"], done["committed"]) == (9, 4, 10)


@pytest.mark.parametrize(
    ("offsets", "code", "said"),
    [
        ("3", Exit.PROBLEMS, "is past offset 3"),
        ("6..10", Exit.USAGE, "holds 0..9"),
        ("99..", Exit.USAGE, "is not there yet"),
        ("six", Exit.USAGE, "not a range of offsets"),
        ("9..6", Exit.USAGE, "ends before it begins"),
    ],
)
def test_offsets_that_cannot_be_acknowledged(halted: Shop, offsets: str, code: int, said: str) -> None:
    ran = halted.penstock("offset", "ack", "warehouse", offsets)
    assert ran.code == code
    assert said in ran.err
    assert halted.committed() == 6


def test_a_range_that_begins_behind_the_route_counts_from_where_it_stands(halted: Shop) -> None:
    done = halted.json("offset", "ack", "warehouse", "2..6")
    assert (done["first"], done["records"], done["committed"]) == (6, 1, 7)


def test_of_several_partitions_one_must_be_named(tmp_path: Path) -> None:
    project = shop(tmp_path)
    text = project.config.read_text()
    text = text.replace("from: web\n", "from: [web, shop]\n")
    project.config.write_text(text.replace("routes:", "  shop: {type: file, path: ./shop.ndjson}\nroutes:"))
    project.append(order(21), source="shop")
    ran = project.penstock("offset", "ack", "warehouse", "0")
    assert ran.code == Exit.USAGE
    assert "it reads: 0 (web), 1 (shop)" in ran.err
    assert project.json("offset", "ack", "warehouse", "0", "--partition", "1")["partition"] == 1
    assert project.penstock("offset", "ack", "warehouse", "0", "--partition", "7").code == Exit.USAGE
    assert project.penstock("offset", "rewind", "warehouse", "--to", "0").code == Exit.USAGE


# While the pipeline runs


def test_a_route_at_work_is_told_what_is_done_and_moves_by_itself(halted: Shop) -> None:
    an_engine_runs(halted)
    note(halted, RouteState.RUNNING)
    ran = halted.penstock("offset", "ack", "warehouse", "6")
    assert ran.code == Exit.OK
    assert "it will skip those that are not already written" in ran.err
    assert halted.penstock("offset", "resume", "warehouse").code == Exit.PROBLEMS
    assert halted.penstock("offset", "list").code == Exit.OK
    assert halted.committed() == 6


def test_a_halted_route_may_be_moved_while_the_others_run(halted: Shop) -> None:
    an_engine_runs(halted)
    assert halted.json("offset", "ack", "warehouse", "6")["resumes"] is True
    assert state(halted) == "starting"


def test_a_halted_route_is_resumed_as_it_is(halted: Shop) -> None:
    an_engine_runs(halted)
    assert halted.json("offset", "resume", "warehouse")["resumes"] is True
    assert state(halted) == "starting"
    assert halted.committed() == 6


def test_a_rewind_is_refused_while_the_engine_runs(halted: Shop) -> None:
    an_engine_runs(halted)
    ran = halted.penstock("offset", "rewind", "warehouse", "--to", "2", "--yes")
    assert ran.code == Exit.PROBLEMS
    assert "retention" in ran.err
    assert halted.committed() == 6


# Rewinding


def test_a_rewound_route_delivers_again(halted: Shop) -> None:
    halted.fix()
    deliver(halted)
    said = halted.penstock("offset", "rewind", "warehouse", "--to", "7", "--yes", "--reason", "prices were wrong")
    assert said.out == "warehouse: 3 records will be delivered again at the next start\n"
    assert halted.committed() == 7
    deliver(halted)
    assert halted.loaded() == [1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9, 10, 10]
    act = halted.json("offset", "show", "warehouse")["interventions"][0]
    assert (act["act"], act["first"], act["last"], act["reason"]) == ("rewind", 7, 9, "prices were wrong")
    warehouse, _ = halted.json("status")["routes"]
    assert (warehouse["in"], warehouse["loaded"], warehouse["adds_up"]) == (13, 13, True)


def test_with_a_key_nothing_is_double_after_a_rewind(halted: Shop) -> None:
    halted.fix()
    halted.config.write_text(halted.config.read_text().replace("table: orders,", "table: orders, primary_key: [id],"))
    deliver(halted)
    halted.json("offset", "rewind", "warehouse", "--to", "0", "--yes")
    deliver(halted)
    assert halted.loaded() == list(range(1, 11))


@pytest.mark.parametrize(("to", "start"), [("2026-01-31T09:04", 4), ("2026-01-31", 0), ("2026-01-31T09:04:30Z", 5)])
def test_a_route_is_moved_back_to_a_time(halted: Shop, to: str, start: int) -> None:
    (moved,) = halted.json("offset", "rewind", "warehouse", "--to", to, "--yes")["rewound"]
    assert (moved["partition"], moved["source"], moved["from"], moved["before"]) == (0, "web", start, 6)
    assert halted.committed() == start


@pytest.mark.parametrize("to", [("--to", "1", "--partition", "1"), ("--to", "2026-01-31T09:10")])
def test_where_the_last_record_wins_all_partitions_go_back_to_one_moment(tmp_path: Path, to: tuple[str, ...]) -> None:
    """By an offset of one partition, and by a time that only records of the other one are not before."""
    project = shop(tmp_path)
    project.config.write_text(
        project.config.read_text()
        .replace("from: web\n", "from: [web, shop]\n")
        .replace("routes:", "  shop: {type: file, path: ./shop.ndjson}\nroutes:")
        .replace("table: orders,", "table: orders, primary_key: [id],")
    )
    project.append(order(20), source="shop")
    # After it in the log, before it by what they say of their time.
    project.append(order(21), source="shop", first=10)
    project.append(order(22), order(23), source="web", first=-100)
    pipeline = project.open()
    end = pipeline.log.bounds(0).end
    pipeline.ledger.open_route("warehouse", {0: 0, 1: 0})
    batch = pipeline.ledger.begin("warehouse", {0: (0, end), 1: (0, 2)})
    assert batch is not None
    pipeline.ledger.commit(batch, Settlement(end + 2, end + 2))
    pipeline.ledger.close()
    ran = project.penstock("offset", "rewind", "warehouse", *to, "--yes")
    assert ran.code == 0
    assert f"reads partition 0 (web) again from {end - 2} to {end - 1}" in ran.err
    assert "reads partition 1 (shop) again from 1 to 1" in ran.err
    assert ("all partitions go back to one moment" in ran.err) == ("--partition" in to)


def test_a_time_since_which_nothing_was_read_moves_nothing(halted: Shop) -> None:
    ran = halted.penstock("offset", "rewind", "warehouse", "--to", "1h", "--yes")
    assert (ran.code, ran.out) == (0, "")
    assert "has read nothing since then" in ran.err
    assert halted.json("offset", "show", "warehouse")["halted_at"] is not None


@pytest.mark.parametrize("words", [("rewind", "warehouse", "--to", "2", "--yes"), ("ack", "warehouse", "6")])
def test_an_engine_that_starts_at_this_moment_is_noticed(halted: Shop, words: tuple[str, ...]) -> None:
    lock = Layout(halted.folder / "data").run / "engine.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        # It has the lock, and has not said yet who it is.
        fcntl.flock(file, fcntl.LOCK_EX)
        ran = halted.penstock("offset", *words)
    assert ran.code == Exit.PROBLEMS
    assert "PEN-ENG-001" in ran.err
    assert halted.committed() == 6
    assert halted.penstock("offset", *words).code == Exit.OK
    assert halted.committed() != 6


def test_a_rewind_asks_first(halted: Shop) -> None:
    ran = halted.penstock("offset", "rewind", "warehouse", "--to", "2", answer="n\n")
    assert ran.code == Exit.PROBLEMS
    assert "warehouse reads partition 0 (web) again from 2 to 5" in ran.err
    assert "Deliver 4 records again?" in ran.err
    assert halted.committed() == 6
    assert halted.penstock("offset", "rewind", "warehouse", "--to", "2", answer="y\n").code == Exit.OK
    assert halted.committed() == 2


@pytest.mark.parametrize(
    ("to", "code", "said"),
    [
        ("8", Exit.PROBLEMS, "offset ack warehouse 6..7"),
        ("70000", Exit.PROBLEMS, "offset ack warehouse 6..9"),
        ("yesterday", Exit.USAGE, "neither a duration"),
        ("-3", Exit.USAGE, "-3"),
    ],
)
def test_places_that_a_route_cannot_be_moved_back_to(halted: Shop, to: str, code: int, said: str) -> None:
    ran = halted.penstock("offset", "rewind", "warehouse", "--to", to, "--yes")
    assert ran.code == code
    assert said in ran.err


def test_a_route_that_has_read_everything_is_not_sent_on_to_acknowledge_what_is_to_come(halted: Shop) -> None:
    halted.fix()
    deliver(halted)
    ran = halted.penstock("offset", "rewind", "warehouse", "--to", "11", "--yes")
    assert ran.code == Exit.PROBLEMS
    assert "offset ack" not in ran.err
    assert "It has read all that is there" in ran.err


def test_a_rewind_to_where_the_route_stands_does_nothing_and_is_not_on_record(halted: Shop) -> None:
    halted.fix()
    deliver(halted)
    ran = halted.penstock("offset", "rewind", "warehouse", "--to", "10")
    assert (ran.code, ran.out) == (Exit.OK, "")
    assert "stands at 10: there is nothing to do" in ran.err
    shown = halted.json("offset", "show", "warehouse")
    assert shown["interventions"] == []
    pipeline = halted.open()
    assert pipeline.ledger.generation("warehouse") == 0
    pipeline.ledger.close()


def test_what_was_acknowledged_ahead_is_delivered_after_a_rewind(halted: Shop) -> None:
    halted.fix()
    halted.json("offset", "ack", "warehouse", "8..9")
    ran = halted.penstock("offset", "rewind", "warehouse", "--to", "2", answer="y\n")
    assert "offsets 8..9 of partition 0 are no longer acknowledged" in ran.err
    assert halted.json("offset", "show", "warehouse")["acknowledged"] == []
    deliver(halted)
    assert halted.loaded() == [1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 10]


def test_a_rewind_to_where_the_route_stands_takes_back_what_was_acknowledged_ahead(halted: Shop) -> None:
    halted.json("offset", "ack", "warehouse", "8..9")
    (moved,) = halted.json("offset", "rewind", "warehouse", "--to", "6", "--yes")["rewound"]
    assert (moved["from"], moved["before"], moved["acknowledged"]) == (6, 6, [{"first": 8, "last": 9}])
    assert halted.json("offset", "show", "warehouse")["acknowledged"] == []


def test_a_rewind_of_a_mirror_says_what_makes_it_exact(halted: Shop) -> None:
    halted.config.write_text(halted.config.read_text().replace("table: orders,", "load: mirror,"))
    ran = halted.penstock("offset", "rewind", "warehouse", "--to", "2", answer="n\n")
    assert "Empty the tables and rewind to the start of the log" in ran.err
    assert "mirrors tables" in halted.json("offset", "rewind", "warehouse", "--to", "2", "--yes")["warning"]
    assert "warning" not in halted.json("offset", "rewind", "audit", "--to", "0", "--yes")


def test_what_the_log_no_longer_has_is_not_promised(tmp_path: Path) -> None:
    project = shop(tmp_path)
    project.config.write_text("log: {segment_bytes: 4KB, retention: {max_age: 1ms}}\n" + project.config.read_text())
    project.append(*({"id": n, "amount": n, "pad": f"{n:0500d}"} for n in range(11, 60)), first=10)
    project.json("offset", "ack", "warehouse", "6")
    deliver(project)
    pipeline = project.open()
    pipeline.log.apply_retention({0: 40}, datetime.now(UTC) + timedelta(days=1))
    oldest = pipeline.log.bounds(0).oldest
    assert oldest > 0
    ran = project.penstock("offset", "rewind", "warehouse", "--to", "0", "--yes")
    assert ran.code == Exit.PROBLEMS
    assert f"it begins at {oldest}" in ran.err
    (moved,) = project.json("offset", "rewind", "warehouse", "--to", "2026-01-31", "--yes")["rewound"]
    assert (moved["from"], moved["gone"]) == (oldest, True)


def test_a_rewind_to_where_a_batch_under_way_begins_keeps_it_and_takes_acknowledgements_back(halted: Shop) -> None:
    """What of the batch is written is known by its number: it is not written again."""
    ledger = Ledger.open(sqlite_url(Layout(halted.folder / "data").ledger), "shop")
    ledger.begin("warehouse", {0: (6, 10)})
    assert halted.json("offset", "ack", "warehouse", "6")["committed"] == 6
    begun = ledger.standing("warehouse").pending
    assert begun is not None
    halted.json("offset", "rewind", "warehouse", "--to", "6", "--partition", "0", "--yes")
    assert ledger.standing("warehouse").pending == begun
    assert halted.json("offset", "show", "warehouse")["acknowledged"] == []
    ledger.close()


@pytest.mark.parametrize("words", [["ack", "nowhere", "3"], ["rewind", "nowhere", "--to", "3"], ["resume", "nowhere"]])
def test_a_route_that_does_not_exist(halted: Shop, words: list[str]) -> None:
    ran = halted.penstock("offset", *words)
    assert ran.code == Exit.USAGE
    assert "there is no route 'nowhere'" in ran.err


def test_a_route_that_is_not_halted_is_not_resumed(tmp_path: Path) -> None:
    ran = shop(tmp_path).penstock("offset", "resume", "warehouse")
    assert ran.code == Exit.PROBLEMS
    assert "is not halted: it is new" in ran.err
