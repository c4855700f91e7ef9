"""The oldest segments are gone while a route still needs them: every verb says so, none passes over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli._support.exit_codes import Exit
from penstock.engine.history.batch_origin import Origin
from penstock.log.format.log_files import segment_bases
from tests.cli.stops import Shop, shop

ORDERS = 40


@pytest.fixture
def gapped(tmp_path: Path) -> Shop:
    """Both routes have read three orders; then somebody removes the oldest segments."""
    project = shop(tmp_path, "dead_letter")
    project.config.write_text("log: {segment_bytes: 4KB}\n" + project.config.read_text())
    for n in range(11, ORDERS + 1):
        project.append({"id": n, "amount": n, "pad": f"{n:0500d}"}, first=n)
    assert project.penstock("run", "--step", "warehouse", answer="y\ny\ny\nn\n").code == Exit.UNFINISHED
    for base in segment_bases(folder(project))[:2]:
        for suffix in (".seg", ".idx"):
            (folder(project) / f"{base:020d}{suffix}").rename(project.folder / f"{base:020d}{suffix}")
    return project


def folder(project: Shop) -> Path:
    return project.folder / "data" / "log" / "0"


def oldest(project: Shop) -> int:
    return segment_bases(folder(project))[0]


def put_back(project: Shop) -> None:
    for path in project.folder.glob("0*.???"):
        path.rename(folder(project) / path.name)


def test_a_route_is_not_stepped_over_what_is_missing(gapped: Shop) -> None:
    ran = gapped.penstock("run", "--step", "warehouse", "--yes")
    last = oldest(gapped) - 1
    assert ran.code == Exit.PROBLEMS
    assert f"PEN-RTE-005: route 'warehouse' has not read offsets 3..{last} of partition 0" in ran.err
    assert f"penstock offset ack warehouse 3..{last} --partition 0" in ran.err
    assert gapped.committed() == 3
    assert gapped.loaded() == [1, 2, 3]


def test_with_the_segments_back_in_their_place_nothing_is_lost(gapped: Shop) -> None:
    assert gapped.penstock("run", "--step", "warehouse", "--yes").code == Exit.PROBLEMS
    put_back(gapped)
    assert gapped.penstock("run", "--step", "warehouse", "--yes").code == Exit.OK
    assert gapped.loaded() == [n for n in range(1, ORDERS + 1) if n != 7]


def test_what_is_missing_can_be_given_up_and_that_is_on_record(gapped: Shop) -> None:
    first = oldest(gapped)
    done = gapped.json("offset", "ack", "warehouse", f"3..{first - 1}", "--partition", "0", "--reason", "disk broke")
    assert (done["records"], done["committed"]) == (0, first)
    assert gapped.penstock("run", "--step", "warehouse", "--yes").code == Exit.OK
    assert gapped.loaded() == [1, 2, 3, *range(first + 1, ORDERS + 1)]
    (act,) = gapped.json("offset", "show", "warehouse")["interventions"]
    assert (act["act"], act["first"], act["last"], act["reason"]) == ("ack", 3, first - 1, "disk broke")
    warehouse, _ = gapped.json("status")["routes"]
    assert (warehouse["adds_up"], warehouse["lag"], warehouse["in"]) == (True, 0, 3 + ORDERS - first)


def test_a_batch_under_way_over_missing_records_can_be_given_up_too(gapped: Shop) -> None:
    pipeline = gapped.open()
    ranges = {0: (3, ORDERS)}
    pipeline.ledger.begin("warehouse", ranges, Origin.of(pipeline.log, ranges))
    first = oldest(gapped)
    assert gapped.json("offset", "ack", "warehouse", f"3..{first - 1}", "--partition", "0")["records"] == 0
    pipeline.ledger.close()
    assert gapped.penstock("run", "--step", "warehouse", "--yes").code == Exit.OK
    assert gapped.loaded() == [1, 2, 3, *range(first + 1, ORDERS + 1)]


def test_verify_says_which_route_has_not_read_what_is_missing(gapped: Shop) -> None:
    first = oldest(gapped)
    ran = gapped.penstock("log", "verify")
    assert ran.code == Exit.PROBLEMS
    assert f"route 'warehouse' has not read offsets 3..{first - 1} of partition 0" in ran.out
    assert f"penstock offset ack warehouse 3..{first - 1} --partition 0" in ran.err
    assert "log repair" not in ran.err
    (check,) = json.loads(gapped.penstock("log", "verify", "--json").out)
    assert check["missing"] == [{"route": "warehouse", "first": 3, "end": first}]
    put_back(gapped)
    assert gapped.penstock("log", "verify").code == Exit.OK


def test_a_route_that_is_new_begins_at_the_oldest_record_that_is_there(gapped: Shop) -> None:
    first = oldest(gapped)
    assert gapped.penstock("run", "--step", "audit", "--yes").code == Exit.OK
    _, audit = gapped.json("status")["routes"]
    assert audit["in"] == ORDERS - first


def test_doctor_says_how_to_go_on(gapped: Shop) -> None:
    ran = gapped.penstock("doctor", "--json")
    assert ran.code == Exit.PROBLEMS
    (found,) = (each for each in json.loads(ran.out) if each["verdict"] == "fail")
    assert "has not read offsets 3.." in found["found"]
    assert "penstock offset ack warehouse 3.." in found["fix"]
