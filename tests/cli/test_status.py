"""``penstock status``: the accounting as people and machines see it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import Any

import pytest

from penstock.destinations.contract import TableReceipt
from penstock.engine.layout import Layout
from penstock.engine.ledger import RouteState, Settlement
from penstock.engine.processes.presence import engine_pid
from penstock.record import Record, entries
from penstock.testing.waiting import HANG
from tests.cli.processes import COMMAND
from tests.cli.projects import Project


def test_machines_get_every_count(shop: Project) -> None:
    shown = json.loads(shop.penstock("status", "--json").out)
    warehouse, audit = shown["routes"]
    counts = {name: warehouse[name] for name in ("in", "added", "loaded", "skipped", "failed", "waiting", "lag")}
    assert counts == {"in": 6, "added": 0, "loaded": 3, "skipped": 1, "failed": 2, "waiting": 0, "lag": 2}
    assert warehouse["adds_up"] is True
    assert warehouse["skipped_by"] == {"where": 1}
    assert (warehouse["under_way"], warehouse["behind"], warehouse["to_go"], warehouse["batch"]) == (0, 2, 2, None)
    assert warehouse["tables"] == {"out": {"in": 3, "merged": 0, "written": 3, "under_way": 0}}
    assert (warehouse["state"], warehouse["message"]) == ("stopped", "PEN-DST-099: the target is unavailable.")
    assert (audit["state"], audit["in"], audit["lag"], audit["last_commit"]) == ("new", 0, 8, None)
    (partition,) = shown["partitions"]
    assert (partition["source"], partition["oldest"], partition["end"]) == ("web", 0, 8)
    assert partition["bytes"] > 0
    assert shown["engine_pid"] is None


def test_what_a_step_added_is_shown_by_step(shop: Project) -> None:
    pipeline = shop.open()
    batch = pipeline.ledger.begin("warehouse", {0: (6, 7)})
    assert batch is not None
    pipeline.ledger.commit(batch, Settlement(1, 3, added={"split": 2}, tables=[TableReceipt("out", 3)]))
    warehouse = json.loads(shop.penstock("status", "--json").out)["routes"][0]
    assert (warehouse["added"], warehouse["added_by"], warehouse["adds_up"]) == (2, {"split": 2}, True)
    lines = [line.split() for line in shop.penstock("status").out.splitlines()]
    assert ["route", "added", "by", "items"] in lines
    assert ["warehouse", "split", "2"] in lines


def test_people_see_counts_check_mark_and_the_whole_message(shop: Project) -> None:
    out = shop.penstock("status").out
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["warehouse"])
    assert row == ["warehouse", "stopped", "6", "3", "1", "2", "0", "0", "2", "2"]
    assert "the engine does not run" in out
    assert "warehouse: PEN-DST-099: the target is unavailable." in out
    assert "penstock failed list" in out


def _routes(shop: Project) -> tuple[dict[str, str], dict[str, Any]]:
    """The first route as the table has it, by heading, and as JSON."""
    lines = shop.penstock("status").out.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("route ") and "state" in line]
    headings = re.split(r"\s{2,}", lines[place].strip())
    cells = re.split(r"\s{2,}", lines[place + 2].strip())
    found: dict[str, Any] = json.loads(shop.penstock("status", "--json").out)["routes"][0]
    return dict(zip(headings, cells, strict=True)), found


def test_what_a_target_that_is_away_holds_up_is_under_way_and_does_not_look_settled(shop: Project) -> None:
    begun = shop.open().ledger.begin("warehouse", {0: (6, 7)})
    assert begun is not None
    people, machines = _routes(shop)
    assert (people["waiting"], people["under way"], people["behind"]) == ("0", "1", "1")
    assert people["to go"] == "2"
    assert (machines["waiting"], machines["under_way"], machines["behind"], machines["to_go"]) == (0, 1, 1, 2)
    assert machines["batch"]["number"] == begun.number
    assert "batch 3 with 1 record is under way since" in shop.penstock("status").out


def test_only_a_route_with_nothing_to_go_looks_settled(shop: Project) -> None:
    ledger = shop.open().ledger
    batch = ledger.begin("warehouse", {0: (6, 8)})
    assert batch is not None
    ledger.commit(batch, Settlement(2, 1, waiting=1, tables=[TableReceipt("out", 1)], holds={0: 7}))
    people, machines = _routes(shop)
    assert (people["waiting"], people["behind"], people["to go"]) == ("1", "0", "1")
    assert (machines["lag"], machines["to_go"]) == (0, 1)
    pipeline = shop.open()
    with pipeline.log.writer("web") as writer:
        writer.append(entries([Record(b'{"price": 50}', "web")]))
    last = ledger.begin("warehouse", {0: (8, 9)})
    assert last is not None
    ledger.commit(last, Settlement(1, 2, waiting=-1, tables=[TableReceipt("out", 2)]))
    assert _routes(shop)[0]["to go"] == "✓"


def test_rows_of_a_half_delivered_batch_are_in_no_sum_but_their_own(shop: Project) -> None:
    ledger = shop.open().ledger
    begun = ledger.begin("warehouse", {0: (6, 8)})
    assert begun is not None
    ledger.note_table_loaded(begun, TableReceipt("out", 1))
    people, machines = _routes(shop)
    assert machines["tables"]["out"] == {"in": 3, "merged": 0, "written": 3, "under_way": 1}
    assert sum(tally["in"] for tally in machines["tables"].values()) == machines["loaded"] == int(people["loaded"])
    assert machines["batch"]["rows_at_target"] == 1
    assert machines["adds_up"] is True
    assert "1 row of it at the destination already" in shop.penstock("status").out


def test_rows_that_are_missing_from_the_tables_do_not_add_up(shop: Project) -> None:
    ledger = shop.open().ledger
    batch = ledger.begin("warehouse", {0: (6, 8)})
    assert batch is not None
    ledger.commit(batch, Settlement(2, 2, tables=[TableReceipt("out", 1)]))
    people, machines = _routes(shop)
    assert (people["to go"], machines["adds_up"]) == ("DOES NOT ADD UP", False)


def test_records_of_one_key_are_many_in_and_one_written(shop: Project) -> None:
    ledger = shop.open().ledger
    batch = ledger.begin("warehouse", {0: (6, 8)})
    assert batch is not None
    ledger.commit(batch, Settlement(2, 2, tables=[TableReceipt("users", 2, merged=1)]))
    lines = [line.split() for line in shop.penstock("status").out.splitlines()]
    assert ["route", "table", "in", "merged", "written"] in lines
    assert ["warehouse", "users", "2", "1", "1"] in lines
    assert _routes(shop)[1]["tables"]["users"] == {"in": 2, "merged": 1, "written": 1, "under_way": 0}


@pytest.mark.parametrize("last_word", [RouteState.RUNNING, RouteState.STARTING, RouteState.RETRYING])
def test_a_route_whose_engine_was_killed_is_running_for_nobody(shop: Project, last_word: RouteState) -> None:
    shop.open().ledger.set_state("warehouse", last_word)
    people, machines = _routes(shop)
    assert (people["state"], machines["state"]) == ("stopped", "stopped")


def test_the_state_is_believed_while_the_engine_runs(shop: Project) -> None:
    lock = Layout(shop.folder / "data").run / "engine.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(str(os.getpid()))
    assert engine_pid(Layout(shop.folder / "data")) == os.getpid()
    out = shop.penstock("status").out
    assert f"the engine runs, pid {os.getpid()}" in out
    assert "retrying" in out


def test_a_lock_file_of_an_engine_that_is_gone_means_nothing(shop: Project) -> None:
    lock = Layout(shop.folder / "data").run / "engine.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(f"{os.getpid()} 1")  # born at another time: the number was given out again
    assert engine_pid(Layout(shop.folder / "data")) is None


def test_a_pipeline_that_never_ran_says_how_to_start_it(fresh: Project) -> None:
    ran = fresh.penstock("status")
    assert (ran.code, ran.out) == (1, "")
    assert "PEN-ENG-004" in ran.err
    assert "penstock run" in ran.err
    assert not (fresh.folder / "data").exists()


def test_a_pipeline_whose_ledger_is_gone_is_not_taken_for_one_that_never_ran(fresh: Project) -> None:
    layout = Layout(fresh.folder / "data")
    layout.checkpoint("warehouse", "0123456789").mkdir(parents=True)
    ran = fresh.penstock("status")
    assert (ran.code, ran.out) == (1, "")
    assert str(layout.ledger) in ran.err
    assert "is gone" in ran.err
    assert "penstock restore" in ran.err


def test_a_watched_status_is_a_line_a_second_until_it_is_told_to_end(shop: Project) -> None:
    words = [*COMMAND, "status", "--watch", "--json", "--config", str(shop.config)]
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    pipeline = shop.open()
    batch = pipeline.ledger.begin("warehouse", {0: (6, 8)})
    assert batch is not None
    pipeline.ledger.commit(batch, Settlement(2, 2))
    pipeline.ledger.close()
    lags = [json.loads(watching.stdout.readline())["routes"][0]["lag"] for _ in range(3)]
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=HANG)
    assert (watching.returncode, said) == (0, "")
    assert (first["routes"][0]["lag"], lags[-1]) == (2, 0)
