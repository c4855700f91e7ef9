"""``penstock run --step``: one record at a time, as a person at a terminal would go through a route."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.cli._support.exit_codes import Exit
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.engine.processes.engine_lock import EngineLock
from tests.cli.stops import Shop, order, shop


@pytest.fixture
def strict(tmp_path: Path) -> Shop:
    return shop(tmp_path)


@pytest.fixture
def lenient(tmp_path: Path) -> Shop:
    return shop(tmp_path, "dead_letter")


def test_each_record_is_shown_behind_every_step_before_it_is_delivered(strict: Shop) -> None:
    ran = strict.penstock("run", "--step", "warehouse", answer="y\nn\n")
    assert ran.code == Exit.UNFINISHED
    assert [line.split(None, 1)[-1] for line in ran.out.splitlines()][1:5] == [
        'orders  {"id": 1, "amount": 1, "card": "4111"}',
        'orders  {"id": 1, "amount": 1}',
        "1 row for orders",
        "loaded",
    ]
    assert ran.out.splitlines()[0].startswith("0:0 ")
    assert ran.err.count("deliver it?") == 2
    assert strict.loaded() == [1]
    assert strict.committed() == 1


def test_machines_get_a_line_per_record_and_one_per_outcome(strict: Shop) -> None:
    seen, outcome, unseen = strict.lines("run", "--step", "warehouse", answer="yes\nquit\n")
    assert (seen["event"], seen["record"]["offset"], seen["rows"]) == ("record", 0, {"orders": 1})
    assert [(step["step"], step["outcome"]) for step in seen["steps"]] == [("where", "kept"), ("omit", "kept")]
    assert json.loads(seen["steps"][1]["records"][0]["data"]) == {"id": 1, "amount": 1}
    assert outcome == {"event": "outcome", "outcome": "loaded"}
    assert unseen["record"]["offset"] == 1


def test_a_refused_record_is_said_and_stays_and_goes_with_an_acknowledgement(strict: Shop) -> None:
    ran = strict.penstock("run", "--step", "warehouse", answer="y\n" * 7 + "ack\n" + "y\n" * 3)
    assert ran.code == Exit.OK
    (refused,) = [line for line in ran.out.splitlines() if line.startswith("  refused")]
    assert "CHECK constraint failed" in refused
    assert sum(line.startswith("0:6 ") for line in ran.out.splitlines()) == 2
    assert strict.loaded() == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert strict.committed() == 10
    (act,) = strict.json("offset", "show", "warehouse")["interventions"]
    assert (act["act"], act["first"], act["reason"]) == ("ack", 6, "run --step")


def test_yes_goes_as_far_as_it_can(strict: Shop) -> None:
    ran = strict.penstock("run", "--step", "warehouse", "--yes")
    assert ran.code == Exit.UNFINISHED
    assert strict.loaded() == [1, 2, 3, 4, 5, 6]
    strict.fix()
    assert strict.penstock("run", "--step", "warehouse", "--yes").code == Exit.OK
    assert strict.loaded() == list(range(1, 11))


def test_dead_letters_are_said_and_passed(lenient: Shop) -> None:
    ran = lenient.penstock("run", "--step", "warehouse", "--yes")
    assert ran.code == Exit.OK
    (failed,) = [line for line in ran.out.splitlines() if line.startswith("  failed")]
    assert "CHECK constraint failed" in failed
    assert lenient.loaded() == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    (entry,) = lenient.lines("failed", "list")
    assert entry["record"]["offset"] == 6


def test_what_a_step_skips_or_fails_is_said_with_the_step(tmp_path: Path) -> None:
    project = shop(tmp_path, "dead_letter")
    project.append({"id": 11, "amount": 5000}, b"nonsense", first=10)
    lines = project.lines("run", "--step", "warehouse", "--yes")
    big, skipped, nonsense, failed = lines[-4:]
    assert [(step["step"], step["outcome"]) for step in big["steps"]] == [("where", "skipped")]
    assert (big["rows"], skipped["outcome"]) == ({}, "skipped")
    assert [(step["step"], step["outcome"], step["code"]) for step in nonsense["steps"]] == [
        ("where", "failed", "not_json")
    ]
    assert (failed["outcome"], failed["step"], failed["code"]) == ("failed", "where", "not_json")


def test_the_oldest_record_of_several_partitions_comes_first(tmp_path: Path) -> None:
    project = shop(tmp_path)
    project.config.write_text(
        project.config.read_text()
        .replace("from: web\n", "from: [web, shop]\n")
        .replace("routes:", "  shop: {type: file, path: ./shop.ndjson}\nroutes:")
    )
    project.json("offset", "ack", "warehouse", "0..", "--partition", "0")
    for number, source in ((21, "shop"), (31, "web"), (22, "shop")):
        # What a record says of its own time does not matter.
        project.append(order(number), source=source, first=-number)
    lines = project.lines("run", "--step", "warehouse", "--yes")
    shown = [json.loads(line["record"]["data"])["id"] for line in lines if line["event"] == "record"]
    assert shown == [21, 31, 22]


def test_acknowledged_records_are_not_asked_for(strict: Shop) -> None:
    strict.json("offset", "ack", "warehouse", "2..8")
    lines = strict.lines("run", "--step", "warehouse", "--yes")
    assert [line["record"]["offset"] for line in lines if line["event"] == "record"] == [0, 1, 9]


def test_what_was_under_way_comes_first_and_together(strict: Shop) -> None:
    ledger = Ledger.open(sqlite_url(Layout(strict.folder / "data").ledger), "shop")
    ledger.open_route("warehouse", {0: 0})
    ledger.begin("warehouse", {0: (0, 4)})
    ledger.close()
    ran = strict.penstock("run", "--step", "warehouse", answer="y\nn\n")
    assert "offsets 0:0..3 were under way" in ran.err
    assert strict.loaded() == [1, 2, 3, 4]
    assert strict.committed() == 4


def test_it_keeps_away_from_a_pipeline_that_runs(strict: Shop) -> None:
    lock = EngineLock(Layout(strict.folder / "data").run)
    lock.acquire()
    ran = strict.penstock("run", "--step", "warehouse", "--yes")
    lock.release()
    assert ran.code == Exit.PROBLEMS
    assert f"another engine (pid {os.getpid()})" in ran.err
    assert strict.loaded() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--step", "nowhere"], "there is no route 'nowhere'"),
        (["--step", "warehouse", "--once"], "leave --once out"),
        (["--yes"], "--yes needs --step"),
    ],
)
def test_words_that_do_not_fit(strict: Shop, words: list[str], said: str) -> None:
    ran = strict.penstock("run", *words)
    assert ran.code == Exit.USAGE
    assert said in ran.err
